"""Makes the nodes of a grammar that the kernel follows (web/kernels/grammar/grammar.h says what each means)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from py_core.grammar.automata import chars_automaton
from py_core.grammar.expressions import (
    Automaton,
    Chars,
    Choice,
    Expression,
    Grammar,
    GrammarError,
    Joined,
    Literal,
    Reference,
    Repeat,
)

_LITERAL, _TERMINAL, _CHOICE, _CALL, _RETURN, _LOOP = range(6)
_NONE = 0xFFFFFFFF
_MOST_COUNT = 0x7FFFFFFF
_MOST_NODES = 1_000_000
_FEW = 4
"""More literals than that in one choice become an automaton."""
_RETURNS = 0
"""The node that ends a rule."""

NumberOf = Callable[[Automaton, bool], int]
"""Brings an automaton to the kernel. Returns its number there. The bool is True for one that many grammars have."""


@dataclass(frozen=True)
class Program:
    """nodes: five numbers each; `first` is the one that begins. targets: of choices. texts: of literals."""

    nodes: array[int]
    targets: array[int]
    texts: bytes
    first: int


def program_of(grammar: Grammar, number_of: NumberOf) -> Program:
    """Raises GrammarError if the grammar is too large, or refers to a rule that it does not have."""
    try:
        return _Maker(grammar, number_of).made()
    except RecursionError:
        raise GrammarError("The grammar nests too deep: divide it into rules.") from None


class _Maker:
    def __init__(self, grammar: Grammar, number_of: NumberOf) -> None:
        self._grammar, self._number_of = grammar, number_of
        self._nodes, self._targets, self._texts = array("I", (_RETURN, 0, 0, 0, 0)), array("I"), bytearray()
        self._places: dict[bytes, int] = {}
        self._rules: dict[str, int] = {}
        self._known: dict[tuple[int, ...], int] = {}
        self._choices: dict[tuple[int, ...], int] = {}
        self._repeats: dict[tuple[int, int], int] = {}
        self._waiting: list[str] = []

    def made(self) -> Program:
        first = self._rule(self._grammar.root)
        while self._waiting:
            name = self._waiting.pop()
            begins = self._node(self._grammar.rules[name], _RETURNS)
            self._nodes[5 * self._rules[name] + 1] = len(self._targets)
            self._targets.append(begins)
        return Program(self._nodes, self._targets, bytes(self._texts), first)

    def _add(self, *node: int) -> int:
        """Return the number of a node, the same for the same node: what goes on alike is one way to go on."""
        if node not in self._known:
            self._known[node] = self._new(*node)
        return self._known[node]

    def _new(self, *node: int) -> int:
        number = len(self._nodes) // 5
        if number >= _MOST_NODES:
            raise GrammarError(f"The grammar is too large: it takes more than {_MOST_NODES:,} nodes.")
        self._nodes.extend(node)
        return number

    def _rule(self, name: str) -> int:
        """Return the node at which a rule begins: a choice of one, whose target is made later."""
        if name not in self._rules:
            if name not in self._grammar.rules:
                raise GrammarError(f"The grammar has no rule {name}: write it, or correct the name.")
            self._rules[name] = self._new(_CHOICE, 0, 1, 0, 0)
            self._waiting.append(name)
        return self._rules[name]

    def _node(self, one: Expression, then: int) -> int:
        """Return the node at which an expression begins that goes on with the node `then`."""
        match one:
            case Literal(text):
                return self._literal(text, then)
            case Chars(allowed, least, most, in_json):
                return self._terminal(chars_automaton(allowed, in_json), least, most, then)
            case Joined(items):
                for item in reversed(items):
                    then = self._node(item, then)
                return then
            case Choice(items):
                return self._choice(items, then)
            case Repeat(Chars(allowed, 1, 1, in_json), least, most):
                return self._terminal(chars_automaton(allowed, in_json), least, most, then)
            case Repeat():
                # Optional properties follow each other behind each that may be the first.
                place = id(one), then
                if place not in self._repeats:
                    self._repeats[place] = self._repeat(one, then)
                return self._repeats[place]
            case Reference(name):
                return self._add(_CALL, self._rule(name), then, 0, 0)
            case Automaton():
                return self._add(_TERMINAL, self._number_of(one, one.is_common), 1, 1, then)

    def _repeat(self, one: Repeat, then: int) -> int:
        if (one.least, one.most) == (1, 1):
            return self._node(one.item, then)
        body = self._node(one.item, _RETURNS)
        return then if one.most == 0 else self._add(_LOOP, body, _count(one.least), _count(one.most), then)

    def _literal(self, text: bytes, then: int) -> int:
        if not text:
            return then
        if text not in self._places:
            self._places[text] = len(self._texts)
            self._texts += text
        return self._add(_LITERAL, self._places[text], len(text), then, 0)

    def _terminal(self, automaton: Automaton, least: int, most: int | None, then: int) -> int:
        if most == 0:
            return then
        return self._add(_TERMINAL, self._number_of(automaton, True), _count(least), _count(most), then)

    def _choice(self, items: Sequence[Expression], then: int) -> int:
        if len(items) == 1:
            return self._node(items[0], then)
        texts = tuple(item.text for item in items if isinstance(item, Literal))
        if len(texts) > _FEW:
            others = [item for item in items if not isinstance(item, Literal)]
            items = [*others, words_automaton(texts)]
            if not others:
                return self._node(items[0], then)
        targets = tuple(dict.fromkeys(self._node(item, then) for item in items))
        if len(targets) == 1:
            return targets[0]
        if targets not in self._choices:
            self._choices[targets] = len(self._targets)
            self._targets.extend(targets)
        return self._add(_CHOICE, self._choices[targets], len(targets), 0, 0)


def _count(number: int | None) -> int:
    return _NONE if number is None else min(number, _MOST_COUNT)


@lru_cache(256)
def words_automaton(texts: tuple[bytes, ...]) -> Automaton:
    """Return the automaton of exactly these texts: a state for each of their beginnings."""
    states: list[dict[int, int]] = [{}]
    accepting = set()
    for text in texts:
        state = 0
        for byte in text:
            state = states[state].setdefault(byte, len(states))
            if state == len(states):
                states.append({})
        accepting.add(state)
    moves = tuple(tuple((byte, byte, to) for byte, to in sorted(state.items())) for state in states)
    return Automaton(moves, frozenset(accepting))
