"""Cuts a text into passages of about 160 tokens, each with its place. Questions are compared with them and cite them.

    list(each_chunk("# Setup\n\nPress the red key.", "markdown"))    # [Chunk(0, 27, "Setup")]

The length of a text is its bytes in UTF-8: a token has about four of them in every script, so nothing is encoded.
Passages cover the whole text in order. If a passage ends in the middle of a paragraph, the next one begins up to
OVERLAP_BYTES before that end, so that a sentence is not lost between them.

The texts are untrusted. The time for a text is linear in its length: no pattern here looks at a character more than a
few times.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Literal, NamedTuple

import numpy as np

from py_core.display import whole_end
from py_core.passages.table_rows import CsvText, TableRow, cells_of

CHUNK_BYTES = 640
"""The most bytes of a passage, including the head that it repeats."""
OVERLAP_BYTES = 96
MOST_CHUNKS = 20_000
"""The limit for an attached file: more than 4 MB of running text has. Each costs a vector and an index entry."""
LONGEST_KEY = 80
"""Bytes of a row's first cell that its passages repeat, if the row is cut by its columns."""
MOST_COLUMNS = 10_000
"""The most columns of a table whose rows are cut by their columns."""
LONGEST_PLACE = 120  # characters
PAGE_BREAK = "\f"

Kind = Literal["text", "markdown", "code", "table", "pages"]

_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_LINE = re.compile(r"\n")
_SENTENCE = re.compile(r"[.!?…][\"'\u201d\u2019)\]]*\s+|[\u3002\uff01\uff1f]+")
_WORD = re.compile(r"\s+")
_DEFINITION = re.compile(
    r"^(?=@|"
    r"(?:(?:export|default|pub(?:\([^)\n]*\))?|public|private|protected|static|abstract|final|async|unsafe)[ \t]+)*"
    r"(?:def|class|function|func|fn|impl|struct|enum|interface|trait|type|module|namespace|sub|proc|CREATE)\b)",
    re.MULTILINE,
)
_PROSE_BREAKS = (_PARAGRAPH, _SENTENCE, _LINE, _WORD)
_CODE_BREAKS = (_DEFINITION, _PARAGRAPH, _LINE, _WORD)
_HEADING = re.compile(r"(#{1,6})[ \t]+(?=\S)")
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_UNDERLINE = re.compile(r"^(=+|-+)[ \t]*$")
_SUFFIXES: dict[Kind, str] = {
    "markdown": "md markdown mdx",
    "table": "csv tsv",
    "pages": "pdf",
    "code": "py pyi js mjs cjs ts tsx jsx c h cc cpp hpp cs java kt go rs rb php pl lua r jl swift scala sh bash zsh "
    "ps1 sql css scss html htm xml svg json jsonl yaml yml toml ini cfg conf wgsl glsl tex diff patch",
}


class Chunk(NamedTuple):
    """The characters [start, end) of a text. head: text that is repeated before it, such as a table's first row."""

    start: int
    end: int
    place: str
    head: str = ""

    def text(self, whole: str) -> str:
        """The passage's text, cut from the whole text."""
        return self.head + whole[self.start : self.end]


def kind_of(name: str) -> Kind:
    """The way to cut a file of this name."""
    suffix = name.lower().rpartition(".")[2] if "." in name else ""
    return next((kind for kind, suffixes in _SUFFIXES.items() if suffix in suffixes.split()), "text")


def each_chunk(text: str, kind: Kind) -> Iterator[Chunk]:
    """In the order of the text. Each has at most CHUNK_BYTES; none is blank; a blank text has none."""
    sized = _Sized(text)
    if kind == "table":
        found = _rows(sized)
    elif kind == "code":
        found = (_by_lines(sized, span) for span in _spans(sized, 0, len(text), _CODE_BREAKS))
    elif _has_pages(text, kind):
        found = _pages(sized)
    elif kind == "markdown":
        found = _sections(sized)
    else:
        found = (_by_lines(sized, span) for span in _spans(sized, 0, len(text), _PROSE_BREAKS))
    return (chunk for chunk in found if text[chunk.start : chunk.end].strip())


def place_of_all(text: str, kind: Kind) -> str:
    """The place of a whole text: its pages, "" if it has none."""
    if not _has_pages(text, kind):
        return ""
    return f"pages 1-{last}" if (last := text.count(PAGE_BREAK) + 1) > 1 else "page 1"


def _has_pages(text: str, kind: Kind) -> bool:
    return kind == "pages" or (PAGE_BREAK in text and kind not in ("table", "code"))


class _Sized:
    """A text, the bytes up to each of its characters, and the line of each."""

    def __init__(self, text: str) -> None:
        self.text = text
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        lengths = 1 + (codes >= 0x80).astype(np.int32) + (codes >= 0x800) + (codes >= 0x10000)
        self._before = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        self._lines = [match.end() for match in _LINE.finditer(text)]

    def size(self, start: int, end: int) -> int:
        return int(self._before[end] - self._before[start])

    def reach(self, start: int, size: int) -> int:
        """The last position that is at most `size` bytes after a start."""
        return int(np.searchsorted(self._before, self._before[start] + size, "right")) - 1

    def back(self, end: int, size: int) -> int:
        """The first position that is at most `size` bytes before an end."""
        return int(np.searchsorted(self._before, self._before[end] - size, "left"))

    def line(self, at: int) -> int:
        """The line number, from 1, of a character."""
        return bisect_right(self._lines, at) + 1

    def line_start(self, at: int) -> int:
        """The beginning of that line."""
        number = bisect_right(self._lines, at)
        return self._lines[number - 1] if number else 0


def _spans(
    sized: _Sized, start: int, end: int, breaks: Sequence[re.Pattern[str]], most: int = CHUNK_BYTES
) -> Iterator[tuple[int, int]]:
    """Cut [start, end) at the first of `breaks` that occurs in the second half of the available room."""
    text = sized.text
    while sized.size(start, end) > most:
        furthest = max(whole_end(text, sized.reach(start, most)), start + 1)
        cut, inside = furthest, True
        for pattern in breaks:
            earliest = (start + furthest) // 2
            found = [m.end() for m in pattern.finditer(text, earliest, furthest) if earliest < m.end()]
            if found:
                cut, inside = found[-1], pattern not in (_PARAGRAPH, _DEFINITION)
                break
        yield start, cut
        start = max(_overlap(sized, cut, breaks), start + 1) if inside else cut
    if start < end:
        yield start, end


def _overlap(sized: _Sized, cut: int, breaks: Sequence[re.Pattern[str]]) -> int:
    """The beginning of the passage after a cut: at a sentence or line, or at least at a word if there are any."""
    first = sized.back(cut, OVERLAP_BYTES)
    for pattern in breaks:
        for match in pattern.finditer(sized.text, max(first - 1, 0), cut):
            if first <= match.end() < cut:
                return match.end()
    return whole_end(sized.text, first)


def _by_lines(sized: _Sized, span: tuple[int, int]) -> Chunk:
    return Chunk(*span, _lines_place(sized, *span))


def _lines_place(sized: _Sized, start: int, end: int) -> str:
    said = sized.text[start:end]
    first = sized.line(start + len(said) - len(said.lstrip()))
    last = sized.line(start + max(len(said.rstrip()) - 1, 0))
    if first < last:
        return f"lines {first}-{last}"
    begins = start - sized.line_start(start)
    return f"line {first}" if begins <= 0 or first != sized.line(start) else f"line {first}, character {begins + 1:,}"


def _pages(sized: _Sized) -> Iterator[Chunk]:
    start = 0
    for number, page in enumerate(sized.text.split(PAGE_BREAK), 1):
        end = min(start + len(page) + 1, len(sized.text))  # including its page break, so that nothing is left out
        for span in _spans(sized, start, end, _PROSE_BREAKS):
            yield Chunk(*span, f"page {number}")
        start = end


@dataclass
class _Section:
    start: int
    place: str
    has_text: bool = False


def _sections(sized: _Sized) -> Iterator[Chunk]:
    """Cut Markdown at its headings: a heading without text of its own belongs to the next."""
    found = [_Section(0, "")]
    path: list[tuple[int, str]] = []
    fence, at, before = "", 0, ""
    for line in sized.text.splitlines(keepends=True) if sized.text else []:
        bare = line.rstrip("\n")
        (level, title), begins = _heading(bare), at
        if not level and before.strip() and (under := _UNDERLINE.match(bare)) and not fence:
            level, title, begins = (1 if under[1][0] == "=" else 2), _cut(before), at - len(before)
        if mark := _FENCE.match(bare):
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        if level and not fence and begins >= found[-1].start:
            path = [(depth, name) for depth, name in path if depth < level] + [(level, title)]
            place = " > ".join(name for _, name in path)
            if begins == found[-1].start or not found[-1].has_text:
                found[-1].place, found[-1].has_text = place, False
            else:
                found.append(_Section(begins, place))
        elif bare.strip():
            found[-1].has_text = True
        before = "" if level or not bare.strip() else line
        at += len(line)
    ends = [section.start for section in found[1:]] + [len(sized.text)]
    for section, end in zip(found, ends, strict=True):
        for span in _spans(sized, section.start, end, _PROSE_BREAKS):
            yield Chunk(*span, _cut(section.place) if section.place else _lines_place(sized, *span))


def _heading(line: str) -> tuple[int, str]:
    """The level and the words of a heading with #; level 0 if it is no heading."""
    if (found := _HEADING.match(line)) is None:
        return 0, ""
    words = line[found.end() :].strip(" \t")
    return len(found[1]), _cut(words.rstrip("#").rstrip(" \t") or words)


def _cut(place: str) -> str:
    place = " ".join(place[: 4 * LONGEST_PLACE].split())
    return place if len(place) <= LONGEST_PLACE else f"{place[: whole_end(place, LONGEST_PLACE - 1)]}…"


def _rows(sized: _Sized) -> Iterator[Chunk]:
    """Cut a table into whole rows, each passage with the names of the columns before it. TableRow 1 is the first.

    A row above the names gets no names. If the names take more than half of a passage, each row is cut into groups of
    columns, and each group has its own names.
    """
    table = CsvText(sized.text)
    names = table.names
    if names is None:
        return
    groups = _column_groups(sized, table, names)
    if groups and len(groups) * table.most_rows > MOST_CHUNKS:
        yield from _whole_rows(sized, table, "")
        return
    above = names.number if groups else names.number - 1
    rows = iter(table)
    yield from _whole_rows(sized, islice(rows, above), "")
    if groups:
        for row in rows:
            yield from _row_by_columns(sized, table, row, groups)
        return
    below = islice(rows, 1, None)
    if not sized.text[names.start : names.end].strip() or not sized.text[names.end :].strip():
        yield from _whole_rows(sized, chain([names], below), "")
    else:
        yield from _whole_rows(sized, below, sized.text[names.start : names.end].rstrip("\n") + "\n")


def _whole_rows(sized: _Sized, rows: Iterable[TableRow], head: str) -> Iterator[Chunk]:
    most = CHUNK_BYTES - _bytes(head)
    together = list[TableRow]()
    for row in rows:
        if together and sized.size(together[0].start, row.end) > most:
            yield _rows_chunk(together, head)
            together = []
        if sized.size(row.start, row.end) <= most:
            together.append(row)
            continue
        for span in _spans(sized, row.start, row.end, (_WORD,), most):
            yield Chunk(*span, f"row {row.number}", head)
    if together:
        yield _rows_chunk(together, head)


def _rows_chunk(rows: Sequence[TableRow], head: str) -> Chunk:
    first, last = rows[0], rows[-1]
    place = f"row {first.number}" if first is last else f"rows {first.number}-{last.number}"
    return Chunk(first.start, last.end, place, head)


def _column_groups(sized: _Sized, table: CsvText, names: TableRow) -> list[tuple[int, int, str]]:
    """(first column, the one after the last, names) of each; [] if all names fit into half a passage."""
    few = sized.text.count(table.delimiter, names.start, names.end) < MOST_COLUMNS
    if sized.size(names.start, names.end) <= CHUNK_BYTES // 2 or not few:
        return []
    most = CHUNK_BYTES // 2 - 2 * LONGEST_KEY
    cells = list(cells_of(sized.text, names, table.delimiter))
    groups, first = list[tuple[int, int, str]](), 0
    for after in range(1, len(cells) + 1):
        if after == len(cells) or sized.size(cells[first][0], cells[after][1]) > most:
            start, end = cells[first][0], cells[after - 1][1]
            groups.append((first, after, sized.text[start : min(end, sized.reach(start, most))].rstrip("\n")))
            first = after
    return groups


def _row_by_columns(
    sized: _Sized, table: CsvText, row: TableRow, groups: Sequence[tuple[int, int, str]]
) -> Iterator[Chunk]:
    """A passage for each group of columns. The first cell, which usually names the row, is repeated in each."""
    text, cells = sized.text, list(cells_of(sized.text, row, table.delimiter))
    key = text[cells[0][0] : min(cells[0][1], sized.reach(cells[0][0], LONGEST_KEY))]
    key_name = groups[0][2].partition(table.delimiter)[0]
    key_name = key_name[:LONGEST_KEY] if key_name.isascii() else key_name[: LONGEST_KEY // 4]
    for first, end, names in groups:
        if first >= len(cells):
            return
        last = len(cells) if end == groups[-1][1] else min(end, len(cells))
        head = f"{key_name}{table.delimiter}{names}\n{key}" if first else f"{names}\n"
        for span in _spans(sized, cells[first][0], cells[last - 1][1], (_WORD,), CHUNK_BYTES - _bytes(head)):
            yield Chunk(*span, f"row {row.number}", head)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
