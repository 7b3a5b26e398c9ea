"""The structure of tables in text (CSV, TSV): the rows, the delimiter, and the row that names the columns."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

DELIMITERS = "\t;|,"
"""If two fit equally well, the first is taken, as a comma may be part of a number."""
SAMPLE = 50
"""Rows that are examined for the delimiter and the names."""
MOST_LINES = 100
"""The most lines of a row. A quote that is not closed by then quotes nothing."""
_SEPARATOR = re.compile(r'"?sep=([^\w\s"]|\t)"?\n', re.IGNORECASE)


class TableRow(NamedTuple):
    """The characters [start, end) of a text, with the line break. number: from 1."""

    number: int
    start: int
    end: int


class CsvText:
    """The rows of a table. A quote counts only at the beginning of a cell; a line break between two quotes does not end
    a row; a first line `sep=;` is not a row.

    delimiter: between cells. names: the row that names the columns, the first of the usual width whose cells are mostly
    filled; None for a text without rows.
    """

    def __init__(self, text: str) -> None:
        separator = separator_line(text)
        self._start = separator.end() if separator else 0
        self._lines = _lines(text[self._start :])
        self.delimiter = separator[1] if separator else self._likely_delimiter()
        sample = list(islice(self._rows(self.delimiter), SAMPLE))
        widths = Counter(len(cells) for _, cells in sample if len(cells) > 1)
        usual = widths.most_common(1)[0][0] if widths else 1
        named = (row for row, cells in sample if len(cells) == usual and 2 * _filled(cells) > usual)
        self.names = next(named, sample[0][0] if sample else None)

    def __iter__(self) -> Iterator[TableRow]:
        return (row for row, _ in self._rows(self.delimiter))

    @property
    def most_rows(self) -> int:
        """An upper bound of the number of rows."""
        return len(self._lines)

    def _rows(self, delimiter: str) -> Iterator[tuple[TableRow, list[str]]]:
        number, start, at = 0, self._start, 0
        while at < len(self._lines):
            cells, taken = self._row(at, delimiter)
            number, end = number + 1, start + sum(map(len, self._lines[at : at + taken]))
            yield TableRow(number, start, end), cells
            start, at = end, at + taken

    def _row(self, at: int, delimiter: str) -> tuple[list[str], int]:
        """The cells of the row that begins at a line, and its number of lines."""
        line = self._lines[at]
        plain = line.rstrip("\n").split(delimiter)
        if '"' not in line:
            return plain, 1
        reader = csv.reader(self._lines[at : at + MOST_LINES], delimiter=delimiter, skipinitialspace=True, strict=True)
        try:
            cells = next(reader)
        except csv.Error:
            return plain, 1
        return cells, reader.line_num

    def _likely_delimiter(self) -> str:
        def fit(delimiter: str) -> int:
            widths = Counter(len(cells) for _, cells in islice(self._rows(delimiter), SAMPLE))
            return max((count for width, count in widths.items() if width > 1), default=0)

        return max(DELIMITERS, key=fit) if any(map(fit, DELIMITERS)) else ","


def separator_line(text: str) -> re.Match[str] | None:
    """The first line, if it declares the delimiter: group 1."""
    return _SEPARATOR.match(text)


def _lines(text: str) -> list[str]:
    *lines, last = text.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _filled(cells: Sequence[str]) -> int:
    return sum(bool(cell.strip()) for cell in cells)


def cells_of(text: str, row: TableRow, delimiter: str) -> Iterator[tuple[int, int]]:
    """The start and end of each cell of a row, including the delimiter after it."""
    cell = re.compile(rf' *"(?:[^"]|"")*"[^{re.escape(delimiter)}]*|[^{re.escape(delimiter)}]*')
    start = row.start
    while start < row.end:
        found = cell.match(text, start, row.end)
        assert found is not None
        stop = min(found.end() + 1, row.end)
        yield start, stop
        start = stop
