"""Cuts a text where its entries end: a line of a list, a sentence, a block of labelled lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST_ENTRY = 600
"""Characters. A longer one is cut between words."""
_WRAPPED = 60
"""If each line of a paragraph but the last has this many characters, it is prose that was broken into lines."""
_LINE = re.compile(r"[^\n\f]+")
_LABEL = re.compile(r"^[^\w\n]{0,8}(\w[\w .-]{0,30}):", re.MULTILINE)
_SENTENCE_END = re.compile(
    r"(?:[^\W\d_]{4}|\d{3}|\))[.!?][\"\u201d\u2019\u00bb)]*\s+(?=\W?[^\W\d_a-z])|[\u3002\uff01\uff1f]"
)
_WORD_END = re.compile(r"\S\s")


@dataclass(frozen=True)
class Entry:
    """The characters [start, end) of a text. is_line: a line of a list, which is one row. is_heading: a line that
    stands alone above lists, or announces what follows."""

    start: int
    end: int
    is_line: bool = False
    is_heading: bool = False


def entries(text: str) -> list[Entry]:
    """The entries of a text, in its order; none is blank."""
    paragraphs = list(_paragraphs(text))
    blocks = [(start, end) for start, end in paragraphs if "\n" in text[start:end]]
    labels = [set(_LABEL.findall(text[start:end])) for start, end in blocks]
    found = list[Entry]()
    for start, end in paragraphs:
        lines = [line.span() for line in _LINE.finditer(text, start, end)]
        if len(lines) == 1:
            is_heading = text[start:end].rstrip().endswith(":") or (bool(blocks) and end - start < _WRAPPED)
            found += [Entry(start, end, is_heading=True)] if is_heading else _sentences(text, start, end)
        elif sum(bool(own & set(_LABEL.findall(text[start:end]))) for own in labels) > 1:
            found += _shortened(text, start, end)  # beside another block with the same labels
        elif all(last - first >= _WRAPPED for first, last in lines[:-1]) and not _are_alike(text, lines):
            found += _sentences(text, start, end)
        else:
            for first, last in lines:
                if text[first:last].rstrip().endswith(":"):
                    found.append(Entry(first, last, is_heading=True))
                elif last - first > 3 * _WRAPPED:
                    found += _sentences(text, first, last)
                else:
                    found.append(Entry(first, last, is_line=True))
    return found


def pieces(text: str, size: int) -> list[Entry]:
    """The entries, as many together as have at most `size` characters. 0: each by itself, without headings."""
    all_entries = entries(text)
    if not size:
        return [one for one in all_entries if not one.is_heading] or all_entries
    found = list[Entry]()
    for one in all_entries:
        if found and one.end - found[-1].start <= size:
            found[-1] = Entry(found[-1].start, one.end)
        else:
            found.append(Entry(one.start, one.end))
    return found


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Runs of lines that are not blank."""
    begin = behind = 0
    for line in _LINE.finditer(text):
        if line.group().isspace():
            continue
        if behind and text[behind : line.start()] != "\n":
            yield begin, behind
            begin = line.start()
        elif not behind:
            begin = line.start()
        behind = line.end()
    if behind:
        yield begin, behind


def _are_alike(text: str, lines: list[tuple[int, int]]) -> bool:
    """True if all lines begin with the same word, or with a number or a sign: so do those of a list, not of prose."""
    firsts = [text[first:last].split()[0] for first, last in lines]
    return len(set(firsts)) == 1 or not any(word[0].isalpha() for word in firsts)


def _sentences(text: str, start: int, end: int) -> Iterator[Entry]:
    first = start
    for found in _SENTENCE_END.finditer(text, start, end):
        yield from _shortened(text, first, found.end())
        first = found.end()
    yield from _shortened(text, first, end)


def _shortened(text: str, start: int, end: int) -> Iterator[Entry]:
    while end - start > LONGEST_ENTRY:
        words = [found.end() for found in _WORD_END.finditer(text, start, start + LONGEST_ENTRY)]
        middle = words[-1] if words else start + LONGEST_ENTRY
        yield Entry(start, middle)
        start = middle
    if text[start:end].strip():
        yield Entry(start, end)
