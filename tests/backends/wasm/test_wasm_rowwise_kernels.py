"""WASM kernels that work on single rows of values, against numpy on random shapes, in both builds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from py_core.backends.numpy import rows as reference
from py_core.backends.sampling_state import state_bytes
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.wasm.layout import EXTENT, GATES, Arena, Op, OpKind, RowsLayer, StateLayer, real_bits
from tests.backends.convolved_rows import PAGES, ROWS, ConvolvedRows
from tests.backends.delta_rows import DeltaRows
from tests.backends.wasm.kernel_memory import ROOM, few, put, read, run

seeds = st.integers(0, 2**32 - 1)
rows, widths = st.integers(1, ROOM), st.integers(1, 70)
SENTINEL = np.float32(7)


def made(host: WasmtimeHost, arena: Arena, op: Op, out: int, m: int, width: int) -> np.ndarray:
    """The output of an operation over m rows of `out`, which held SENTINEL. It must not touch the rows after them."""
    run(host, arena, [op], state_bytes([(0, 3 * row, 0) for row in range(m)]))
    got = read(host, out, ROOM, width)
    assert (got[m:] == SENTINEL).all()
    return got[:m]


def room(host: WasmtimeHost, arena: Arena, width: int) -> int:
    return put(host, arena, np.full((ROOM, width), SENTINEL))


@given(m=rows, width=st.integers(1, 70), joined=st.booleans(), activation=st.sampled_from(list(GATES)), seed=seeds)
@few
def test_glu_equals_numpy_for_any_gate(host, m, width, joined, activation, seed) -> None:
    rng, arena = np.random.default_rng(seed), Arena()
    gate, up = (rng.standard_normal((ROOM, width)).astype(np.float32) for _ in range(2))
    gate *= 10 ** rng.uniform(-4, 4, gate.shape).astype(np.float32)
    if joined:
        first = put(host, arena, np.concatenate([gate, up], axis=1))
        places = (first, first + 4 * width, 2 * width)
    else:
        places = (put(host, arena, gate), put(host, arena, up), width)
    out = room(host, arena, width)
    got = made(host, arena, Op(OpKind.GLU, (*places, out, width, GATES[activation], places[2])), out, m, width)
    expected = reference.glu(gate.astype(np.float64), up.astype(np.float64), activation)[:m]
    # The reference's own 1 + tanh loses digits if the gate is far below 0.
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-6)


@given(m=rows, heads=st.integers(1, 5), size=st.sampled_from([4, 24, 64]), adds=st.booleans(), seed=seeds)
@few
def test_norms_of_heads_equal_numpy_and_are_added(host, m, heads, size, adds, seed) -> None:
    rng, arena, width = np.random.default_rng(seed), Arena(), heads * size
    x = (rng.standard_normal((ROOM, width)) * rng.uniform(0.01, 9)).astype(np.float32)
    weight = rng.standard_normal(size).astype(np.float32)
    out = room(host, arena, width)
    arguments = (put(host, arena, x), heads, size, put(host, arena, weight), real_bits(1e-4), out, int(adds), 0)
    got = made(host, arena, Op(OpKind.NORM, arguments), out, m, width)
    expected = reference.rms_norm(x[:m], weight, 1e-4) + (SENTINEL if adds else 0)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@given(m=rows, heads=st.integers(1, 5), pairs=st.integers(0, 8), interleaved=st.booleans(), seed=seeds)
@few
def test_rope_rotates_the_first_values_of_each_head(host, m, heads, pairs, interleaved, seed) -> None:
    rng, arena, width = np.random.default_rng(seed), Arena(), heads * 16
    x = rng.standard_normal((ROOM, width)).astype(np.float32)
    table = rng.standard_normal((3 * ROOM, pairs, 2)).astype(np.float32)
    out = room(host, arena, width)
    arguments = (put(host, arena, x), out, heads, 16, put(host, arena, table), pairs, int(interleaved))
    got = made(host, arena, Op(OpKind.ROPE, arguments), out, m, width)
    expected = reference.rope(x[:m], table[3 * np.arange(m)], heads, interleaved)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@given(m=rows, width=widths, seed=seeds)
@few
def test_add_equals_numpy(host, m, width, seed) -> None:
    rng, arena = np.random.default_rng(seed), Arena()
    a, b = (rng.standard_normal((ROOM, width)).astype(np.float32) for _ in range(2))
    out = room(host, arena, width)
    op = Op(OpKind.ADD, (put(host, arena, a), put(host, arena, b), out, width))
    np.testing.assert_array_equal(made(host, arena, op, out, m, width), (a + b)[:m])


@given(m=rows, width=widths, cap=st.sampled_from([0.5, 5.0, 30.0]), seed=seeds)
@few
def test_soft_cap_equals_numpy_for_any_number(host, m, width, cap, seed) -> None:
    rng, arena = np.random.default_rng(seed), Arena()
    x = rng.standard_normal((ROOM, width)).astype(np.float32)
    x *= 10 ** rng.uniform(-4, 30, x.shape).astype(np.float32)
    out = room(host, arena, width)
    op = Op(OpKind.SOFT_CAP, (put(host, arena, x), out, width, real_bits(cap), 0))
    got = made(host, arena, op, out, m, width)
    np.testing.assert_allclose(got, reference.soft_cap(x, cap)[:m], rtol=0, atol=3e-7 * cap)


@given(pieces=st.integers(1, 9), words=st.integers(1, 20), gap=st.integers(0, 3), other=st.integers(0, 3), seed=seeds)
@few
def test_pieces_are_copied_and_nothing_between_them(host, pieces, words, gap, other, seed) -> None:
    arena, size = Arena(), 4 * words
    source = np.random.default_rng(seed).standard_normal((pieces, size + 4 * gap)).astype(np.float32)
    room = np.full((pieces, size + 4 * other), SENTINEL, np.float32)
    target = put(host, arena, room)
    strides = (4 * size, 4 * source.shape[1], pieces, 4 * room.shape[1])
    run(host, arena, [Op(OpKind.COPY, (put(host, arena, source), target, *strides))], state_bytes([(0, 0, 0)]))
    got = read(host, target, *room.shape)
    np.testing.assert_array_equal(got[:, :size], source[:, :size])
    assert (got[:, size:] == SENTINEL).all()


@given(m=rows, quads=st.integers(1, 9), taps=st.integers(2, 8), gated=st.booleans(), seed=seeds)
@few
def test_a_convolution_equals_numpy_and_keeps_its_rows(host, m, quads, taps, gated, seed) -> None:
    rng, arena, width = np.random.default_rng(seed), Arena(), 4 * quads
    drawn = ConvolvedRows.drawn(rng, m, width, taps, gated)
    pages = put(host, arena, np.concatenate([drawn.kept, drawn.kept]))  # whole extents
    layer = RowsLayer(pages, ROWS, EXTENT * ROWS * width * 4, put(host, arena, drawn.table), PAGES).packed()
    weight = put(host, arena, drawn.weight.reshape(quads, 4, taps).swapaxes(1, 2))
    out = room(host, arena, width)
    arguments = (put(host, arena, drawn.x), out, width, weight, taps, put(host, arena, layer), int(gated))
    run(host, arena, [Op(OpKind.SHORT_CONV, arguments)], state_bytes([(0, *place) for place in drawn.places]))
    expected, kept = drawn.expected()
    got = read(host, out, ROOM, width)
    np.testing.assert_allclose(got[:m], expected, rtol=1e-5, atol=1e-5)
    assert (got[m:] == SENTINEL).all()
    np.testing.assert_array_equal(read(host, pages, *kept.shape), kept)


@given(key_heads=st.integers(1, 2), grouped=st.integers(1, 2), size=st.sampled_from([16, 48]), seed=seeds)
@settings(few, max_examples=5)
def test_a_delta_rule_equals_numpy_over_pages(host, key_heads, grouped, size, seed) -> None:
    rng, arena = np.random.default_rng(seed), Arena()
    drawn = DeltaRows.drawn(rng, key_heads, key_heads * grouped, size)
    heads, width, expected = drawn.heads, drawn.heads * size, drawn.expected()
    offset = 64  # of this layer in a state
    states = [put(host, arena, bytes(offset) + state.tobytes()) for state in drawn.states]
    table = put(host, arena, np.array(states, np.uint32)[drawn.table])
    layer = put(host, arena, StateLayer(offset, table, PAGES).packed())
    weights, out = (put(host, arena, drawn.rate), put(host, arena, drawn.bias)), room(host, arena, width)
    places = [put(host, arena, np.zeros((ROOM, values.shape[2]), np.float32)) for values in (drawn.x, drawn.alpha)]
    places.append(put(host, arena, np.zeros((ROOM, heads), np.float32)))
    for placed in drawn.passes(rng, ROOM):
        for address, values in zip(places, (drawn.x, drawn.alpha, drawn.beta), strict=True):
            host.write(address, drawn.of(values, placed).tobytes())
        op = Op(OpKind.DELTA_RULE, (*places, out, key_heads, heads, size, *weights, layer))
        run(host, arena, [op], state_bytes([(0, *place) for place in placed]))
        got, wanted = read(host, out, ROOM, width), drawn.of(expected, placed)
        np.testing.assert_allclose(got[: len(placed)], wanted, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@given(m=rows, heads=st.integers(1, 5), size=st.sampled_from([1, 6, 16]), second=st.booleans(), seed=seeds)
@few
def test_every_second_head_is_taken(host, m, heads, size, second, seed) -> None:
    arena, width = Arena(), heads * size
    x, out = np.random.default_rng(seed).standard_normal((ROOM, 2 * width)).astype(np.float32), room(host, arena, width)
    got = made(host, arena, Op(OpKind.HALF, (put(host, arena, x), out, width, size, int(second))), out, m, width)
    np.testing.assert_array_equal(got, reference.half(x, size, second)[:m])


@given(m=rows, experts=st.integers(1, 40), used=st.integers(1, 8), normalized=st.booleans(), seed=seeds)
@few
def test_experts_are_chosen_and_mixed_as_in_numpy(host, m, experts, used, normalized, seed) -> None:
    rng, arena, used, width = np.random.default_rng(seed), Arena(), min(used, experts), 8
    logits = (rng.standard_normal((ROOM, experts)) * 3).astype(np.float32)
    logits[0] = logits[0, 0]  # among equals the first are chosen
    routed = room(host, arena, 2 * used)
    op = Op(OpKind.ROUTE, (put(host, arena, logits), routed, experts, used, int(normalized)))
    got, expected = made(host, arena, op, routed, m, 2 * used), reference.route(logits[:m], used, normalized)
    np.testing.assert_array_equal(got[:, :used], expected[:, :used])
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    x, out = rng.standard_normal((ROOM, used * width)).astype(np.float32), room(host, arena, width)
    got = made(host, arena, Op(OpKind.MIX, (put(host, arena, x), routed, out, used, width)), out, m, width)
    np.testing.assert_allclose(got, reference.mix(x[:m], expected, used), rtol=1e-4, atol=1e-5)
