"""The grammars' kernel allows exactly the tokens with which a text can go on, by the reference recognizer."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.building import kernels
from py_core.grammar.expressions import (
    ANY_CHAR,
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
from py_core.grammar.kernel import GrammarKernel, OpenGrammar
from py_core.grammar.wasmtime_kernel import WasmtimeGrammarHost
from tests.grammar.reference import can_begin, matches

LETTERS = b"ab\xc3\xa4"
TOKENS = [
    *(bytes(text) for length in (1, 2) for text in itertools.product(LETTERS, repeat=length)),
    *(
        b"aaaaaaa",
        b"aaa",
        "äb".encode() + b"b",
        b"abababababab",
        b"b" * 40,
        b'"',
        b'a"',
        b'a","b',
        b'\\"a',
        b"\\u00",
        b"e4",
        b'":"',
        b"",
        b"ab",
    ),
]
"""All short texts of a few bytes, whole characters or not; some long ones; none; and one text twice."""


def open_kernel(tokens: Sequence[bytes]) -> GrammarKernel:
    return GrammarKernel(WasmtimeGrammarHost(kernels.grammar_kernel_path()), tokens)


@pytest.fixture(scope="module")
def kernel() -> GrammarKernel:
    return open_kernel(TOKENS)


def allowed(opened: OpenGrammar, state: int, count: int = len(TOKENS)) -> set[int]:
    bits = np.unpackbits(opened.mask(state).view(np.uint8), count=count, bitorder="little")
    return set(np.flatnonzero(bits).tolist())


SETS = st.sampled_from([((97, 97),), ((97, 98),), ((98, 98), (228, 228)), ANY_CHAR])
BOUNDS = st.tuples(st.integers(0, 3), st.none() | st.integers(0, 3)).map(
    lambda pair: (pair[0], None if pair[1] is None else pair[0] + pair[1])
)
LEAVES = st.one_of(
    st.sampled_from([b"", b"a", b"b", b"ab", "ä".encode(), b"ba", b'"']).map(Literal),
    st.builds(lambda chars, bounds, quoted: Chars(chars, *bounds, quoted), SETS, BOUNDS, st.booleans()),
    st.just(Reference("other")),
)


def inner(items: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    some = st.lists(items, max_size=4).map(tuple)
    return some.map(Joined) | some.map(Choice) | st.builds(lambda one, bounds: Repeat(one, *bounds), items, BOUNDS)


EXPRESSIONS = st.recursive(LEAVES, inner, max_leaves=8)
LEAFY = st.recursive(LEAVES.filter(lambda one: one != Reference("other")), inner, max_leaves=4)
OTHERS = LEAFY.map(lambda one: Choice((one, Joined((Literal(b"a"), Reference("other"), Literal(b"b"))))))


@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS, OTHERS, st.data())
def test_masks_are_what_a_text_can_go_on_with(
    kernel: GrammarKernel, root: Expression, other: Expression, data: st.DataObject
) -> None:
    grammar = Grammar({"root": root, "other": other})
    if not can_begin(grammar, b""):
        with pytest.raises(GrammarError, match="No text fits"):
            kernel.open(grammar)
        return
    opened = kernel.open(grammar)
    state, text = opened.begins, b""
    try:
        for _ in range(4):
            found = allowed(opened, state)
            assert found == {n for n, token in enumerate(TOKENS) if token and can_begin(grammar, text + token)}, text
            assert opened.may_end(state) == matches(grammar, text)
            forced = opened.forced(state)
            assert can_begin(grammar, text + forced)
            if not found:
                return
            token = data.draw(st.sampled_from(sorted(found)))
            after = opened.after_token(state, token)
            assert after is not None
            state, text = after, text + TOKENS[token]
            assert opened.after_bytes(opened.begins, text) == (state, len(text))
    finally:
        opened.close()


def test_a_token_leaves_a_run_of_characters_only_within_its_bounds(kernel: GrammarKernel) -> None:
    opened = kernel.open(Grammar({"root": Joined((Chars(((97, 98),), 2, 3), Literal(b'"')))}))
    short = {b"a", b"b", b"aa", b"ab", b"ba", b"bb"}
    assert {TOKENS[n] for n in allowed(opened, opened.begins)} == {*short, b"aaa"}
    state, _ = opened.after_bytes(opened.begins, b"b")
    assert state is not None
    assert {TOKENS[n] for n in allowed(opened, state)} == {*short, b'a"'}
    state, _ = opened.after_bytes(opened.begins, b"bab")
    assert state is not None
    assert {TOKENS[n] for n in allowed(opened, state)} == {b'"'}


def test_a_long_count_and_a_deep_stack_cost_little(kernel: GrammarKernel) -> None:
    counted = kernel.open(Grammar({"root": Joined((Chars(((97, 97),), 10**9, 10**9), Literal(b"b")))}))
    state, done = counted.after_bytes(counted.begins, b"a" * 5000)
    assert state is not None
    assert done == 5000
    assert {TOKENS[n] for n in allowed(counted, state)} == {b"a", b"aa", b"aaa", b"aaaaaaa"}
    nested = kernel.open(
        Grammar({"root": Choice((Literal(b"a"), Joined((Literal(b'"'), Reference("root"), Literal(b'"')))))})
    )
    state, _ = nested.after_bytes(nested.begins, b'"' * 3000 + b"a")
    assert state is not None
    assert {TOKENS[n] for n in allowed(nested, state)} == {b'"'}
    assert not nested.may_end(state)


def test_too_many_ways_are_refused_and_others_go_on(kernel: GrammarKernel) -> None:
    """Counters of loops in loops: each way to count is a state of its own."""
    wild: Expression = Choice((Literal(b"a"), Literal(b"aa")))
    for _ in range(3):
        wild = Repeat(wild, 0, 100)
    with pytest.raises(GrammarError, match="make it simpler"):
        kernel.open(Grammar({"root": Joined((wild, Literal(b"b")))}))
    other = kernel.open(Grammar({"root": Literal(b"ab")}))
    assert {TOKENS[n] for n in allowed(other, other.begins)} == {b"a", b"ab"}


def test_what_is_closed_makes_room(kernel: GrammarKernel) -> None:
    def grown() -> int:
        for _ in range(20):
            opened = kernel.open(Grammar({"root": Chars(((97, 98),), 0, None)}))
            opened.mask(opened.begins)
            opened.close()
        return kernel.memory_bytes

    assert grown() == grown()


def test_more_than_a_thousand_ways_at_a_time_are_followed() -> None:
    """Each of many loops may take the next character."""
    tokens = [bytes(text) for text in itertools.product(b"ab", repeat=8)]
    kernel = open_kernel([*tokens, b"aac", b"ca"])
    ways = tuple(Chars(((97, 98),), 0, 40) for _ in range(60))
    opened = kernel.open(Grammar({"root": Joined((*ways, Literal(b"c")))}))
    state, _ = opened.after_bytes(opened.begins, b"a" * 20)
    assert state is not None
    assert allowed(opened, state, len(tokens) + 2) == set(range(len(tokens) + 1))
