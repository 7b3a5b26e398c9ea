"""Finds where the cells of a row stand in the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from app.extraction.columns import Column
from app.extraction.wording import number_places, places_of

Span = tuple[int, int]
"""The characters [start, end) of a text."""


def row_places(text: str, row: Mapping[str, str], columns: Sequence[Column], after: int = 0) -> list[Span | None]:
    """Where each cell stands in the text word by word, None if it does not.

    The cell that is found at the fewest places says where the row is; the others are taken from the places that are
    the nearest to it, and that no other cell of the row has. after: where the row before ends; of several places the
    first behind it is taken.
    """
    found = [
        (number_places if column.kind == "number" else places_of)(text, row[column.name]) if row[column.name] else []
        for column in columns
    ]
    order = sorted((at for at, places in enumerate(found) if places), key=lambda at: len(found[at]))
    chosen: list[Span | None] = [None] * len(columns)
    anchor: int | None = None
    for at in order:
        free = [place for place in found[at] if not any(_overlap(place, other) for other in chosen)] or found[at]
        if anchor is None:
            first = chosen[at] = next((place for place in free if place[0] >= after), free[0])
            anchor = first[0]
        else:
            chosen[at] = min(free, key=partial(_distance, text, anchor, after))
    return chosen


def _distance(text: str, anchor: int, after: int, place: Span) -> tuple[int, bool, int]:
    """In lines; then places that belong to the row before are farther; then in characters."""
    first, last = sorted((anchor, place[0]))
    return text.count("\n", first, last), place[0] < after, last - first


def _overlap(one: Span, other: Span | None) -> bool:
    return other is not None and one[0] < other[1] and other[0] < one[1]
