"""The words and numbers of a text: what a cell may hold, and where it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from py_core.grammar.expressions import Automaton
from py_core.tools.number_text import NUMBER, plain_digits, shape_of

_SPACE = re.compile(r"\s+")
_GROUPED = r"\d{1,3}(?:[ \u00a0\u202f'\u2019]\d{3})+(?:[.,]\d+)?(?!\d)"
_NUMERAL = re.compile(rf"(?<![\w.,])[-+\u2212]?(?:{_GROUPED}|{NUMBER})(?![^\W_])")
_GROUPS = re.compile("[ \u00a0\u202f'\u2019]")
_MONTH = (
    r"(?:Jan(?:uary|uar)?|Feb(?:ruary|ruar)?|Mar(?:ch)?|M\u00e4rz|Apr(?:il)?|Ma[iy]|Jun[ei]?|Jul[iy]?|Aug(?:ust)?|"
    r"Sept?(?:ember)?|O[ck]t(?:ober)?|Nov(?:ember)?|De[cz](?:ember)?)\b"
)
_DAY = r"(?<!\d)(?:0?[1-9]|[12]\d|3[01])"
_YEAR = r"(?:\.?,? \d{4}\b)?"
_WEEKDAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|(?:Mon|Diens|Donners|Frei|Sams|Sonn)tag|Mittwoch"
_DATE = re.compile(
    rf"\b(?:{_WEEKDAY})\b(?!,? (?:den |the )?\d)|"
    rf"{_DAY}(?:\.|st|nd|rd|th)?(?: of)? {_MONTH}{_YEAR}|\b{_MONTH}\.? {_DAY}(?:st|nd|rd|th)?\b{_YEAR}|"
    rf"{_DAY}[./]\s?(?:0?[1-9]|1[0-2])[./]\s?(?:\d{{4}}|\d\d)(?!\d)|(?<!\d)\d{{4}}-\d\d-\d\d(?!\d)"
)
"""A date that names a day: in digits, with a month in English or German, or a weekday without more."""
_EMAIL = re.compile(r"[\w+][\w.+-]{0,63}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,9}")
_PHONE = re.compile(r"(?<![\w.,/@-])(?:\+|\()?\d(?:[ ()/.-]{0,2}\d){4,14}(?![\w,@]|\.\d)")
_FORMS = {"date": _DATE, "email": _EMAIL, "phone": _PHONE}
_WIDE = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Letters of scripts that write no spaces between words."""
_INSIDE = frozenset(".@_+")
"""Signs between letters or digits that keep a word together: in an address, a version."""
_NOT_FIRST = frozenset(",;:.!?)]}>\u00bb\u201d\u2019")
_LEADS_ON = frozenset((
    "a", "an", "the", "of", "by", "at", "in", "on", "to", "for", "from", "with", "and", "or",
    "der", "die", "das", "den", "dem", "des", "ein", "eine", "von", "vom", "bis", "am", "im", "mit", "und", "oder",
))  # fmt: skip
"""Words that stand before another one: no stretch ends with them."""
_NOT_LAST = frozenset(",;:([{<\u00ab\u201e\u201c\u2018")


def of_kind(text: str, kind: str) -> list[tuple[int, int]]:
    """The characters [start, end) of each "date", "email" or "phone" number of 5 to 15 digits in a text."""
    spans = [found.span() for found in _FORMS[kind].finditer(text)]
    return [span for span in spans if kind != "phone" or not _DATE.fullmatch(text, *span)]


def without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text with paragraphs that end where a span was."""
    for start, end in sorted(spans, reverse=True):
        text = f"{text[:start]}\n\n{text[end:]}"
    return text


@dataclass(frozen=True)
class Numeral:
    """A number in a text, at the characters [start, end). values: how it reads in JSON, two if it is ambiguous."""

    start: int
    end: int
    values: tuple[str, ...]


def numerals(text: str) -> Iterator[Numeral]:
    """The numbers of a text, in its order. Digits that begin with a superfluous 0, such as 0170, are left out."""
    for found in _NUMERAL.finditer(text):
        minus = "-" if found[0][0] in "-\u2212" else ""
        digits = _GROUPS.sub("", found[0].lstrip("-+\u2212"))
        shape = shape_of(digits)
        points = {"no": "", "plain": ".", "either": ".,"}.get(shape, shape)
        if points:
            values = dict.fromkeys(minus + re.sub(r"^\.", "0.", plain_digits(digits, point)) for point in points)
            yield Numeral(found.start(), found.end(), tuple(values))


def stretches(text: str) -> Automaton:
    """The automaton of the words that stand together in a text, as inside of a JSON string, and of no words.

    Spaces and line breaks count as one space, and a stretch ends with its paragraph. A date stays whole. Each state
    stands for the places at which the same words end; most soon stand for a single one, so there are few more states
    than bytes.
    """
    plain = _SPACE.sub(lambda space: "\n" if space[0].count("\n") > 1 else " ", text.strip())
    data, starts, ends, breaks = bytearray(), list[int](), set[int](), set[int]()
    whole = {at for found in _DATE.finditer(plain) for at in range(found.start() + 1, found.end())}
    for at, char in enumerate(plain):
        if at not in whole and _begins(plain, at):
            starts.append(len(data))
        if char == "\n":
            breaks.add(len(data))
        data += json.dumps(char, ensure_ascii=False)[1:-1].encode()
        if at + 1 not in whole and _ends(plain, at):
            ends.add(len(data))
    numbers = {tuple(starts): 0}
    waiting, moves, accepting = [tuple(starts)], list[tuple[tuple[int, int, int], ...]](), {0}
    for places in waiting:  # it grows
        if numbers[places] and not ends.isdisjoint(places):
            accepting.add(numbers[places])
        by_byte: dict[int, list[int]] = {}
        for place in places:
            if place < len(data) and place not in breaks:
                by_byte.setdefault(data[place], []).append(place + 1)
        found = list[tuple[int, int, int]]()
        for byte, after in sorted(by_byte.items()):
            key = tuple(after)
            if key not in numbers:
                numbers[key] = len(numbers)
                waiting.append(key)
            found.append((byte, byte, numbers[key]))
        moves.append(tuple(found))
    return Automaton(tuple(moves), frozenset(accepting))


def places_of(text: str, words: str) -> list[tuple[int, int]]:
    """The characters [start, end) at which words stand in a text, as they are written, or else in capitals or without.
    Any space stands for any spaces."""
    pattern = r"\s+".join(re.escape(word) for word in words.split())
    for flags in (re.NOFLAG, re.IGNORECASE):
        spans = [found.span() for found in re.finditer(pattern, text, flags)] if pattern else []
        whole = [(start, end) for start, end in spans if not (_is_within(text, start) or _is_within(text, end))]
        if whole:
            return whole
    return []


def number_places(text: str, value: str) -> list[tuple[int, int]]:
    """The characters [start, end) at which a number stands in a text, however it is written."""
    wanted = Decimal(value)
    return [(one.start, one.end) for one in numerals(text) if any(Decimal(read) == wanted for read in one.values)]


def _begins(text: str, at: int) -> bool:
    char, before, further = text[at], text[at - 1 : at] if at else "", text[at - 2 : at - 1] if at > 1 else ""
    if char.isspace() or char in _NOT_FIRST or (char in _INSIDE and before.isalnum()):
        return False
    return not (_is_kept_together(further, before, char) or _is_within(text, at))


def _ends(text: str, at: int) -> bool:
    char, after, further = text[at], text[at + 1 : at + 2], text[at + 2 : at + 3]
    if char.isspace() or char in _NOT_LAST or (char in _INSIDE and after.isalnum()):
        return False
    if _is_kept_together(char, after, further) or _is_within(text, at + 1):
        return False
    return text[max(at - 8, 0) : at + 1].rpartition(" ")[2] not in _LEADS_ON


def _is_kept_together(one: str, between: str, other: str) -> bool:
    """True for a sign between two letters or digits that belong together, as in an address or a telephone number."""
    if one.isdigit() and other.isdigit() and between in (",", " "):
        return True
    return between in _INSIDE and one.isalnum() and other.isalnum()


def _is_within(text: str, at: int) -> bool:
    """True if the character at a place continues the word before it."""
    beside = text[max(at - 1, 0) : at + 1]
    return 0 < at < len(text) and beside.isalnum() and not _WIDE.search(beside)
