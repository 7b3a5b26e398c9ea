"""Texts that make a backtracking regular expression slow: for each repeat, a prefix that leads there and many
repetitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

END = "\n\0!"
CHARACTERS = " a0.-\nA#"
"""Characters that are tried for a set, besides its own."""
LARGE = 50
"""A repeat of this number and more counts as endless."""
KINDS = {
    op.CATEGORY_SPACE: re.compile(r"\s"),
    op.CATEGORY_NOT_SPACE: re.compile(r"\S"),
    op.CATEGORY_DIGIT: re.compile(r"\d"),
    op.CATEGORY_NOT_DIGIT: re.compile(r"\D"),
    op.CATEGORY_WORD: re.compile(r"\w"),
    op.CATEGORY_NOT_WORD: re.compile(r"\W"),
}


def pumped(pattern: str, flags: int = 0) -> list[tuple[str, str]]:
    """The prefix of each repeat of a pattern, and the repeated text. With `END` after it nothing matches.

    Raises:
        re.error: Python does not know this syntax.
    """
    return list(dict.fromkeys(_repeats(list(_parser.parse(pattern, flags)), "")))


def _repeats(items: list[Any], before: str) -> Iterator[tuple[str, str]]:
    for index, (kind, value) in enumerate(items):
        lead = before + _example(items[:index])
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            _, most, inner = value
            if most is op.MAXREPEAT or most >= LARGE:
                single = inner[0] if len(inner) == 1 else (None, None)
                several = _members(single[1]) if single[0] is op.IN else CHARACTERS if single[0] is op.ANY else ()
                yield from ((lead, one) for one in several or [_example(inner)] if one)
            yield from _repeats(list(inner), lead)
        elif kind is op.SUBPATTERN:
            yield from _repeats(list(value[3]), lead)
        elif kind is op.ATOMIC_GROUP:
            yield from _repeats(list(value), lead)
        elif kind is op.BRANCH:
            for branch in value[1]:
                yield from _repeats(list(branch), lead)
        elif kind in (op.ASSERT, op.ASSERT_NOT):
            yield from _repeats(list(value[1]), lead)


def _example(items: Any) -> str:
    """A text that these items match, or nearly."""
    return "".join(_example_of(kind, value) for kind, value in items)


def _example_of(kind: Any, value: Any) -> str:
    if kind is op.LITERAL:
        return chr(value)
    if kind in (op.ANY, op.NOT_LITERAL):
        return "x"
    if kind is op.IN:
        return next(iter(_members(value)), "")
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        return _example(value[2]) * value[0]
    if kind is op.SUBPATTERN:
        return _example(value[3])
    if kind is op.ATOMIC_GROUP:
        return _example(value)
    return _example(value[1][0]) if kind is op.BRANCH else ""


def _members(items: list[Any]) -> list[str]:
    """Some characters of a set."""
    own = [chr(value if kind is op.LITERAL else value[0]) for kind, value in items if kind in (op.LITERAL, op.RANGE)]
    negated = any(kind is op.NEGATE for kind, _ in items)
    return [one for one in dict.fromkeys([*CHARACTERS, *own]) if any(_holds(*item, one) for item in items) != negated]


def _holds(kind: Any, value: Any, character: str) -> bool:
    if kind is op.LITERAL:
        return ord(character) == value
    if kind is op.RANGE:
        return value[0] <= ord(character) <= value[1]
    return kind is op.CATEGORY and bool(KINDS[value].match(character))
