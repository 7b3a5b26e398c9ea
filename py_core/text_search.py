"""Finds words in texts, ignoring case, accents, and the kinds of quotation marks, apostrophes, hyphens and dashes.

A term matches at the beginning of a word ("cod" finds "Coding"), and anywhere in writing without spaces, such as
Chinese.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from py_core.display import is_unseen, whole_end

FOLDING = 3
"""The version of `fold`: texts that were folded by another version are folded again."""
_AROUND_WORDS = "\"'.,;:!?()[]{}\u00a1\u00bf\u060c\u061b\u061f\u0964\u2039\u203a\u3001\u3002"
_AROUND_WORDS += "".join(map(chr, range(0x3008, 0x3012)))  # Chinese and Japanese brackets
_APOSTROPHES = "`\u00b4\u02b9\u02bb\u02bc\u02bd\u02be\u02bf\u02c8\u02ca\u02cb"
_APOSTROPHES += "\u055a\u05f3\u2018\u2019\u201a\u201b\u2032\u2035\ua78c"
_QUOTES = "\u00ab\u00bb\u02ba\u02ee\u05f4\u201c\u201d\u201e\u201f\u2033\u2036\u3003"
_READ_AS = {
    **dict.fromkeys(_APOSTROPHES, "'"),
    **dict.fromkeys(_QUOTES, '"'),
    **dict.fromkeys("\u02d7\u2043\u2212", "-"),
    **dict.fromkeys("\u2044\u2215", "/"),  # the first is in the decomposition of \u00bd
    **{"\u0131": "i", "\u0142": "l", "\u00f8": "o", "\u0111": "d", "\u0127": "h", "\u0167": "t"},
    **{"\u00e6": "ae", "\u0153": "oe"},
    "\u0640": "",  # it only makes an Arabic word longer
}
"""The plain form of small letters and signs that Unicode does not decompose."""
SNIPPET = 160  # characters of a message that are shown around a match
BEFORE_MATCH = 40
_UNSPACED = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF))
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese have no spaces between words, nor has text above U+20000."""


class _Folding(dict[int, str]):
    """Replacements of code points for str.translate. Filled as characters occur."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if (parts := _READ_AS.get(character)) is None:
            parts = unicodedata.normalize("NFKD", character.casefold()).casefold()  # some become capitals
        self[code] = folded = "".join(map(_folded, parts))
        return folded


def _folded(part: str) -> str:
    """Fold a decomposed character: invisible characters, such as soft hyphens, and accents become nothing."""
    category = unicodedata.category(part)
    if category == "Cf" or unicodedata.combining(part) or is_unseen(part):
        return ""
    return "-" if category == "Pd" else _READ_AS.get(part, part)


_FOLDING = _Folding()


def fold(text: str) -> str:
    """The text without case, accents and soft hyphens, with one kind each of apostrophes, quotation marks and dashes.

    Folding it again changes nothing.
    """
    return text.lower().replace("`", "'") if text.isascii() else text.translate(_FOLDING)


def terms_of(query: str) -> list[str]:
    """The terms of a query: its folded words without punctuation around them."""
    folded = (fold(word) for word in query.split())
    return list(dict.fromkeys(word.strip(_AROUND_WORDS) or word for word in folded if word))


def find(term: str, folded: str, start: int = 0) -> int:
    """The first place at which the term begins a word of a folded text, or -1."""
    at = folded.find(term, start)
    while at > 0 and term[0].isalnum() and folded[at - 1].isalnum() and not _is_unspaced(folded[at]):
        at = folded.find(term, at + 1)
    return at


def has_all(terms: Sequence[str], text: str) -> bool:
    """True if a text (not folded) has all terms."""
    folded = fold(text)
    return all(find(term, folded) >= 0 for term in terms)


def snippet(text: str, terms: Sequence[str] = ()) -> list[tuple[str, bool]]:
    """A piece of a text around its first match, or its beginning: (piece, True if it is a match), in order."""
    folded = fold(text)
    found = [at for term in terms if (at := find(term, folded)) >= 0]
    ends = [0, *accumulate(len(fold(character)) for character in text)]  # of each character, in the folded text
    first = bisect_right(ends, min(found, default=0)) - 1
    start = max(first - BEFORE_MATCH, 0)
    if start:
        space = text.find(" ", start, first)
        start = space + 1 if space >= 0 else start
    start = whole_end(text, start)
    end = whole_end(text, min(start + SNIPPET, len(text)))
    marks = [False] * (end - start)
    for term in terms:
        at = find(term, folded, ends[start])
        while 0 <= at < ends[end]:
            for place in range(bisect_right(ends, at) - 1, bisect_right(ends, at + len(term) - 1)):
                if start <= place < end:
                    marks[place - start] = True
            at = find(term, folded, at + len(term))
    pieces = list[tuple[str, bool]]()
    for character, mark in zip(text[start:end], marks, strict=True):
        if pieces and pieces[-1][1] == mark:
            pieces[-1] = (pieces[-1][0] + character, mark)
        else:
            pieces.append((character, mark))
    if start:
        pieces.insert(0, ("… ", False))
    if end < len(text):
        pieces.append((" …", False))
    return [(re.sub(r"\s+", " ", piece), mark) for piece, mark in pieces]


def _is_unspaced(character: str) -> bool:
    code = ord(character)
    return code >= 0x20000 or any(first <= code <= last for first, last in _UNSPACED)
