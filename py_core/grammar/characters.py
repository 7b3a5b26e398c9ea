"""Sets of characters, as runs of code points, and the classes of regular expressions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from unicodedata import category

from py_core.grammar.expressions import ANY_CHAR, CharSet

LAST = 0x10FFFF

DIGITS: CharSet = ((0x30, 0x39),)
WORDS: CharSet = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACES: CharSet = (
    *((0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
"""\\d, \\w and \\s of ECMA-262: digits and words are ASCII, spaces are not."""
LINE_ENDS: CharSet = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))


def char_set(runs: Iterable[tuple[int, int]]) -> CharSet:
    """The set of runs in any order, which may overlap, without surrogates."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if merged and first <= merged[-1][1] + 1:
            if last > merged[-1][1]:
                merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    if any(last >= 0xD800 and first <= 0xDFFF for first, last in merged):
        return common(tuple(merged), ANY_CHAR)
    return tuple(merged)


def single(code: int) -> CharSet:
    """The set of one character; none of a surrogate."""
    return () if 0xD800 <= code <= 0xDFFF else ((code, code),)


def common(some: CharSet, others: CharSet) -> CharSet:
    """The characters that are in both sets."""
    found = []
    at = by = 0
    while at < len(some) and by < len(others):
        first, last = max(some[at][0], others[by][0]), min(some[at][1], others[by][1])
        if first <= last:
            found.append((first, last))
        if some[at][1] < others[by][1]:
            at += 1
        else:
            by += 1
    return tuple(found)


@lru_cache(256)
def complement(chars: CharSet) -> CharSet:
    """All characters but these."""
    found, start = [], 0
    for first, last in chars:
        if start < first:
            found.append((start, first - 1))
        start = last + 1
    if start <= LAST:
        found.append((start, LAST))
    return common(tuple(found), ANY_CHAR)


def without(some: CharSet, others: CharSet) -> CharSet:
    """The characters of a set that are not in the other."""
    return common(some, complement(others))


_CATEGORIES = (
    "L Letter;Lu Uppercase_Letter;Ll Lowercase_Letter;Lt Titlecase_Letter;LC Cased_Letter;Lm Modifier_Letter;"
    "Lo Other_Letter;M Mark Combining_Mark;Mn Nonspacing_Mark;Mc Spacing_Mark;Me Enclosing_Mark;N Number;"
    "Nd Decimal_Number digit;Nl Letter_Number;No Other_Number;P Punctuation punct;Pc Connector_Punctuation;"
    "Pd Dash_Punctuation;Ps Open_Punctuation;Pe Close_Punctuation;Pi Initial_Punctuation;Pf Final_Punctuation;"
    "Po Other_Punctuation;S Symbol;Sm Math_Symbol;Sc Currency_Symbol;Sk Modifier_Symbol;So Other_Symbol;Z Separator;"
    "Zs Space_Separator;Zl Line_Separator;Zp Paragraph_Separator;C Other;Cc Control cntrl;Cf Format;Cs Surrogate;"
    "Co Private_Use;Cn Unassigned"
)
_SCANNED = 0x40000
"""From here on, up to U+E0000, Unicode has assigned nothing."""


@lru_cache(1)
def _by_category() -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {"Cn": [(_SCANNED, 0xDFFFF)]}
    for codes in (range(_SCANNED), range(0xE0000, 0xE1000)):
        at = codes.start
        for name, members in groupby(map(category, map(chr, codes))):
            end = at + sum(1 for _ in members)
            found.setdefault(name, []).append((at, end - 1))
            at = end
    found["Cn"].append((0xE1000, 0xEFFFF))
    for plane in (0xF0000, 0x100000):
        found["Co"].append((plane, plane + 0xFFFD))
        found["Cn"].append((plane + 0xFFFE, plane + 0xFFFF))
    return found


@lru_cache(64)
def unicode_property(name: str) -> CharSet | None:
    """The characters of a general category (Lu, Uppercase_Letter), or of Any, ASCII or White_Space; None if unknown."""
    if name == "Any":
        return ANY_CHAR
    if name == "ASCII":
        return ((0, 0x7F),)
    if name in ("White_Space", "space"):
        return char_set((*without(SPACES, single(0xFEFF)), (0x85, 0x85)))
    name = name.rpartition("=")[2] if name.startswith(("gc=", "General_Category=")) else name
    short = next((names.split()[0] for names in _CATEGORIES.split(";") if name in names.split()), None)
    if short is None:
        return None
    wanted = ("Lu", "Ll", "Lt") if short == "LC" else short
    return char_set(run for kind, runs in _by_category().items() if kind.startswith(wanted) for run in runs)


@lru_cache(1)
def _cased() -> dict[int, tuple[int, ...]]:
    """The other cases of each character that has any."""
    classes: dict[str, set[int]] = {}
    for first, last in char_set((*(unicode_property("L") or ()), (0x345, 0x345), (0x2160, 0x24FF))):
        for code in range(first, last + 1):
            character = chr(code)
            folded = character.casefold()
            if len(folded) > 1:
                folded = character.lower()
            if folded != character or character.upper() != character:
                classes.setdefault(folded, set()).add(code)
    return {
        code: tuple(sorted({*same, ord(folded)} - {code}))
        for folded, same in classes.items()
        if len(folded) == 1
        for code in {*same, ord(folded)}
        if {*same, ord(folded)} != {code}
    }


_ASCII_CASED: dict[int, tuple[int, ...]] = {
    code: (code ^ 32,) for letters in (range(65, 91), range(97, 123)) for code in letters
}
for _letter, _other in (("k", 0x212A), ("s", 0x17F)):
    for _code in (ord(_letter), ord(_letter.upper())):
        _ASCII_CASED[_code] = (*_ASCII_CASED[_code], _other)


@lru_cache(256)
def any_case(chars: CharSet) -> CharSet:
    """The characters with their other cases (Unicode's simple case folding)."""
    if not chars or chars == ANY_CHAR:
        return chars
    cased = _ASCII_CASED if chars[-1][1] < 128 else _cased()
    found = list(chars)
    for first, last in chars:
        codes = (
            range(first, last + 1) if last - first < len(cased) else [code for code in cased if first <= code <= last]
        )
        found.extend((other, other) for code in codes for other in cased.get(code, ()))
    return char_set(found)
