"""Cuts a text into passages of about 160 tokens, each with its place: what a question is compared with, and is cited.

    chunks_of("# Setup\n\nPress the red key.", "markdown")    # [Chunk(0, 27, "Setup")]

How long a text is counts in bytes of UTF-8: a token has about four of them in every script, so nothing is encoded for
it. Passages cover the whole text in its order. One that ends in the middle of a paragraph is followed by one that
begins up to OVERLAP_BYTES before that end, so that a sentence is not lost between them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

CHUNK_BYTES = 640
"""The most bytes of a passage, with the head that it repeats."""
OVERLAP_BYTES = 96
LONGEST_PLACE = 120  # characters
PAGE_BREAK = "\f"

Kind = Literal["text", "markdown", "code", "table", "pages"]

_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_LINE = re.compile(r"\n")
_SENTENCE = re.compile(r"[.!?…]+[\"'\u201d\u2019)\]]*\s+|[\u3002\uff01\uff1f]+")
_WORD = re.compile(r"\s+")
_DEFINITION = re.compile(
    r"^(?=@|(?:(?:export|default|pub(?:\([^)]*\))?|public|private|protected|static|abstract|final|async|unsafe)\s+)*"
    r"(?:def|class|function|func|fn|impl|struct|enum|interface|trait|type|module|namespace|sub|proc|CREATE)\b)",
    re.MULTILINE,
)
_PROSE_BREAKS = (_PARAGRAPH, _SENTENCE, _LINE, _WORD)
_CODE_BREAKS = (_DEFINITION, _PARAGRAPH, _LINE, _WORD)
_HEADING = re.compile(r"^(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*$")
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
    """The characters [start, end) of a text. head: text that is repeated before it, as the first row of a table."""

    start: int
    end: int
    place: str
    head: str = ""

    def text(self, whole: str) -> str:
        """What it says, of the whole text."""
        return self.head + whole[self.start : self.end]


def kind_of(name: str) -> Kind:
    """How a file of this name is cut."""
    suffix = name.lower().rpartition(".")[2] if "." in name else ""
    return next((kind for kind, suffixes in _SUFFIXES.items() if suffix in suffixes.split()), "text")


def chunks_of(text: str, kind: Kind) -> list[Chunk]:
    """In the order of the text. Each has at most CHUNK_BYTES; none is only spaces; [] of a text that is."""
    sized = _Sized(text)
    if kind == "table":
        found = list(_rows(sized))
    elif kind == "code":
        found = [_by_lines(sized, span) for span in _spans(sized, 0, len(text), _CODE_BREAKS)]
    elif _has_pages(text, kind):
        found = list(_pages(sized))
    elif kind == "markdown":
        found = list(_sections(sized))
    else:
        found = [_by_lines(sized, span) for span in _spans(sized, 0, len(text), _PROSE_BREAKS)]
    return [chunk for chunk in found if text[chunk.start : chunk.end].strip()]


def place_of_all(text: str, kind: Kind) -> str:
    """The place of a whole text: its pages, "" where it has none."""
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
        """The last place that is at most so many bytes after a start."""
        return int(np.searchsorted(self._before, self._before[start] + size, "right")) - 1

    def back(self, end: int, size: int) -> int:
        """The first place that is at most so many bytes before an end."""
        return int(np.searchsorted(self._before, self._before[end] - size, "left"))

    def line(self, at: int) -> int:
        """The number of the line, from 1, that a character stands in."""
        return bisect_right(self._lines, at) + 1

    def line_start(self, at: int) -> int:
        """Where that line begins."""
        number = bisect_right(self._lines, at)
        return self._lines[number - 1] if number else 0


def _spans(
    sized: _Sized, start: int, end: int, breaks: Sequence[re.Pattern[str]], most: int = CHUNK_BYTES
) -> Iterator[tuple[int, int]]:
    """Cut [start, end) where the first of `breaks` is that is found in the second half of what has room."""
    text = sized.text
    while sized.size(start, end) > most:
        furthest = max(sized.reach(start, most), start + 1)
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
    """Where the passage after a cut begins: with a sentence or line, or at least with a word where there are any."""
    first = sized.back(cut, OVERLAP_BYTES)
    for pattern in breaks:
        for match in pattern.finditer(sized.text, max(first - 1, 0), cut):
            if first <= match.end() < cut:
                return match.end()
    return first


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
        end = min(start + len(page) + 1, len(sized.text))  # with its break, so that nothing is left out
        for span in _spans(sized, start, end, _PROSE_BREAKS):
            yield Chunk(*span, f"page {number}")
        start = end


@dataclass
class _Section:
    start: int
    place: str
    has_text: bool = False


def _sections(sized: _Sized) -> Iterator[Chunk]:
    """Markdown, by its headings: one without text of its own belongs to the next."""
    found = [_Section(0, "")]
    path: list[tuple[int, str]] = []
    fence, at, before = "", 0, ""
    for line in sized.text.splitlines(keepends=True) if sized.text else []:
        bare = line.rstrip("\n")
        heading, begins = _HEADING.match(bare), at
        level, title = (len(heading[1]), heading[2]) if heading else (0, "")
        if not heading and before.strip() and (under := _UNDERLINE.match(bare)) and not fence:
            level, title, begins = (1 if under[1][0] == "=" else 2), before.strip(), at - len(before)
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


def _cut(place: str) -> str:
    place = " ".join(place.split())
    return place if len(place) <= LONGEST_PLACE else f"{place[: LONGEST_PLACE - 1]}…"


def _rows(sized: _Sized) -> Iterator[Chunk]:
    """A table: whole rows, each passage with the first row before them where that has room. Row 1 is the first."""
    text, bounds = sized.text, _row_bounds(sized.text)
    if len(bounds) < 2:
        return
    head = text[: bounds[1]]
    body = 1
    if (
        len(bounds) == 2
        or sized.size(0, bounds[1]) > CHUNK_BYTES // 3
        or not (head.strip() and text[len(head) :].strip())
    ):
        head, body = "", 0
    most = CHUNK_BYTES - sized.size(0, len(head))
    first = body
    while first < len(bounds) - 1:
        last = bisect_left(bounds, sized.reach(bounds[first], most) + 1, first + 1) - 1
        if last > first:
            yield Chunk(bounds[first], bounds[last], _rows_place(first + 1, last), head)
            first = last
            continue
        for span in _spans(sized, bounds[first], bounds[first + 1], (_WORD,), most):  # a row that is too long for one
            yield Chunk(*span, _rows_place(first + 1, first + 1), head)
        first += 1


def _rows_place(first: int, last: int) -> str:
    return f"row {first}" if first == last else f"rows {first}-{last}"


def _row_bounds(text: str) -> list[int]:
    """Where rows begin, and the end. A line break between quotes ends none, where quotes come in pairs at all."""
    bounds, quotes, paired = [0], 0, text.count('"') % 2 == 0
    at = 0
    for line in text.split("\n"):
        at += len(line) + 1
        quotes += line.count('"')
        if not paired or quotes % 2 == 0:
            bounds.append(min(at, len(text)))
    return sorted({*bounds, len(text)})
