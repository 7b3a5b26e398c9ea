"""A tiny model for the commands, a home for what is learned, and a router that is opened fast."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.native_services import native_router_parts
from tests.few_examples import few_parts, use_few_examples


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> list[str]:
    """The options for a TinyLlama on numpy."""
    return ["--model", str(tiny_path), "--backend", "numpy"]


@pytest.fixture
def home(tmp_path: Path) -> list[str]:
    return ["--home", str(tmp_path / "home")]


@pytest.fixture(scope="module")
def fast_routing(made_files: dict[str, Path]) -> Iterator[None]:
    """Commands in this process open a router with few examples, and one embedder for all: what they do is the same."""
    with pytest.MonkeyPatch.context() as patch:
        use_few_examples(patch, few_parts(native_router_parts()))
        yield
