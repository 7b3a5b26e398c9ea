"""The columns of a table, as a person names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py_core.messages import UserError

KINDS = ("text", "number", "date", "email", "phone", "choice")
MOST_COLUMNS = 12
LONGEST_NAME = 60
MOST_CHOICES = 20


class TableError(UserError, ValueError):
    """A table cannot be made; the message says why, and what to do."""


@dataclass(frozen=True)
class Column:
    """kind: of KINDS. A text is words of the text; a number, a date, an email address and a telephone number are one of
    the text's; a choice is one of `choices`, whatever the text says."""

    name: str
    kind: str = "text"
    choices: tuple[str, ...] = ()


def columns_of(given: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Read {name, kind, choices} each. Raises TableError."""
    columns = tuple(
        Column(
            " ".join(str(one.get("name", "")).split()), str(one.get("kind", "text")),
            tuple(dict.fromkeys(filter(None, (" ".join(str(word).split()) for word in one.get("choices") or ())))),
        )
        for one in given
    )  # fmt: skip
    if not columns:
        raise TableError("table.no-columns", "Name at least one column.")
    if len(columns) > MOST_COLUMNS:
        raise TableError("table.many-columns", "A table may have {most} columns: leave some out.", most=MOST_COLUMNS)
    names = set[str]()
    for column in columns:
        if not column.name:
            raise TableError("table.no-name", "A column has no name: write one, or remove the column.")
        if len(column.name) > LONGEST_NAME:
            raise TableError(
                "table.long-name",
                "The name of a column may have {most} characters: shorten “{name}”.",
                most=LONGEST_NAME,
                name=f"{column.name[:LONGEST_NAME]}…",
            )
        if column.name.casefold() in names:
            raise TableError("table.same-name", "Two columns are called “{name}”: rename one.", name=column.name)
        if column.kind not in KINDS:
            raise ValueError(f"There is no kind of column called {column.kind}.")
        if column.kind == "choice" and not 2 <= len(column.choices) <= MOST_CHOICES:
            raise TableError(
                "table.choices",
                "The column “{name}” needs 2 to {most} words to choose from.",
                name=column.name,
                most=MOST_CHOICES,
            )
        names.add(column.name.casefold())
    return columns
