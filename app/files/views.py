"""Facts about files for the page, as plain data."""

from __future__ import annotations

from typing import TypedDict


class Attached(TypedDict):
    """A file by its id, and the conversation's."""

    chat: str
    id: str


class AttachedFile(TypedDict):
    """size: bytes. indexed: the number of its passages that can be found by meaning. comes: true if the others are
    being indexed in the background."""

    id: str
    name: str
    type: str
    size: int
    passages: int
    indexed: int
    comes: bool


class LookColumn(TypedDict):
    """A column of a table. kind: number, date, group (few values, each in several rows) or text."""

    name: str
    kind: str


class LookQuestion(TypedDict):
    """A question that fits a table: its form, with the names of columns that it is about."""

    form: str
    number: str
    group: str


class TableLook(TypedDict):
    """The first rows and columns of a table, and up to three questions."""

    name: str
    columns: list[LookColumn]
    rows: list[list[str]]
    row_count: int
    column_count: int
    questions: list[LookQuestion]
