"""A question about an attached table, for a model that writes Python: what it reads, and the code around its own.

The code is given up to `result =`: it reads the file rightly (separator, decimal comma, dates). The model writes the
value, and the rest is given again: it shows the result and draws the chart. So a small model has one thing to get
right. `python -m tests.bench analyst` measures what comes out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from app.files.look import kind_of_column
from app.files.material import Material
from app.protocol import Citation
from py_core.tools.table import Column, Table

EXAMPLES = 2
MOST_COLUMNS = 30
MOST_VALUES = 12
MOST_CELL = 40
_MISSING_IN_PANDAS = {"", "n/a", "nan", "null", "none", "na"}
_DAY_FIRST = re.compile(r"\d{1,2}\.|(1[3-9]|2\d|3[01])/")
_KINDS = {"number": "numbers, such as", "date": "dates, such as", "group": "one of", "text": "text, such as"}
_CHARTS = {
    "scatter": r"scatter|points|correlat|punkte|streu|korrel",
    "hist": r"histogram|distribut|verteilung",
    "line": r"\blines?\b|linien|over time|trend|verlauf",
    "pie": r"\bpie\b|kreisdiagramm|torten",
    "bar": r"chart|plot|graph|draw|diagram|grafi|zeichne|\bbars?\b|\bby\b|\bper\b|\beach\b|\bje\b|\bpro\b|\bjede",
}
"""The first chart whose words are in the question."""
_DRAWING = r"chart|plot|graph|draw|diagram|grafi|zeichne|histogram|as points|show (it|them)|zeig"
_OTHER_LINE = re.compile(r"\n(?![ \t)\]}.]|result\b)")
"""Ends the model's part: a line that does not continue its statement, and does nothing with the result."""


@dataclass(frozen=True)
class Analysis(Material):
    """The task of one question. begun: the answer up to the model's part. chart: the code that draws the chart."""

    begun: str = ""
    chart: str = ""

    def asked(self, question: str) -> str:
        first, _, rest = question.partition("\n\n")
        asked = f"{self.text}\n\nWrite Python with pandas that computes as `result`: {without_chart(first)}"
        return f"{asked}\n\n{rest}" if rest else asked

    def settled(self, answer: str) -> str:
        """The beginning of the answer that stays: it may end before the last line."""
        end = answer.rfind("\n", len(self.begun))
        return answer if end < 0 else answer[:end]

    def whole(self, answer: str, is_over: bool) -> str | None:
        """The answer as it stays; None if the model's part may still go on. is_over: the model has ended it."""
        own = answer.removeprefix(self.begun)
        other = next((one for one in _OTHER_LINE.finditer(own) if _is_decided(own[one.end() :])), None)
        if other is None and not is_over and "```" not in own:
            return None
        own = own[: other.start()] if other else own.partition("```")[0]
        own = own.rstrip()
        chart = self.chart.replace("bar(", "bar(x=result.columns[0]") if "reset_index" in own else self.chart
        return f"{self.begun}{own}\n{chart}\nresult\n```"


def _is_decided(line: str) -> bool:
    """True if a line that is still written will not begin with `result`."""
    return bool(line) and not "result".startswith(line)


def is_correction(question: str) -> bool:
    """True if the message shows earlier code, and says what is wrong with it."""
    return "```" in question


def analysis_of(table: Table, file: str, question: str) -> Analysis:
    """file: the id of the table's file. question: its first paragraph asks; the others say what is wrong with earlier
    code."""
    question = question.partition("\n\n")[0]
    text, chart = _described(table), _chart(table, question)
    imports = "import pandas as pd\n" + ("import matplotlib.pyplot as plt\n" if chart else "")
    reads = f"df = pd.read_csv({_arguments(table)})"
    begun = f"```python\n{imports}\n{reads}\n\n# {without_chart(question)}\nresult ="
    text = f"{text}\n\nExamples of code for it:\n\n```python\n" + "\n".join(_examples(table)) + "\n```"
    return Analysis(text, 0, (Citation(file, table.name, "", text),), is_whole=False, begun=begun, chart=chart)


def _described(table: Table) -> str:
    columns = [_column(column) for column in table.columns[:MOST_COLUMNS]]
    return "\n".join([f"The file {table.name} is a table of {len(table.lines)} rows. Its columns are:", *columns])


def _column(column: Column) -> str:
    kind = kind_of_column(column)
    cells = islice(column.distinct, MOST_VALUES if kind == "group" else EXAMPLES)
    return f"- {column.name!r}: {_KINDS[kind]} {', '.join(repr(cell[:MOST_CELL]) for cell in cells)}"


def _arguments(table: Table) -> str:
    dates = [column.name for column in table.columns if column.months is not None]
    given = [repr(table.name)]
    if table.delimiter != ",":
        given.append(f"sep={table.delimiter!r}")
    if table.points == {","}:
        given.append("decimal=','")
    if dates:
        given.append(f"parse_dates={dates!r}")
    if any(_DAY_FIRST.match(cell) for column in table.columns if column.months for cell in column.distinct):
        given.append("dayfirst=True")
    missing = {cell for column in table.columns for cell in set(column.cells) - set(column.distinct)}
    if own := sorted(cell for cell in missing if cell.lower() not in _MISSING_IN_PANDAS):
        given.append(f"na_values={own!r}")
    return ", ".join(given)


def without_chart(question: str) -> str:
    """The question in one line, without sentences that only ask for a chart."""
    sentences = re.split(r"(?<=[.?!])\s+", " ".join(question.split()))
    others = [one for one in sentences if not re.search(_DRAWING, one, re.IGNORECASE)]
    return " ".join(others or sentences)


def _examples(table: Table) -> list[str]:
    kinds = [(column, kind_of_column(column)) for column in table.columns]
    numbers = [column.name for column, kind in kinds if kind == "number"]
    groups = [column for column, kind in kinds if kind == "group"]
    dates = [column.name for column, kind in kinds if kind == "date"]
    made: list[tuple[str, str]] = []
    if numbers and groups:
        number, group = numbers[-1], groups[0].name
        made += [
            (f"average {number} by {group}", f"df.groupby({group!r})[{number!r}].mean()"),
            (
                f"the two {group} with the highest total {number}",
                f"df.groupby({group!r})[{number!r}].sum().nlargest(2)",
            ),
        ]
    if numbers and dates:
        made.append(
            (f"total {numbers[0]} per month", f"df.groupby(df[{dates[0]!r}].dt.to_period('M'))[{numbers[0]!r}].sum()")
        )
    if dates:
        made.append((f"most days between two {dates[0]}", f"df[{dates[0]!r}].sort_values().diff().max().days"))
    if groups:
        name, value = groups[-1].name, next(iter(groups[-1].distinct))
        made.append((f"share of rows with {name} {value}", f"(df[{name!r}] == {value!r}).mean()"))
        if numbers:
            made.append(
                (
                    f"how many rows have {name} {value} and {numbers[0]} over 5",
                    f"len(df[(df[{name!r}] == {value!r}) & (df[{numbers[0]!r}] > 5)])",
                )
            )
    if len(numbers) > 1:
        made.append((f"correlation of {numbers[0]} and {numbers[-1]}", f"df[{numbers[0]!r}].corr(df[{numbers[-1]!r}])"))
    made.append(("empty cells of each column", "df.isna().sum()"))
    return [f"# {comment}\nresult = {code}" for comment, code in made]


def _chart(table: Table, question: str) -> str:
    """The code that draws the chart which the question asks for; "" if it asks for none."""
    kind = next((kind for kind, words in _CHARTS.items() if re.search(words, question, re.IGNORECASE)), None)
    numbers = _named(table, question)
    if kind == "scatter" and len(numbers) == 2:
        drawn = "df.plot.scatter(x={!r}, y={!r})".format(*numbers)
    elif kind == "hist" and numbers:
        drawn = f"df[{numbers[0]!r}].plot.hist()"
    elif kind is None:
        return ""
    else:
        drawn = f"if hasattr(result, 'plot'):\n    result.plot.{kind if kind in ('line', 'pie') else 'bar'}()"
    return f"\n{drawn}\nplt.show()"


def _named(table: Table, question: str) -> Sequence[str]:
    """The columns of numbers that a question names."""
    asked = question.casefold()
    return [column.name for column in table.columns if column.numbers is not None and column.name.casefold() in asked]
