"""A question about a table: the code that is given around the model's part, and what the model reads."""

from __future__ import annotations

import ast

import pytest

from app.files.analysis import analysis_of
from py_core.tools.table import Table, read_table

INVOICES = "Nr;Datum;Kunde;Betrag\n1;03.09.2025;Lang;12,50\n2;14.10.2025;Lang;-\n3;02.11.2025;Süd;7,25\n"
LOANS = "date,branch,loans\n01/13/2025,A,4\n02/20/2025,B,6\n02/21/2025,A,6\n"


def table(name: str, text: str) -> Table:
    found = read_table(name, text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (INVOICES, "'a.csv', sep=';', decimal=',', parse_dates=['Datum'], dayfirst=True, na_values=['-']"),
        (LOANS, "'a.csv', parse_dates=['date']"),
        ("a\tb\n1\t2.5\n", "'a.csv', sep='\\t'"),
    ],
)
def test_the_code_reads_the_file_as_it_is_written(text: str, arguments: str) -> None:
    assert f"df = pd.read_csv({arguments})\n" in analysis_of(table("a.csv", text), "id", "How many?").begun


def test_the_models_part_ends_where_it_does_something_else_and_the_rest_is_given() -> None:
    analysis = analysis_of(table("a.csv", LOANS), "id", "Mean of loans by branch?\nDraw a bar chart.")
    assert analysis.begun.endswith("\n# Mean of loans by branch?\nresult =")
    assert analysis.asked("Mean of loans by branch? Draw a bar chart.").endswith("`result`: Mean of loans by branch?")
    code = " df.groupby('branch')['loans'].mean()"
    for written in (f"{code}\nresult = result.round(2)", f"{code}.agg(\n    'x'\n)", f"{code}\nres", f"{code}\n"):
        assert analysis.whole(analysis.begun + written, is_over=False) is None
    shown = "\n\nif hasattr(result, 'plot'):\n    result.plot.bar()\nplt.show()\nresult\n```"
    for rest in ("\n\n# Print", "\nprint(result)", "\n```\nThis", "```"):
        assert analysis.whole(analysis.begun + code + rest, is_over=False) == analysis.begun + code + shown
    assert analysis.whole(analysis.begun + code, is_over=True) == analysis.begun + code + shown


@pytest.mark.parametrize(
    ("question", "drawn"),
    [
        ("How many loans?", ""),
        ("mean loans per branch", "result.plot.bar()"),
        ("Show the loans over time", "result.plot.line()"),
        ("Are loans and late correlated? Draw it", "df.plot.scatter(x='loans', y='late')"),
        ("Distribution of loans", "df['loans'].plot.hist()"),
    ],
)
def test_a_chart_is_drawn_if_the_question_wants_one(question: str, drawn: str) -> None:
    wide = table("a.csv", "branch,loans,late\nA,4,1\nB,6,0\nA,7,2\n")
    analysis = analysis_of(wide, "id", question)
    assert drawn in analysis.chart
    assert bool(drawn) == bool(analysis.chart) == ("matplotlib" in analysis.begun)


def test_names_of_a_file_and_of_columns_stay_text_in_the_code() -> None:
    name = "x'); import os; print('\n.csv"
    text = '"d\'], converters=[exec(\'1\')]","n""); exec(1)\n#"\n03.09.2025,1\n04.09.2025,2\n'
    analysis = analysis_of(table(name, text), "id", 'distribution of n"); exec(1)\n# and `\n\nresult')
    code = analysis.whole(f"{analysis.begun} 1", is_over=True)
    assert code is not None
    called = [node.func for node in ast.walk(ast.parse(code[10:-3])) if isinstance(node, ast.Call)]
    assert {one.attr if isinstance(one, ast.Attribute) else ast.unparse(one) for one in called} <= {
        *("read_csv", "hist", "show", "hasattr", "bar")
    }
