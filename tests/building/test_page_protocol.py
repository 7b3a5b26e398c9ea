"""Python's events and answers match the page's types and clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.building.page_protocol import FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_pages_types_and_calls_are_those_of_python(path: Path) -> None:
    """Run `python -m app.building.page_protocol`, and commit its output."""
    assert path.read_text(encoding="utf-8") == FILES[path]()
