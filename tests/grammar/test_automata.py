"""Automata of expressions against the reference recognizer, Python's `re` and `json`."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from py_core.grammar.automata import (
    accepts,
    automaton_of,
    chars_automaton,
    difference,
    intersection,
    is_empty,
    minimized,
    union,
)
from py_core.grammar.characters import char_set
from py_core.grammar.expressions import (
    ANY_CHAR,
    EMPTY,
    NOTHING,
    Automaton,
    Chars,
    CharSet,
    Choice,
    Expression,
    Grammar,
    GrammarError,
    Joined,
    Literal,
    Repeat,
)
from tests.grammar.reference import ESCAPED_ALWAYS, can_begin, matches
from tests.random_examples import examples

EDGES = (
    0,
    8,
    0x1F,
    0x20,
    0x22,
    0x2F,
    0x5C,
    0x7F,
    0x80,
    0x7FF,
    0x800,
    0xD7FF,
    0xE000,
    0xFFFF,
    0x10000,
    0x103FF,
    0x10FFFF,
)
"""Characters beside which the way to write them changes."""
CODES = st.one_of(
    st.sampled_from(EDGES).flatmap(lambda code: st.integers(max(0, code - 2), min(0x10FFFF, code + 2))),
    st.integers(0, 0x10FFFF),
).filter(lambda code: not 0xD800 <= code <= 0xDFFF)
SETS = st.lists(st.tuples(CODES, CODES).map(sorted), max_size=4).map(
    lambda runs: char_set((first, last) for first, last in runs)
)
SMALL = st.recursive(
    st.one_of(
        st.sampled_from([Literal(b"a"), Literal(b"ab"), EMPTY, NOTHING]),
        st.builds(
            lambda allowed, least, more: Chars(allowed, least, None if more is None else least + more),
            st.sampled_from([((97, 97),), ((97, 98),), ((98, 99),)]),
            st.integers(0, 2),
            st.one_of(st.none(), st.integers(0, 2)),
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: Joined(tuple(items))),
        st.lists(inner, max_size=3).map(lambda items: Choice(tuple(items))),
        st.builds(
            lambda item, least, more: Repeat(item, least, None if more is None else least + more),
            inner,
            st.integers(0, 2),
            st.one_of(st.none(), st.integers(0, 2)),
        ),
    ),
    max_leaves=6,
)
TEXTS = ["".join(letters).encode() for length in range(5) for letters in product("abc", repeat=length)]


def written(character: str, way: int) -> bytes:
    """A character in one of the ways in which a JSON string may have it."""
    units = character.encode("utf-16-be")
    escaped = "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
    plain = json.dumps(character, ensure_ascii=False)[1:-1]
    return (plain, escaped, escaped.upper().replace("\\U", "\\u"), "\\/" if character == "/" else plain)[way].encode()


def in_set(allowed: CharSet, code: int) -> bool:
    return any(first <= code <= last for first, last in allowed)


@given(SETS, st.lists(CODES, min_size=1), st.integers(0, 3))
@example(ANY_CHAR, [0x41, 0x2F], 3)
@examples(200)
def test_a_character_is_accepted_in_each_of_its_spellings_if_it_is_of_the_set(
    allowed: CharSet, codes: list[int], way: int
) -> None:
    """Plain ASCII has no escapes in sets that have not all characters."""
    plain, in_json = chars_automaton(allowed, False), chars_automaton(allowed, True)
    for code in [*codes, *(edge for run in allowed for edge in run)]:
        assert accepts(plain, chr(code).encode()) == in_set(allowed, code)
        spelling = written(chr(code), way)
        assert json.loads(b'"' + spelling + b'"') == chr(code)
        is_plain = not in_set(ESCAPED_ALWAYS, code) and allowed != ANY_CHAR
        assert accepts(in_json, spelling) == (in_set(allowed, code) and not (is_plain and spelling[:1] == b"\\"))
    assert not any(automaton.moves[state] for automaton in (plain, in_json) for state in automaton.accepting)


@given(st.one_of(st.binary(max_size=12), st.text('\\u/"bnDdCc089aF\x00\x1f', max_size=12).map(str.encode)))
@example(b"\t")
@examples(400)
def test_the_characters_of_json_are_those_that_json_reads(data: bytes) -> None:
    try:
        read = json.loads(b'"' + data + b'"')
        read.encode()
    except (ValueError, UnicodeDecodeError):
        read = None
    every = automaton_of(Chars(ANY_CHAR, 0, None, True))
    assert accepts(every, data) == (read is not None)
    grammar = Grammar({"root": Chars(ANY_CHAR, 0, None, True)})
    assert matches(grammar, data) == (read is not None)
    assert all(can_begin(grammar, data[:end]) for end in range(len(data))) or read is None


@given(SMALL, st.binary(max_size=3))
@examples(300)
def test_an_expression_and_its_automaton_have_the_same_texts(expression: Expression, data: bytes) -> None:
    automaton = automaton_of(expression)
    smallest = minimized(automaton)
    grammar = Grammar({"root": expression})
    for text in (*TEXTS, data):
        assert accepts(automaton, text) == accepts(smallest, text) == matches(grammar, text)
    by_automaton = Grammar({"root": automaton})
    for text in TEXTS[:40]:
        assert can_begin(grammar, text) == can_begin(by_automaton, text)


@given(SMALL, SMALL)
@examples(200)
def test_sets_of_automata_are_those_of_their_texts(some: Expression, others: Expression) -> None:
    a, b = automaton_of(some), automaton_of(others)
    both, first, either = intersection(a, b), difference(a, b), union(a, b)
    for text in TEXTS:
        in_a, in_b = accepts(a, text), accepts(b, text)
        assert accepts(both, text) == (in_a and in_b)
        assert accepts(first, text) == (in_a and not in_b)
        assert accepts(either, text) == (in_a or in_b)
    assert is_empty(difference(both, a))
    assert is_empty(difference(minimized(either), either))
    assert is_empty(difference(either, minimized(either)))


def test_the_smallest_automaton_has_a_state_for_each_rest() -> None:
    words = Choice(tuple(Literal(word) for word in (b"cat", b"hat", b"mat", b"catfish")))
    assert len(minimized(automaton_of(words)).moves) == 10
    apart = Choice((Literal(b"axxb"), Literal(b"bxxa"), Literal(b"cxxb"), Literal(b"dxxxa")))
    assert len(minimized(automaton_of(apart)).moves) == 9
    assert minimized(automaton_of(NOTHING)) == Automaton(((),), frozenset())


def test_an_automaton_that_is_too_large_is_refused_at_once() -> None:
    for expression in (
        Repeat(EMPTY, 0, 10**9),
        Chars(ANY_CHAR, 10**9, None),
        Repeat(Repeat(Choice((Literal(b"ab"), Literal(b"a"))), 0, 10**6), 10**6, None),
        Joined((Chars(((97, 98),), 0, None), Literal(b"a"), Chars(((97, 98),), 20, 20))),
    ):
        with pytest.raises(GrammarError, match="more than 2,000 states"):
            automaton_of(expression)
