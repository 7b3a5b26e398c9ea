"""A tiny model for the commands, and a home folder for lessons."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> list[str]:
    """The options for a TinyLlama on numpy."""
    return ["--model", str(tiny_path), "--backend", "numpy"]


@pytest.fixture
def home(tmp_path: Path) -> list[str]:
    return ["--home", str(tmp_path / "home")]
