"""The first look at an attached table: its columns and rows, and questions that fit. No model takes part, and the exact
tools (py_core/tools) answer the questions."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from py_core.tools.table import Column, Table

if TYPE_CHECKING:
    from app.files.views import LookColumn, LookQuestion, TableLook

ROWS = 5
MOST_COLUMNS = 30
MOST_CELL = 80
MOST_GROUPS = 12
QUESTIONS = 3
_IDENTIFIES = re.compile(r"(^|[\s_.-])(id|nr|no|number|nummer|code|zip|plz|year|jahr|phone|telefon)$", re.IGNORECASE)


def look_at(table: Table) -> TableLook:
    """Columns with their kinds (number, date, group, text), the first rows, and up to three questions: their form with
    the names of columns (`files.ask_*` of the page's texts)."""
    shown = table.columns[:MOST_COLUMNS]
    columns: list[LookColumn] = [{"name": column.name, "kind": kind_of_column(column)} for column in shown]
    rows = [[column.cells[at][:MOST_CELL] for column in shown] for at in range(min(ROWS, len(table.lines)))]
    return {
        "name": table.name, "columns": columns, "rows": rows, "row_count": len(table.lines),
        "column_count": len(table.columns), "questions": _questions(table),
    }  # fmt: skip


def kind_of_column(column: Column) -> str:
    """number, date, group (few values, each in several rows) or text."""
    if column.numbers is not None:
        return "number"
    if column.months is not None:
        return "date"
    return "group" if _is_group(column) else "text"


def _is_group(column: Column) -> bool:
    return 2 <= len(column.distinct) <= min(MOST_GROUPS, 2 * len(column.cells) // 3)


def _questions(table: Table) -> list[LookQuestion]:
    kinds = [(column.name, kind_of_column(column)) for column in table.columns]
    groups = [name for name, kind in kinds if kind == "group"]
    numbers = [name for name, kind in kinds if kind == "number" and not _IDENTIFIES.search(name)]
    made: list[LookQuestion] = []

    def ask(form: str, number: str = "", group: str = "") -> None:
        made.append({"form": form, "number": _spoken(number), "group": _spoken(group)})

    if numbers and groups:
        ask("averageBy", numbers[-1], groups[0])
    if numbers and any(kind == "date" for _, kind in kinds):
        ask("perMonth", numbers[-1])
    if groups:
        ask("countBy", group=groups[-1])
    if numbers:
        ask("highest", numbers[0])
        ask("total", numbers[-1])
    ask("rows")
    return list(islice(made, QUESTIONS))


def _spoken(name: str) -> str:
    """The name of a column without a unit behind it, in brackets."""
    bracket = max(name.rfind("("), name.rfind("["))
    return name[:bracket].rstrip() or name if bracket > 0 and name.endswith((")", "]")) else name
