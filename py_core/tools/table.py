"""Parses tables in text (CSV, TSV) for computation: exact numbers, dates, and a count of what was left out."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import cached_property
from io import StringIO
from itertools import islice

from py_core.passages.table_rows import separator_line
from py_core.text_search import fold
from py_core.tools.number_text import plain_digits, shape_of

_DELIMITERS = "\t;|,"
"""If two fit, the first is taken, as a comma may be part of a number."""
_SAMPLE = 50
_SAMPLE_LINES = 200
MOST_COLUMNS = 1000
MOST_CELLS = 1_000_000
"""Including the missing cells of short rows. A file's size has the same limit in characters, so only a table with
short rows can exceed this."""
MOST_LONG_ROWS = 0.1
"""The share of rows with more cells than the header, above which the table cannot be trusted."""
_MISSING = {"", "-", "\u2013", "\u2014", "n/a", "na", "nan", "null", "none", "k.a.", "k. a."}
_TOTALS = {
    "total", "totals", "grand total", "sum", "subtotal", "summe", "gesamt", "gesamtsumme", "zwischensumme", "insgesamt",
}  # fmt: skip
_UNIT = r"[€$£¥]|EUR|USD|GBP|CHF"
_NUMBER = re.compile(
    rf"(?P<open>\()?(?P<s>[-+\u2212]?)\s?(?P<u>{_UNIT})?\s?(?P<t>[-+\u2212]?)"
    rf"(?P<n>[.,]?\d[\d.,]{{0,40}}|\d{{1,3}}(?:[ \u00a0\u202f'\u2019]\d{{3}}){{1,12}}(?:[.,]\d{{1,40}})?)"
    rf"\s?(?P<v>%|{_UNIT})?(?P<close>\))?"
)
_SIGNS = {"EUR": "€", "USD": "$", "GBP": "£"}
_DATES = (
    re.compile(r"(?P<y>\d{4})[-/](?P<m>\d{1,2})(?:[-/](?P<d>\d{1,2})(?:[T ]\d\d:\d\d.*)?)?"),
    re.compile(r"(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})(?: \d\d:\d\d.*)?"),
    re.compile(r"(?P<a>\d{1,2})/(?P<b>\d{1,2})/(?P<y>\d{4})(?: \d\d?:\d\d.*)?"),
)


def folded(text: str) -> str:
    """The text in lower case, without accents; ä is ae and ß is ss."""
    text = unicodedata.normalize("NFC", text).casefold()
    return fold(text.replace("ä", "ae").replace("ö", "oe").replace("ü", "ue"))


@dataclass(frozen=True)
class _Cell:
    """A cell that is a number. reads: its shape (number_text.shape_of)."""

    digits: str
    minus: bool
    unit: str
    reads: str

    def value(self, point: str) -> Decimal:
        digits = plain_digits(self.digits, point)
        return Decimal(f"-{digits}" if self.minus else digits)


def _number(cell: str) -> _Cell | None:
    found = _NUMBER.fullmatch(cell)
    if found is None or bool(found["open"]) != bool(found["close"]) or (found["u"] and found["v"]):
        return None
    digits = re.sub("[ \u00a0\u202f'\u2019]", "", found["n"])
    reads = shape_of(digits)
    if reads == "no" or (found["s"] and found["t"]) or (found["open"] and (found["s"] or found["t"])):
        return None
    minus = bool(found["open"]) or (found["s"] or found["t"]) in ("-", "\u2212")
    unit = found["u"] or found["v"] or ""
    return _Cell(digits, minus, _SIGNS.get(unit, unit), reads)


@dataclass
class Column:
    """cells: as in the file, without surrounding spaces."""

    name: str
    cells: list[str]
    table: Table = field(repr=False)

    @cached_property
    def distinct(self) -> Counter[str]:
        """The non-empty cells, and how often each occurs."""
        counted = Counter(self.cells)
        for cell in [cell for cell in counted if cell.lower() in _MISSING]:
            del counted[cell]
        return counted

    @cached_property
    def _parsed(self) -> dict[str, _Cell]:
        parsed = dict[str, _Cell]()
        for cell in self.distinct:
            if (number := _number(cell)) is None:
                return {}
            parsed[cell] = number
        units = {number.unit for number in parsed.values()}
        return {} if len(units - {""}) > 1 or ("%" in units and "" in units) else parsed

    @cached_property
    def points(self) -> set[str]:
        """The decimal points that its numbers show."""
        return {number.reads for number in self._parsed.values()} & {".", ","}

    @cached_property
    def point(self) -> str:
        """The decimal point of its numbers, from this column, else from the file's other columns; "" if unknown."""
        points = self.points
        if not points and any(number.reads == "either" for number in self._parsed.values()):
            points = self.table.points
        elif not points:
            return "."
        return points.copy().pop() if len(points) == 1 else ""

    @cached_property
    def numbers(self) -> list[Decimal | None] | None:
        """The values of its cells, None for empty ones; None if they are no numbers, or ambiguous."""
        if not self._parsed or not self.point:
            return None
        values = {cell: number.value(self.point) for cell, number in self._parsed.items()}
        return [values.get(cell) for cell in self.cells]

    @cached_property
    def unit(self) -> str:
        """A currency sign or %, "" if there is none."""
        return max((number.unit for number in self._parsed.values()), default="")

    @cached_property
    def example(self) -> str:
        """A cell that others may read differently, "" if there is none."""
        others = (cell for cell, number in self._parsed.items() if "," in cell or number.reads == "either")
        return next(others, "")

    @cached_property
    def months(self) -> list[tuple[int, int] | None] | None:
        """(year, month) of its dates; None if they are no dates, or ambiguous."""
        found = {cell: next(filter(None, (form.fullmatch(cell) for form in _DATES)), None) for cell in self.distinct}
        if not found or None in found.values():
            return None
        matches = {cell: match.groupdict() for cell, match in found.items() if match}
        pairs = [(int(each["a"]), int(each["b"])) for each in matches.values() if "a" in each]
        day_first, month_first = any(a > 12 for a, _ in pairs), any(b > 12 for _, b in pairs)
        if pairs and day_first == month_first:
            return None
        months = dict[str, tuple[int, int]]()
        for cell, each in matches.items():
            month, day = (each["b"], each["a"]) if day_first else (each.get("a"), each.get("b"))
            try:
                day_of = date(int(each["y"]), int(each.get("m") or month or 0), int(each.get("d") or day or 1))
            except ValueError:
                return None
            months[cell] = (day_of.year, day_of.month)
        return [months.get(cell) for cell in self.cells]


@dataclass
class Table:
    """lines: the line of the file in which each row begins. totals, long: how many rows were left out because they are
    totals, or have more cells than the header. short: how many rows have fewer cells. sure: True if the first row is
    surely a header. delimiter: between two cells."""

    name: str
    columns: list[Column] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    totals: int = 0
    long: int = 0
    short: int = 0
    sure: bool = False
    delimiter: str = ","

    @property
    def points(self) -> set[str]:
        """The decimal points that its numbers show."""
        return set[str]().union(*(column.points for column in self.columns))


def read_table(name: str, text: str) -> Table | None:
    """None if the text is not a table with a header, or if it is ambiguous."""
    separator = separator_line(text)
    text = text[separator.end() :] if separator else text
    try:
        delimiter = separator[1] if separator else _delimiter(text)
        rows = _rows(text, delimiter)
        _, header = next(rows)
        return _table(Table(name, delimiter=delimiter), header, rows)
    except (csv.Error, StopIteration):
        return None


def _rows(text: str, delimiter: str, lines: int | None = None) -> Iterator[tuple[int, list[str]]]:
    """The non-empty rows among the first `lines` rows, with their line numbers. Raises csv.Error."""
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    line = 1
    for row in islice(reader, lines):
        cells = [cell.strip() for cell in row]
        if any(cells):
            yield line, cells
        line = reader.line_num + 1


def _delimiter(text: str) -> str:
    def fits(delimiter: str) -> bool:
        try:
            widths = [len(row) for _, row in islice(_rows(text, delimiter, _SAMPLE_LINES), _SAMPLE)]
        except csv.Error:
            return False
        most, times = Counter(widths).most_common(1)[0] if widths else (0, 0)
        return most > 1 and widths[0] > 1 and times >= (1 - MOST_LONG_ROWS) * len(widths)

    return next(filter(fits, _DELIMITERS), ",")


def _table(table: Table, header: list[str], rows: Iterator[tuple[int, list[str]]]) -> Table | None:
    width = len(header)
    if width > MOST_COLUMNS:
        return None
    kept, known = [list[str]() for _ in header], dict[str, str]()
    for line, row in rows:
        if len(row) > width and any(row[width:]):
            table.long += 1
        elif folded(next(filter(None, row)).rstrip(":")) in _TOTALS:
            table.totals += 1
        else:
            table.short += len(row) < width
            table.lines.append(line)
            if width * len(table.lines) > MOST_CELLS:
                return None
            for number, cells in enumerate(kept):
                cell = row[number] if number < len(row) else ""
                cells.append(known.setdefault(cell, cell))
    table.columns = [Column(name, cells, table) for name, cells in zip(header, kept, strict=True)]
    if not table.lines or table.long > MOST_LONG_ROWS * len(table.lines):
        return None
    if any(_number(name) or any(form.fullmatch(name) for form in _DATES) for name in header):
        return None  # no header: the first row is data
    table.sure = any(column.numbers or column.months for column in table.columns)
    return table
