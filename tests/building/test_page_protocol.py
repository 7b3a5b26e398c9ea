"""What Python sends to the page, as the page's types say it."""

from __future__ import annotations

from app.building.page_protocol import FILE, page_protocol


def test_the_pages_types_are_those_of_the_protocol() -> None:
    """Run `python -m app.building.page_protocol`, and commit what it wrote."""
    assert FILE.read_text(encoding="utf-8") == page_protocol()
