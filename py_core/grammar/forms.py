"""Expressions put together in their simplest form, and what is known of them without an automaton."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from py_core.grammar.characters import char_set
from py_core.grammar.expressions import (
    ANY_CHAR,
    EMPTY,
    NOTHING,
    Automaton,
    Chars,
    Choice,
    Expression,
    Joined,
    Literal,
    Reference,
    Repeat,
)

_COMPARED = 4
"""An item is compared with at most so many others that look like it, so that a choice costs no square of its items."""
ANYTHING = Chars(ANY_CHAR, 0, None)
"""Any text, as UTF-8."""


@dataclass(frozen=True, slots=True)
class CharAutomaton:
    """An automaton of characters among expressions of characters, until `regex.py` writes it as bytes."""

    automaton: Automaton


def joined(items: Iterable[Expression]) -> Expression:
    """The items one after the other; neighbours of the same characters become one run of them."""
    found: list[Expression] = []
    for item in items:
        for part in item.items if isinstance(item, Joined) else (item,):
            before = found[-1] if found else None
            if isinstance(part, Literal):
                if isinstance(before, Literal):
                    found[-1] = Literal(before.text + part.text)
                elif part.text:
                    found.append(part)
                continue
            if isinstance(part, Chars):
                if isinstance(before, Chars) and before.allowed == part.allowed and before.in_json == part.in_json:
                    most = None if before.most is None or part.most is None else before.most + part.most
                    found[-1] = Chars(part.allowed, before.least + part.least, most, part.in_json)
                    continue
            elif isinstance(part, Choice) and not part.items:
                return NOTHING
            found.append(part)
    return EMPTY if not found else found[0] if len(found) == 1 else Joined(tuple(found))


def choice(items: Iterable[Expression]) -> Expression:
    """Any of the items, most of them once; those of single characters become one."""
    items = list(items)
    if len(items) == 1:
        return items[0]
    found: list[Expression] = []
    chars: dict[bool, list[tuple[int, int]]] = {}
    alike: dict[object, list[Expression]] = {}
    for item in items:
        for part in item.items if isinstance(item, Choice) else (item,):
            if isinstance(part, Chars) and part.least == part.most == 1:
                chars.setdefault(part.in_json, []).extend(part.allowed)
                continue
            known = alike.setdefault(_likeness(part), [])
            if part not in known:
                found.append(part)
                if len(known) < _COMPARED:
                    known.append(part)
    found.extend(Chars(char_set(runs), 1, 1, in_json) for in_json, runs in chars.items())
    return found[0] if len(found) == 1 else Choice(tuple(found))


def _likeness(expression: Expression) -> object:
    """The same for equal expressions, and made without a look into what lies deep in them."""
    if isinstance(expression, Joined | Choice):
        first = expression.items[0] if expression.items else EMPTY
        return len(expression.items), _likeness(first) if isinstance(first, Literal | Chars) else type(first)
    if isinstance(expression, Repeat | Automaton):
        return type(expression)
    return expression


def repeat(item: Expression, least: int, most: int | None) -> Expression:
    """An item again and again; a repeat of a repeat becomes one if each number in between is possible."""
    if most == 0 or item == EMPTY or (item == NOTHING and least == 0):
        return EMPTY
    if (least == 1 and most == 1) or item == NOTHING:
        return item
    if isinstance(item, Choice) and EMPTY in item.items:
        return repeat(choice(part for part in item.items if part != EMPTY), 0, most)
    if isinstance(item, Chars | Repeat):
        low, high = item.least, item.most
        # k of them are k * low to k * high: there is no gap up to k + 1 if k * (high - low) >= low - 1
        if least == most or low <= 1 or (least > 0 and (high is None or least * (high - low) >= low - 1)):
            fewest, greatest = least * low, None if most is None or high is None else most * high
            if isinstance(item, Chars):
                return Chars(item.allowed, fewest, greatest, item.in_json)
            return repeat(item.item, fewest, greatest)
    return Repeat(item, least, most)


def lengths(expression: Expression) -> tuple[int, int | None]:
    """The fewest and the most characters of the texts; the most is None if there is no bound or none is known."""
    if isinstance(expression, Chars | Repeat):
        low, high = lengths(expression.item) if isinstance(expression, Repeat) else (1, 1)
        return low * expression.least, None if expression.most is None or high is None else high * expression.most
    if isinstance(expression, Literal):
        length = sum(byte & 0xC0 != 0x80 for byte in expression.text)
        return length, length
    if isinstance(expression, Joined | Choice):
        bounds = [lengths(item) for item in expression.items if item != NOTHING] or [(0, 0)]
        lows, highs = zip(*bounds, strict=True)
        most, least = (sum, sum) if isinstance(expression, Joined) else (max, min)
        return least(lows), None if None in highs else most(highs)
    return (_shortest(expression.automaton) if isinstance(expression, CharAutomaton) else 0), None


def _shortest(automaton: Automaton) -> int:
    """The symbols of the shortest text; of an automaton without texts, the steps that can be made."""
    steps, reached, now = 0, {0}, {0}
    while now and not now & automaton.accepting:
        now = {target for state in now for _, _, target in automaton.moves[state]} - reached
        reached |= now
        steps += 1
    return steps


def nullable(expression: Expression, empty: Collection[str] = ()) -> bool:
    """True if the empty text is one of its texts. empty: the rules of which it is one."""
    if isinstance(expression, Reference):
        return expression.name in empty
    if isinstance(expression, Chars):
        return expression.least == 0
    if isinstance(expression, Literal):
        return not expression.text
    if isinstance(expression, Joined):
        return all(nullable(item, empty) for item in expression.items)
    if isinstance(expression, Choice):
        return any(nullable(item, empty) for item in expression.items)
    if isinstance(expression, Repeat):
        return expression.least == 0 or nullable(expression.item, empty)
    if isinstance(expression, CharAutomaton):
        expression = expression.automaton
    return isinstance(expression, Automaton) and 0 in expression.accepting
