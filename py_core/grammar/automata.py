"""Deterministic automata of expressions, and their sets: common texts, differences, unions.

Each automaton that these functions return is trimmed: from each of its states a text can still be ended. The same
functions work on automata of characters, of which the runs are of code points; `encoded` writes those as bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache

from py_core.grammar.expressions import (
    ANY_CHAR,
    Automaton,
    Chars,
    CharSet,
    Choice,
    Expression,
    GrammarError,
    Joined,
    Literal,
    Reference,
    Repeat,
)
from py_core.grammar.forms import CharAutomaton

MOST_STATES = 2000
_WORK = 200
"""The runs that are looked at while an automaton is made are at most this many times its states."""

Run = tuple[int, int, int]
Runs = tuple[Run, ...]

_ESCAPED = {0x22: 0x22, 0x5C: 0x5C, 0x2F: 0x2F, 0x08: 0x62, 0x0C: 0x66, 0x0A: 0x6E, 0x0D: 0x72, 0x09: 0x74}
"""The byte after the backslash of each character that JSON has a short escape for."""
_RAW_IN_JSON: CharSet = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x10FFFF))
_MAY_BE_ESCAPED: CharSet = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x10FFFF))
"""Others are escaped only if any character may come: elsewhere `\\u0041` would be a second way to write each letter,
which nobody wants, and nothing could be forced."""
_ALL_CHARS = sum(last + 1 - first for first, last in ANY_CHAR)


class _Made:
    """The states that automata have had so far, in all: the time of an automaton goes with them."""

    states = 0


MADE = _Made()


def _too_large(most_states: int) -> GrammarError:
    return GrammarError(
        f"The expression needs an automaton of more than {most_states:,} states: make its repeats smaller."
    )


def _joined_runs(runs: Iterable[Run]) -> Runs:
    """The runs, sorted; neighbours with the same target become one."""
    found: list[Run] = []
    for first, last, target in sorted(runs):
        if found and found[-1][2] == target and found[-1][1] + 1 == first:
            found[-1] = (found[-1][0], last, target)
        else:
            found.append((first, last, target))
    return tuple(found)


# --- characters as bytes


def _within(runs: Runs, allowed: CharSet) -> Runs:
    """The parts of runs that lie in a set."""
    return tuple(
        (max(first, start), min(last, end), target)
        for first, last, target in runs
        for start, end in allowed
        if first <= end and last >= start
    )


def _digits(runs: Runs, size: int) -> list[tuple[int, int, Runs]]:
    """Numbers by their highest digit: runs of digits, and the runs of what is below each (0 to size - 1)."""
    found: dict[int, list[Run]] = {}
    whole: list[tuple[int, int, Runs]] = []
    for first, last, target in runs:
        high, below = divmod(first, size)
        end, rest = divmod(last, size)
        if high == end:
            if below or rest != size - 1:
                found.setdefault(high, []).append((below, rest, target))
                continue
        else:
            if below:
                found.setdefault(high, []).append((below, size - 1, target))
                high += 1
            if rest != size - 1:
                found.setdefault(end, []).append((0, rest, target))
                end -= 1
        if high <= end:
            whole.append((high, end, ((0, size - 1, target),)))
    whole.extend((digit, digit, tuple(parts)) for digit, parts in found.items())
    return whole


class _Encoder:
    """Makes the states of bytes that lie inside of characters, those behind a state first."""

    def __init__(self, in_json: bool) -> None:
        self.states: list[Runs] = []
        self._in_json = in_json
        self._made: dict[tuple[str, int, Runs], int] = {}
        self._by_moves: dict[Runs, int] = {}

    def moves(self, runs: Runs) -> Runs:
        """The moves by bytes of a state with these moves by characters."""
        if not self._in_json:
            return _joined_runs(self._utf8(runs))
        is_any = sum(last + 1 - first for first, last, _ in runs) == _ALL_CHARS
        escaped = runs if is_any else _within(runs, _MAY_BE_ESCAPED)
        raw = self._utf8(_within(runs, _RAW_IN_JSON))
        return _joined_runs([*raw, (0x5C, 0x5C, self._state("escape", 0, escaped))] if escaped else raw)

    def _state(self, kind: str, depth: int, runs: Runs) -> int:
        key = (kind, depth, runs)
        if (made := self._made.get(key)) is None:
            maker: Callable[[int, Runs], Iterable[Run]] = getattr(self, f"_{kind}")
            moves = _joined_runs(maker(depth, runs))
            if (made := self._by_moves.get(moves)) is None:
                made = self._by_moves[moves] = len(self.states)
                self.states.append(moves)
            self._made[key] = made
        return made

    def _utf8(self, runs: Runs) -> Iterable[Run]:
        for first, last, target in runs:
            if first < 0x80:
                yield first, min(last, 0x7F), target
        start = 0x80
        for length, lead, end in ((1, 0xC0, 0x7FF), (2, 0xE0, 0xFFFF), (3, 0xF0, 0x10FFFF)):
            inside = tuple((max(f, start), min(t, end), target) for f, t, target in runs if f <= end and t >= start)
            for digit, until, below in _digits(inside, 64**length):
                yield lead + digit, lead + until, self._state("tail", length, below)
            start = end + 1

    def _tail(self, depth: int, runs: Runs) -> Iterable[Run]:
        if depth == 1:
            return [(0x80 + first, 0x80 + last, target) for first, last, target in runs]
        return [
            (0x80 + first, 0x80 + last, self._state("tail", depth - 1, below))
            for first, last, below in _digits(runs, 64 ** (depth - 1))
        ]

    def _escape(self, _depth: int, runs: Runs) -> Iterable[Run]:
        found = [
            (letter, letter, target)
            for code, letter in _ESCAPED.items()
            for first, last, target in runs
            if first <= code <= last
        ]
        units = [(first, min(last, 0xFFFF), target) for first, last, target in runs if first <= 0xFFFF]
        above = tuple((max(first, 0x10000) - 0x10000, last - 0x10000, at) for first, last, at in runs if last > 0xFFFF)
        for first, last, below in _digits(above, 0x400):
            units.append((0xD800 + first, 0xD800 + last, self._state("second", 0, below)))
        return [*found, (0x75, 0x75, self._state("hex", 4, tuple(sorted(units))))]

    def _second(self, _depth: int, runs: Runs) -> Iterable[Run]:
        return [(0x5C, 0x5C, self._state("second_u", 0, runs))]

    def _second_u(self, _depth: int, runs: Runs) -> Iterable[Run]:
        below = tuple((0xDC00 + first, 0xDC00 + last, target) for first, last, target in runs)
        return [(0x75, 0x75, self._state("hex", 4, below))]

    def _hex(self, depth: int, runs: Runs) -> Iterable[Run]:
        parts: list[Run]
        if depth == 1:
            parts = list(runs)
        else:
            parts = [
                (first, last, self._state("hex", depth - 1, below))
                for first, last, below in _digits(runs, 16 ** (depth - 1))
            ]
        for first, last, target in parts:
            if first < 10:
                yield 0x30 + first, 0x30 + min(last, 9), target
            if last >= 10:
                for letter in (0x41, 0x61):
                    yield letter + max(first, 10) - 10, letter + last - 10, target


@lru_cache(1024)
def _spelling(runs: Runs, in_json: bool) -> tuple[Runs, ...]:
    """The states inside of the characters of a state's runs, and last the moves of that state.

    The targets of the runs are -1, -2 and so on, and stay that; others are places in what is returned.
    """
    encoder = _Encoder(in_json)
    moves = encoder.moves(runs)
    return (*encoder.states, moves)


def encoded(chars: Automaton, in_json: bool, most_states: int = 5 * MOST_STATES) -> Automaton:
    """An automaton of characters as one of bytes: UTF-8, or as inside of a JSON string with all its escapes.

    The states of the first keep their numbers; after them come those that lie inside of a character.
    Raises GrammarError if it has more than `most_states`.
    """
    moves: list[Runs] = [()] * len(chars.moves)
    known: dict[Runs, int] = {}
    for state, runs in enumerate(chars.moves):
        if not runs:
            continue
        names: dict[int, int] = {}
        named = tuple((first, last, names.setdefault(target, -1 - len(names))) for first, last, target in runs)
        numbers = {name: target for target, name in names.items()}
        *inside, own = _spelling(named, in_json)
        for place, spelled in enumerate(inside):
            made = tuple((first, last, numbers[target]) for first, last, target in spelled)
            if made not in known:
                if len(moves) >= most_states:
                    raise _too_large(most_states)
                known[made] = len(moves)
                moves.append(made)
            numbers[place] = known[made]
        moves[state] = tuple((first, last, numbers[target]) for first, last, target in own)
    MADE.states += len(moves)
    return Automaton(tuple(moves), chars.accepting)


@lru_cache(512)
def chars_automaton(allowed: CharSet, in_json: bool) -> Automaton:
    """The automaton of exactly one character of a set. No accepting state has moves: no text begins another."""
    if not allowed:
        return Automaton(((),), frozenset())
    return encoded(Automaton((tuple((first, last, 1) for first, last in allowed), ()), frozenset({1})), in_json)


# --- expressions as automata


class _Nfa:
    """A nondeterministic automaton that grows by expressions.

    of_chars: None for an automaton of bytes, otherwise one of characters, all with this `in_json`.
    """

    def __init__(self, most_states: int, of_chars: bool | None = None) -> None:
        self.moves: list[list[Run]] = []
        self.empties: list[list[int]] = []
        self._most_states = most_states
        self._of_chars = of_chars

    def state(self) -> int:
        if len(self.moves) >= 10 * self._most_states:
            raise _too_large(self._most_states)
        self.moves.append([])
        self.empties.append([])
        return len(self.moves) - 1

    def add(self, expression: Expression, start: int) -> int:
        """The state at which the texts of an expression end that begin at a state."""
        if isinstance(expression, Literal):
            for value in self._values(expression.text):
                start = self._move(start, ((value, value),))
            return start
        if isinstance(expression, Chars):
            if self._of_chars is None:
                automaton = chars_automaton(expression.allowed, expression.in_json)
                return self._repeat(lambda at: self.add(automaton, at), expression.least, expression.most, start)
            if self._of_chars != expression.in_json:
                raise _MixedError
            return self._repeat(lambda at: self._move(at, expression.allowed), expression.least, expression.most, start)
        if isinstance(expression, Joined):
            for item in expression.items:
                start = self.add(item, start)
            return start
        if isinstance(expression, Choice):
            end = self.state()
            for item in expression.items:
                begin = self.state()
                self.empties[start].append(begin)
                self.empties[self.add(item, begin)].append(end)
            return end
        if isinstance(expression, Repeat):
            return self._repeat(lambda at: self.add(expression.item, at), expression.least, expression.most, start)
        if isinstance(expression, Reference):
            raise GrammarError(f"The rule {expression.name} cannot be a part of an automaton.")
        if isinstance(expression, CharAutomaton) is (self._of_chars is None):
            raise _MixedError
        return self.add_automaton(expression.automaton if isinstance(expression, CharAutomaton) else expression, start)

    def add_automaton(self, automaton: Automaton, start: int) -> int:
        """The state at which its texts end; the automaton must be of the symbols of this one."""
        states = [self.state() for _ in automaton.moves]
        end = self.state()
        self.empties[start].append(states[0])
        for state, runs in zip(states, automaton.moves, strict=True):
            self.moves[state] = [(first, last, states[target]) for first, last, target in runs]
        for state in automaton.accepting:
            self.empties[states[state]].append(end)
        return end

    def _values(self, text: bytes) -> Iterable[int]:
        if self._of_chars is None:
            return text
        if self._of_chars and text:
            raise _MixedError
        try:
            return map(ord, text.decode())
        except UnicodeDecodeError:
            raise _MixedError from None

    def _move(self, start: int, allowed: CharSet) -> int:
        end = self.state()
        self.moves[start].extend((first, last, end) for first, last in allowed)
        return end

    def _repeat(self, add: Callable[[int], int], least: int, most: int | None, start: int) -> int:
        for _ in range(least):
            start = add(self._after(start))
        if most is None:
            loop = self._after(start)
            self.empties[add(loop)].append(loop)
            return loop
        end = self.state()
        for _ in range(most - least):
            self.empties[start].append(end)
            start = add(self._after(start))
        self.empties[start].append(end)
        return end

    def _after(self, state: int) -> int:
        """A new state behind another, so that what loops there does not loop through what came before."""
        new = self.state()
        self.empties[state].append(new)
        return new

    def determinized(self, end: int) -> Automaton:
        """The automaton of the texts from state 0 to the end."""
        moves, empties = self.moves, self.empties
        budget = _WORK * self._most_states
        closures: dict[int, frozenset[int]] = {}

        def closure(state: int) -> frozenset[int]:
            """The states with moves that are reached without a symbol, and the end."""
            if (known := closures.get(state)) is None:
                seen, waiting = {state}, [state]
                while waiting:
                    for other in empties[waiting.pop()]:
                        if other not in seen:
                            seen.add(other)
                            waiting.append(other)
                known = closures[state] = frozenset(one for one in seen if moves[one] or one == end)
            return known

        numbers: dict[frozenset[int], int] = {}
        order: list[frozenset[int]] = []
        by_targets: dict[frozenset[int], int] = {}

        def number(targets: frozenset[int]) -> int:
            if (known := by_targets.get(targets)) is None:
                members = frozenset().union(*map(closure, targets))
                if (known := numbers.get(members)) is None:
                    if len(order) >= self._most_states:
                        raise _too_large(self._most_states)
                    known = numbers[members] = len(order)
                    order.append(members)
                by_targets[targets] = known
            return known

        number(frozenset({0}))
        result: list[Runs] = []
        for members in order:
            runs = [run for member in members for run in moves[member]]
            budget -= len(runs) + len(members)
            if budget < 0:
                raise _too_large(self._most_states)
            result.append(
                _joined_runs((first, last, number(frozenset(targets))) for first, last, targets in _split(runs))
            )
        return trimmed(Automaton(tuple(result), frozenset(at for at, members in enumerate(order) if end in members)))


class _MixedError(Exception):
    """An expression has no automaton of characters."""


def _split(runs: list[Run]) -> list[tuple[int, int, list[int]]]:
    """Runs that may overlap as runs apart from each other, each with all targets."""
    if len(runs) == 1:
        first, last, target = runs[0]
        return [(first, last, [target])]
    starts: dict[int, list[int]] = defaultdict(list)
    ends: dict[int, list[int]] = defaultdict(list)
    for first, last, target in runs:
        starts[first].append(target)
        ends[last + 1].append(target)
    found = []
    counts: dict[int, int] = {}
    before = 0
    for edge in sorted({*starts, *ends}):
        if counts:
            found.append((before, edge - 1, list(counts)))
        for target in ends.get(edge, ()):
            if counts[target] == 1:
                del counts[target]
            else:
                counts[target] -= 1
        for target in starts.get(edge, ()):
            counts[target] = counts.get(target, 0) + 1
        before = edge
    return found


def trimmed(automaton: Automaton) -> Automaton:
    """The same texts with the states alone that are reached and from which a text can be ended; state 0 stays."""
    MADE.states += len(automaton.moves)
    sources: list[list[int]] = [[] for _ in automaton.moves]
    reached, waiting = {0}, [0]
    while waiting:
        state = waiting.pop()
        for _, _, target in automaton.moves[state]:
            sources[target].append(state)
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    waiting = [state for state in automaton.accepting if state in reached]
    kept = set(waiting)
    while waiting:
        for source in sources[waiting.pop()]:
            if source not in kept:
                kept.add(source)
                waiting.append(source)
    if 0 not in kept:
        return Automaton(((),), frozenset())
    if len(kept) == len(automaton.moves):
        return automaton
    numbers = {state: number for number, state in enumerate(sorted(kept))}
    return Automaton(
        tuple(
            tuple((first, last, numbers[target]) for first, last, target in automaton.moves[state] if target in kept)
            for state in numbers
        ),
        frozenset(numbers[state] for state in automaton.accepting if state in kept),
    )


def automaton_of(expression: Expression, most_states: int = MOST_STATES) -> Automaton:
    """The automaton of the bytes of an expression without References.

    Raises GrammarError if it has more than `most_states` states, repeats written out.
    """
    if isinstance(expression, Automaton):
        return expression
    nfa = _Nfa(most_states)
    return nfa.determinized(nfa.add(expression, nfa.state()))


def char_automaton_of(expression: Expression, in_json: bool, most_states: int = MOST_STATES) -> Automaton | None:
    """The automaton of characters of an expression of Chars with this `in_json`; None if it has other parts."""
    nfa = _Nfa(most_states, in_json)
    try:
        return nfa.determinized(nfa.add(expression, nfa.state()))
    except _MixedError:
        return None


# --- sets of texts


def _product(
    some: Automaton, others: Automaton, accepts: Callable[[bool, bool], bool], keeps: bool, most_states: int
) -> Automaton:
    """Both automata at once. keeps: the first goes on alone if the second has no move."""
    numbers: dict[tuple[int, int], int] = {(0, 0): 0}
    order = [(0, 0)]
    moves: list[Runs] = []

    def number(pair: tuple[int, int]) -> int:
        if (known := numbers.get(pair)) is None:
            if len(order) >= 2 * most_states:
                raise _too_large(most_states)
            known = numbers[pair] = len(order)
            order.append(pair)
        return known

    for state, other in order:
        found: list[Run] = []
        theirs = others.moves[other] if other >= 0 else ()
        at = 0
        for first, last, target in some.moves[state]:
            while at < len(theirs) and theirs[at][1] < first:
                at += 1
            by = at
            while by < len(theirs) and theirs[by][0] <= last:
                start, end, goal = theirs[by]
                if keeps and start > first:
                    found.append((first, start - 1, number((target, -1))))
                first = max(first, start)
                found.append((first, min(last, end), number((target, goal))))
                first = min(last, end) + 1
                by += 1
            if keeps and first <= last:
                found.append((first, last, number((target, -1))))
        moves.append(_joined_runs(found))
    accepting = frozenset(
        at for at, (state, other) in enumerate(order) if accepts(state in some.accepting, other in others.accepting)
    )
    result = trimmed(Automaton(tuple(moves), accepting))
    if len(result.moves) > most_states:
        raise _too_large(most_states)
    return result


def intersection(some: Automaton, others: Automaton, most_states: int = MOST_STATES) -> Automaton:
    """The texts that both have. Raises GrammarError if they need more than `most_states`."""
    return _product(some, others, lambda a, b: a and b, False, most_states)


def difference(some: Automaton, others: Automaton, most_states: int = MOST_STATES) -> Automaton:
    """The texts of the first that the second does not have. Raises GrammarError as `intersection` does."""
    return _product(some, others, lambda a, b: a and not b, True, most_states)


def union(*automata: Automaton, most_states: int = MOST_STATES) -> Automaton:
    """The texts that any of them has. Raises GrammarError as `intersection` does."""
    nfa = _Nfa(most_states)
    start = nfa.state()
    end = nfa.state()
    for automaton in automata:
        nfa.empties[nfa.add_automaton(automaton, start)].append(end)
    return nfa.determinized(end)


def erased(automaton: Automaton, symbol: int, most_states: int = MOST_STATES) -> Automaton:
    """The texts without the places of a symbol, which no run has with others. Raises GrammarError as `intersection`."""
    nfa = _Nfa(most_states, False)
    start = nfa.state()
    first = len(nfa.moves)
    end = nfa.add_automaton(automaton, start)
    for state in range(first, end):
        for run in [run for run in nfa.moves[state] if run[0] == symbol]:
            nfa.moves[state].remove(run)
            nfa.empties[state].append(run[2])
    return nfa.determinized(end)


def is_empty(automaton: Automaton) -> bool:
    """True if it has no text."""
    return not trimmed(automaton).accepting


def accepts(automaton: Automaton, text: Iterable[int]) -> bool:
    """True if the bytes (or the code points, for an automaton of characters) are a text of it."""
    state = 0
    for value in text:
        for first, last, target in automaton.moves[state]:
            if first <= value <= last:
                state = target
                break
        else:
            return False
    return state in automaton.accepting


def minimized(automaton: Automaton) -> Automaton:
    """The automaton of the same texts with the fewest states (Hopcroft's partition)."""
    automaton = trimmed(automaton)
    if not automaton.accepting:
        return automaton
    edges = sorted({edge for runs in automaton.moves for first, last, _ in runs for edge in (first, last + 1)})
    index = {edge: at for at, edge in enumerate(edges)}
    sources: list[list[tuple[int, int]]] = [[] for _ in automaton.moves]
    for state, runs in enumerate(automaton.moves):
        for first, last, target in runs:
            sources[target].extend((label, state) for label in range(index[first], index[last + 1]))
    blocks = [set(automaton.accepting), set(range(len(automaton.moves))) - automaton.accepting]
    blocks = [block for block in blocks if block]
    block_of = [0] * len(automaton.moves)
    for at, block in enumerate(blocks):
        for state in block:
            block_of[state] = at
    waiting = set(range(len(blocks)))
    while waiting:
        by_label: dict[int, list[int]] = defaultdict(list)
        for state in blocks[waiting.pop()]:
            for label, source in sources[state]:
                by_label[label].append(source)
        for found in by_label.values():
            touched: dict[int, set[int]] = defaultdict(set)
            for source in found:
                touched[block_of[source]].add(source)
            for at, part in touched.items():
                rest = blocks[at]
                if len(part) == len(rest):
                    continue
                rest -= part
                smaller = part if len(part) <= len(rest) else rest
                blocks[at] = rest if smaller is part else part
                for state in smaller:
                    block_of[state] = len(blocks)
                waiting.add(len(blocks))
                blocks.append(smaller)
    numbers = {block_of[0]: 0}
    order = [0]
    moves: list[Runs] = []
    for state in order:
        found_runs = []
        for first, last, target in automaton.moves[state]:
            block_at = block_of[target]
            if block_at not in numbers:
                numbers[block_at] = len(order)
                order.append(target)
            found_runs.append((first, last, numbers[block_at]))
        moves.append(_joined_runs(found_runs))
    return Automaton(tuple(moves), frozenset(at for at, state in enumerate(order) if state in automaton.accepting))
