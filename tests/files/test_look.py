"""The first look at a table: kinds of columns, first rows, and questions that the exact tools answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.files.look import look_at
from py_core.tools.question import question_of
from py_core.tools.table import read_table
from py_core.tools.table_answers import answer
from tests.tools.test_tables import NOW, TEXTS

I18N = Path(__file__).parents[2] / "web" / "i18n"


def forms(language: str) -> dict[str, str]:
    text = (I18N / language / "files.js").read_text(encoding="utf-8")
    return dict(re.findall(r"^  ask_(\w+): '(.*)',$", text, re.MULTILINE))


@pytest.mark.parametrize("name", TEXTS)
def test_the_exact_tools_answer_each_question_that_is_suggested(name: str) -> None:
    table = read_table(f"{name}.csv", TEXTS[name])
    assert table is not None
    questions = look_at(table)["questions"]
    assert len(questions) == 3
    for language in ("en", "de"):
        for question in questions:
            said = forms(language)[question["form"]].format(**question)
            assert answer(question_of(said, NOW), [table]) is not None, said


def test_columns_have_kinds_and_the_first_rows_are_shown() -> None:
    table = read_table("sales.csv", TEXTS["sales"])
    assert table is not None
    look = look_at(table)
    assert [column["kind"] for column in look["columns"]] == [
        *("number", "date", "group", "group", "number", "number", "group")
    ]
    assert (len(look["rows"]), look["row_count"], look["column_count"]) == (5, 6, 7)
    assert look["rows"][2] == ["3", "2024-02-02", "East", "Coffee", "2", "1,200.25", "paid"]
    assert [question["number"] for question in look["questions"]] == ["revenue", "revenue", ""]
    many = read_table(
        "wide.csv", ",".join(f"c{at}" for at in range(90)) + "\n" + ",".join("x" * 500 for _ in range(90))
    )
    assert many is not None
    assert (len(look_at(many)["columns"]), len(look_at(many)["rows"][0][0])) == (30, 80)
