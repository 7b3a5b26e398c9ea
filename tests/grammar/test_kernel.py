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


def check_moves(opened: OpenGrammar, state: int, found: set[int]) -> None:
    """Check that the tokens of a state lead where the kernel says."""
    mask, kept, exits = opened.moves(state, 9)
    assert np.array_equal(mask, opened.mask(state))
    keeps = set(np.flatnonzero(np.unpackbits(kept.view(np.uint8), bitorder="little")).tolist())
    leaves = dict(exits)
    assert len(leaves) == len(exits) <= 9
    for token in [*sorted(keeps)[:: 1 + len(keeps) // 40], *leaves]:
        assert token in found
        assert opened.after_token(state, token) == leaves.get(token, state)
    assert not keeps & leaves.keys()
    assert state not in leaves.values()
    if len(found) <= 9:
        assert found == keeps | leaves.keys()


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
            check_moves(opened, state, found)
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
    few = kernel.open(Grammar({"root": Chars(ANY_CHAR, 0, 2)}))
    assert {len(TOKENS[n].decode()) for n in allowed(few, few.begins) if TOKENS[n].isascii()} == {1, 2}


DIGITS, LETTERS_AND_LONG, NO_A = (
    ((48, 57),),
    ((65, 90), (97, 122), (128, 0xD7FF), (0xE000, 0x10FFFF)),
    ((0, 96), (98, 0xD7FF)),
)
ANY = Chars(ANY_CHAR, 0, None, True)
WIDE: list[Expression] = [
    Joined((Choice((Chars(DIGITS, 0, None), Chars(LETTERS_AND_LONG, 0, None))), Chars(((0x4E00, 0x1FFFF),)))),
    Joined((Choice((Literal(b"aZ"), Chars(NO_A, 1, 1, True))), ANY, Literal(b'"'))),
    Joined((Chars(ANY_CHAR, 1, 2), Choice((Literal(b"1"), Chars(LETTERS_AND_LONG, 1, 2), Literal(b"11"))))),
    Repeat(Choice((Chars(LETTERS_AND_LONG), Literal(b"1a"))), 1, None),
    Repeat(Choice((Chars(ANY_CHAR, 1, 1, True), Literal(b'"Z'))), 1, 2),
    Joined((Chars(LETTERS_AND_LONG, 0, 2), Chars(DIGITS, 0, None), ANY, Literal(b'"'))),
]
"""Behind their characters many others may come."""


def test_texts_of_some_kinds_of_characters_are_followed_as_byte_by_byte() -> None:
    parts = [*(char.encode() for char in 'aZ1 "é中😀'), b"\xe4", b"\xb8\xad"]
    tokens = [b"".join(some) for length in (1, 2) for some in itertools.product(parts, repeat=length)]
    tokens += [b"8a", b"aaa", b"aZ1a", *map(bytes, itertools.product(b"1Z ", repeat=4))]
    kernel = open_kernel(tokens)
    for expression in WIDE:
        grammar = Grammar({"root": expression})
        opened = kernel.open(grammar)
        for text in (b"", b"a", "é".encode()):
            state, _ = opened.after_bytes(opened.begins, text)
            if state is not None:
                wanted = {n for n, token in enumerate(tokens) if can_begin(grammar, text + token)}
                assert allowed(opened, state, len(tokens)) == wanted, text
                check_moves(opened, state, wanted)


def test_a_mask_that_takes_long_is_kept_for_its_grammar_and_state_only() -> None:
    tokens = [bytes(text) for text in itertools.product(b"abcdefghijkl", repeat=3)]
    kernel = open_kernel(tokens)
    for last in b"fgfg":
        some = Chars(((ord("a"), last),))
        opened = kernel.open(Grammar({"root": Joined((some, some, some, Chars(((97, 108),), 0, None)))}))
        for count in (3, 2, 1, 3):
            state, _ = opened.after_bytes(opened.begins, b"a" * (3 - count))
            assert state is not None
            wanted = {n for n, token in enumerate(tokens) if max(token[:count]) <= last}
            assert allowed(opened, state, len(tokens)) == wanted


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


def test_an_automaton_of_more_states_than_16_bits_number_is_refused(kernel: GrammarKernel) -> None:
    kernel.open(Grammar({"root": Automaton((((97, 97, 1),), ()), frozenset({1}))}))
    steps = tuple(((97, 97, state + 1),) for state in range(70_000))
    with pytest.raises(GrammarError, match="make it simpler"):
        kernel.open(Grammar({"root": Automaton((*steps, ()), frozenset({len(steps)}))}))


def test_what_is_closed_makes_room(kernel: GrammarKernel) -> None:
    def grown() -> int:
        for _ in range(20):
            opened = kernel.open(Grammar({"root": Chars(((97, 98),), 0, None)}))
            opened.mask(opened.begins)
            opened.close()
        return kernel.memory_bytes

    assert grown() == grown()


def test_sets_of_characters_make_room_if_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("py_core.grammar.kernel._MOST_AUTOMATA", 5)
    kernel = open_kernel(TOKENS)

    def grown(first: int) -> int:
        kept = kernel.open(Grammar({"root": Chars(((97, first),), in_json=True)}))
        for last in range(first, first + 20):
            kernel.open(Grammar({"root": Chars(((97, 97), (0x100, last)), in_json=True)})).close()
        assert {TOKENS[n] for n in allowed(kept, kept.begins)} >= {b"a", b"b"}
        kept.close()
        return kernel.memory_bytes

    assert grown(0x1000) == grown(0x1100)


def test_what_is_known_of_places_is_forgotten_if_it_is_too_much() -> None:
    """Each place in each of these runs has a mask of its own."""
    kernel = open_kernel([number.to_bytes(3) for number in range(0x610000, 0x650000)])
    masks = dict[int, np.ndarray]()
    for last in [*range(98, 112), 98]:
        opened = kernel.open(Grammar({"root": Chars(((97, last),), 0, 250)}))
        state: int | None = opened.begins
        for count in range(240):
            assert state is not None
            mask = opened.mask(state)
            if not count:
                assert np.array_equal(masks.setdefault(last, mask), mask)
            state, _ = opened.after_bytes(state, b"a")
        opened.close()
    assert kernel.memory_bytes < 160 << 20


def test_more_than_a_thousand_ways_at_a_time_are_followed() -> None:
    """Each of many loops may take the next character."""
    tokens = [bytes(text) for text in itertools.product(b"ab", repeat=8)]
    kernel = open_kernel([*tokens, b"aac", b"ca"])
    ways = tuple(Chars(((97, 98),), 0, 40) for _ in range(60))
    opened = kernel.open(Grammar({"root": Joined((*ways, Literal(b"c")))}))
    state, _ = opened.after_bytes(opened.begins, b"a" * 20)
    assert state is not None
    assert allowed(opened, state, len(tokens) + 2) == set(range(len(tokens) + 1))
