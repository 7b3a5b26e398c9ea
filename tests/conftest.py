"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The real chat model, SmolLM2-135M-Instruct in Q4_1."""
    cache = Path(os.environ.get("SONATA_CACHE", Path.home() / ".cache" / "sonata"))
    path = cache / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.is_file():
        pytest.fail(f"the model is missing at {path}; run `python build.py` once to download it")
    return path
