"""Strings: what schemas say of them, and the expressions of their texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from py_core.grammar.expressions import (
    ANY_CHAR,
    EMPTY,
    Chars,
    CharSet,
    Choice,
    Expression,
    GrammarError,
    Joined,
    Literal,
)
from py_core.grammar.forms import choice, joined
from py_core.grammar.regex import Pattern as SearchedPattern
from py_core.grammar.regex import has_match, no_texts, regex_expression, texts_expression
from py_core.grammar.schema.formats import format_pattern
from py_core.grammar.schema.values import common_values

_EVERYTHING = frozenset({"", "^", "$", ".*", "^.*", ".*$", "(.*)", "[\\s\\S]*", "^[\\s\\S]*$"})
"""Patterns that are found in each text."""
_LONGEST_NAME = 100
_MOST_LEFT_OUT = 1000
_MOST_LENGTH = 1_000_000


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression that is found in a text (whole: the whole text is), and where it stands."""

    source: str
    whole: bool = False
    path: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings by what holds of all of them: the length in characters, patterns that match and that do not match, the
    only ones, and those that are left out.
    """

    least: int = 0
    most: int | None = None
    patterns: tuple[Pattern, ...] = ()
    others: tuple[Pattern, ...] = ()
    values: tuple[str, ...] | None = None
    without: frozenset[str] = frozenset()

    def has(self, text: str) -> bool:
        """True if a text is one of them."""
        return (
            len(text) >= self.least
            and (self.most is None or len(text) <= self.most)
            and text not in self.without
            and (self.values is None or text in self.values)
            and all(matches(pattern, text) for pattern in self.patterns)
            and not any(matches(pattern, text) for pattern in self.others)
        )


ALL_STRINGS = Strings()


def common_strings(one: Strings, other: Strings) -> Strings | None:
    """The common part; None if that is certainly nothing."""
    if one is ALL_STRINGS or other is ALL_STRINGS:
        return other if one is ALL_STRINGS else one
    if (values := common_values(one, other)) is not None:
        return Strings(values=values) if values else None
    ends = [end for end in (one.most, other.most) if end is not None]
    found = Strings(
        max(one.least, other.least),
        min(ends, default=None),
        tuple(dict.fromkeys(one.patterns + other.patterns)),
        tuple(dict.fromkeys(one.others + other.others)),
        None,
        one.without | other.without,
    )
    if found.most is not None and found.least > found.most:
        return None
    return None if any(pattern in found.others for pattern in found.patterns) else found


def no_strings(strings: Strings) -> bool:
    """True if there are none; False also if that is not known."""
    if strings.values is not None:
        return not strings.values
    if len(strings.patterns) + len(strings.others) < 2:
        return False
    return no_texts(tuple(map(_searched, strings.patterns)), tuple(map(_searched, strings.others)))


_PLAIN_NAME = re.compile(r"[ -~]*")
_PLAIN_PATTERN = re.compile(
    r"\^?(?:(?:[\w :/@,;=<>~!#%&'\"`-]|\\[.\-/$^*+?()|{}\[\]dw]|\[[\w .:/@,$-]+\]|\.)[+*]?){0,40}\$?", re.ASCII
)
"""Patterns that Python's own regular expressions match in the same way, and fast."""


@lru_cache(4096)
def matches(pattern: Pattern, text: str) -> bool:
    """True if a pattern matches a text."""
    if not pattern.whole:
        if pattern.source in _EVERYTHING:
            return True
        if (
            _PLAIN_NAME.fullmatch(text)
            and _PLAIN_PATTERN.fullmatch(pattern.source)
            and len(re.findall(r"[*+]", pattern.source)) < 3
        ):
            return re.search(pattern.source, text, re.ASCII) is not None
    return has_match(_searched(pattern), text)


def _searched(pattern: Pattern) -> SearchedPattern:
    return SearchedPattern(pattern.source, not pattern.whole)


def pattern_of(source: str, path: str) -> Pattern | None:
    """The pattern of a schema; None if each text matches. Raises GrammarError for what is not supported."""
    if source in _EVERYTHING:
        return None
    pattern = Pattern(source, path=path)
    regex_expression(source, in_json=True, search=True)
    return pattern


def pattern_of_format(name: str, path: str) -> Pattern | None:
    """The pattern of a format; None if the format is an annotation."""
    source = format_pattern(name)
    return None if source is None else Pattern(source, True, path)


# --- expressions

ANY_TEXT = Chars(ANY_CHAR, 0, None, in_json=True)
_QUOTE = Literal(b'"')


@lru_cache(1024)
def string_expression(strings: Strings) -> Expression:
    """The texts of strings, with their quotes."""
    if strings.values is not None:
        return choice(map(string_literal, strings.values))
    return joined((_QUOTE, string_inside(strings), _QUOTE))


@lru_cache(8192)
def string_literal(value: str, after: str = "") -> Expression:
    """One string as `json.dumps` writes it, also with escapes for what is not ASCII."""
    try:
        text = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise GrammarError(f"{value!r} has half of a character") from None
    if len(text) == len(value) + 2:
        return Literal(text + after.encode())
    return choice((Literal(text + after.encode()), Literal(json.dumps(value).encode() + after.encode())))


@lru_cache(1024)
def string_inside(strings: Strings) -> Expression:
    """The text between the quotes, for strings that are not listed."""
    if strings.least > _MOST_LENGTH:
        raise GrammarError(f"texts of {strings.least:,} characters and more are too long")
    without = frozenset(
        text for text in strings.without if len(text) >= strings.least
        and (strings.most is None or len(text) <= strings.most)
    )  # fmt: skip
    if not strings.patterns and not strings.others:
        if not without:
            return Chars(ANY_CHAR, strings.least, strings.most, in_json=True)
        if strings.least == 0 and strings.most is None and max(map(len, without)) <= _LONGEST_NAME:
            return other_texts(without)
        if sum(map(len, without)) > _MOST_LEFT_OUT:
            raise GrammarError("too many or too long texts are left out")
    return texts_expression(
        tuple(map(_searched, strings.patterns)),
        tuple(map(_searched, strings.others)),
        least=strings.least,
        most=strings.most,
        without=without,
        in_json=True,
    )


@lru_cache(128)
def other_texts(texts: frozenset[str]) -> Expression:
    """All texts but these: the trie of these by characters, and what leaves it."""
    return _others(sorted(texts), 0)


def _others(texts: list[str], depth: int) -> Expression:
    """The texts that may follow the first `depth` characters, which all these sorted texts share."""
    ends = bool(texts) and len(texts[0]) == depth
    groups: dict[str, list[str]] = {}
    for text in texts[ends:]:
        groups.setdefault(text[depth], []).append(text)
    parts: list[Expression] = [] if ends else [EMPTY]
    parts.append(Joined((Chars(_complement(groups), in_json=True), ANY_TEXT)))
    for char, group in groups.items():
        point = ord(char)
        parts.append(Joined((Chars(((point, point),), in_json=True), _others(group, depth + 1))))
    return Choice(tuple(parts))


def _complement(chars: Iterable[str]) -> CharSet:
    return complement(tuple(sorted(map(ord, chars))))


@lru_cache(4096)
def complement(points: tuple[int, ...]) -> CharSet:
    """All characters but these."""
    found, begin = [], 0
    for point in (*points, 0xD800):
        if point >= 0xD800 and begin < 0xD800:
            if begin <= 0xD7FF:
                found.append((begin, 0xD7FF))
            begin = 0xE000
        if point < 0xD800 or point > 0xDFFF:
            if begin < point:
                found.append((begin, point - 1))
            begin = point + 1
    found.append((begin, 0x10FFFF))
    return tuple(found)
