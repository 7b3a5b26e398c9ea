"""The grammar of the rows that a text may have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain

from app.extraction.columns import Column
from app.extraction.wording import numerals, of_kind, stretches, without
from py_core.grammar.expressions import EMPTY, Choice, Expression, Grammar, Joined, Literal, Reference, Repeat


def rows_grammar(text: str, columns: Sequence[Column], is_one: bool = False) -> Grammar:
    """The grammar of a JSON list of one row, or of any number of rows: compact objects with the columns in their order.

    Texts are words that stand together in the text, or "", without what other columns are for: dates, email addresses,
    telephone numbers. Dates are any words if none names a day. Numbers are numbers of the text, or null.
    """
    spans = {column.kind: of_kind(text, column.kind) for column in columns if column.kind in ("date", "email", "phone")}
    words = Joined((Literal(b'"'), stretches(without(text, chain(*spans.values()))), Literal(b'"')))
    kinds = {kind: _one_of([text[start:end] for start, end in found]) for kind, found in spans.items()}
    kinds["text"] = words
    if not spans.get("date"):
        kinds["date"] = words
    values = dict.fromkeys(value for numeral in numerals(text) for value in numeral.values)
    kinds["number"] = Choice(tuple(_literal(value) for value in (*values, "null")))
    parts: list[Expression] = []
    for index, column in enumerate(columns):
        parts.append(_literal(f"{',' if index else '{'}{_json(column.name)}:"))
        parts.append(kinds[column.kind] if column.kind != "choice" else _one_of(column.choices, ()))
    row = Reference("row")
    rows = row if is_one else Choice((Joined((row, Repeat(Joined((Literal(b","), row)), 0, None))), EMPTY))
    return Grammar({"root": Joined((Literal(b"["), rows, Literal(b"]"))), "row": Joined((*parts, Literal(b"}")))})


def _one_of(texts: Iterable[str], others: Iterable[str] = ("",)) -> Expression:
    """One of the texts in JSON, or of the others."""
    return Choice(tuple(_literal(_json(" ".join(text.split()))) for text in dict.fromkeys((*texts, *others))))


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _literal(text: str) -> Literal:
    return Literal(text.encode())
