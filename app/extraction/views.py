"""A table that is made, for the page, as plain data."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class TableColumn(TypedDict):
    """kind: "text", "number", "date", "email", "phone" or "choice". choices: the words of a choice."""

    name: str
    kind: str
    choices: NotRequired[list[str]]


class TableCell(TypedDict):
    """value: as in the text; of a number as in JSON; "" if the text does not say it. start, end: where it stands in the
    text, in UTF-16 code units, None if it does not stand there word by word."""

    value: str
    start: int | None
    end: int | None


class TableNews(TypedDict):
    """Rows that were found, and how far the reading is, from 0 to 1."""

    rows: list[list[TableCell]]
    done: float
