"""Single WASM kernels against numpy on random shapes, in both builds."""

from __future__ import annotations

import asyncio
import dataclasses

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from py_core.backends.numpy import rows as reference
from py_core.backends.sampling_state import RING, ROW_BYTES, STATE_HEADER, state_bytes
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.wasm.layout import (
    ACTIVATIONS,
    BAND_ROWS,
    MATRIX_KINDS,
    Arena,
    Barrier,
    Epilogue,
    MatrixKind,
    Mode,
    Op,
    OpKind,
    activation_bytes,
    matrix_bytes,
    program_bytes,
    real_bits,
)  # fmt: skip
from py_core.formats.quantization import FORMATS, dequantize, quantize
from py_core.sampling import SamplingParams, apply_penalties, sample
from tests.backends.wasm.kernel_memory import RELATIVE, ROOM, few, put, read, run

every_format = pytest.mark.parametrize("form", sorted(MATRIX_KINDS))


def matrix(host: WasmtimeHost, arena: Arena, w: bytes, form: str, rows: int, columns: int) -> int:
    """A repacked matrix, in two jobs if it has enough rows."""
    data = put(host, arena, bytes(matrix_bytes(FORMATS[form], rows, columns)))
    row_bytes = len(w) // rows
    cut = rows // 8 * 4
    for first, last in ((0, cut), (cut, rows)):
        if last > first:
            source = put(host, arena, w[first * row_bytes : last * row_bytes])
            host._first.call("repack", FORMATS[form].ggml_type, source, data, first, last - first, columns)
    return put(host, arena, np.array([MATRIX_KINDS[form], rows, columns, data], np.uint32))


@every_format
@given(
    mode=st.sampled_from([Mode.PRECISE, Mode.FAST]), n=st.integers(1, 90), blocks=st.integers(1, 7),
    m=st.integers(1, ROOM), epilogue=st.sampled_from(Epilogue), offset=st.integers(0, 2), norm=st.booleans(),
    biased=st.booleans(), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
@settings(few, max_examples=5)
def test_quantize_and_linear_equal_numpy(host, form, mode, n, blocks, m, epilogue, offset, norm, biased, seed) -> None:
    rng = np.random.default_rng(seed)
    k, offset = max(32, FORMATS[form].block_size) * blocks, 4 * offset
    gated = epilogue in ACTIVATIONS.values()
    if gated:
        n = -(-n // BAND_ROWS) * BAND_ROWS  # gates and ups are joined in whole bands of rows
    rows = 2 * n if gated else n
    w = quantize(rng.standard_normal((rows, k)).astype(np.float32), FORMATS[form])
    values = dequantize(w, FORMATS[form], (rows, k))
    x = rng.standard_normal((ROOM, k)).astype(np.float32)
    weight = rng.standard_normal(k).astype(np.float32)
    stride = -(-n // 4) * 4 + offset + 4
    y = rng.standard_normal((ROOM, stride)).astype(np.float32)
    used = Mode.FLOAT if MATRIX_KINDS[form] >= MatrixKind.FLOAT32 else mode
    arena = Arena()
    address, out = put(host, arena, x), put(host, arena, y)
    one, many = arena.take(activation_bytes(k, 1) + 64), arena.take(activation_bytes(k, ROOM))
    norm_address = put(host, arena, weight) if norm else 0
    bias, cap = 4 * rng.standard_normal(rows).astype(np.float32), 5.0
    bias_address = put(host, arena, bias) if biased else 0
    ops = [
        Op(OpKind.QUANTIZE, (address, k, norm_address, real_bits(1e-5), one, 0, many, ROOM, used, arena.take(k * 4), 0),
           Barrier.MANY_ROWS),
        Op(OpKind.LINEAR,
           (matrix(host, arena, w, form, rows, k), out, stride, offset, epilogue, one, 0, many, ROOM, used,
            bias_address, real_bits(cap))),
    ]  # fmt: skip
    run(host, arena, ops, state_bytes([(0, row, 0) for row in range(m)]))
    prepared = reference.rms_norm(x, weight, 1e-5) if norm else x
    product = prepared[:m].astype(np.float64) @ values.T.astype(np.float64) + (bias if biased else 0)
    expected = y.astype(np.float64)
    for activation, number in ACTIVATIONS.items():
        if epilogue == number:
            product = reference.glu(*np.split(product, 2, axis=1), activation)
    if epilogue == Epilogue.SOFT_CAP:
        product = reference.soft_cap(product, cap)
    added = expected[:m, offset : offset + n] if epilogue == Epilogue.RESIDUAL else 0
    expected[:m, offset : offset + n] = product + added
    # An activation's error is at most half a step of its block; errors of a row add up like a random walk.
    step = {Mode.FAST: 1 / 127, Mode.PRECISE: 1 / 16256, Mode.FLOAT: 1e-6}[used]
    bound = step * np.abs(prepared).max() * np.abs(values).max() * np.sqrt(k) * (80 if gated else 1)
    np.testing.assert_allclose(read(host, out, ROOM, stride), expected, rtol=1e-4, atol=bound + 1e-5)
    if m * n >= 32:  # fewer may all be near zero
        error = read(host, out, ROOM, stride) - expected
        assert np.linalg.norm(error) < RELATIVE[used] * (2 if gated else 1) * np.linalg.norm(product)
    untouched = np.ones(y.shape, bool)
    untouched[:m, offset : offset + n] = False
    np.testing.assert_array_equal(read(host, out, ROOM, stride)[untouched], y[untouched])


@given(
    form=st.sampled_from(["Q4_0", "Q8_0", "Q6_K", "F16"]), mode=st.sampled_from([Mode.PRECISE, Mode.FAST]),
    bands=st.integers(1, 3), m=st.integers(1, ROOM), experts=st.integers(1, 9), used=st.integers(1, 4),
    shared=st.booleans(), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
@settings(few, max_examples=20)
def test_each_row_is_multiplied_by_its_experts(host, form, mode, bands, m, experts, used, shared, seed) -> None:
    rng, arena, used = np.random.default_rng(seed), Arena(), min(used, experts)
    k, n, slots = max(32, FORMATS[form].block_size), 16 * bands, 1 if shared else used
    w = quantize(rng.standard_normal((experts * n, k)).astype(np.float32), FORMATS[form])
    values = dequantize(w, FORMATS[form], (experts, n, k))
    x, y = (rng.standard_normal((ROOM, width)).astype(np.float32) for width in (slots * k, used * n))
    routed = reference.route(rng.standard_normal((ROOM, experts)).astype(np.float32), used, True)
    mode = Mode.FLOAT if MATRIX_KINDS[form] >= MatrixKind.FLOAT32 else mode
    out = put(host, arena, y)
    one, many = arena.take(activation_bytes(k, 1) + 64), arena.take(activation_bytes(k, ROOM * slots))
    activations = (one, 0, many, ROOM * slots, mode)
    place = (put(host, arena, x), k, 0, 0)
    matrix_of_all = matrix(host, arena, w, form, experts * n, k)
    ops = [
        Op(OpKind.QUANTIZE, (*place, *activations, arena.take(k * 4), 0, slots)),
        Op(OpKind.EXPERT_LINEAR, (matrix_of_all, out, put(host, arena, routed), used, n, slots, *activations)),
    ]
    run(host, arena, ops, state_bytes([(0, row, 0) for row in range(m)]))
    got, expected = read(host, out, ROOM, used * n), reference.expert_linear(x[:m], routed[:m], values, used)
    assert np.linalg.norm(got[:m] - expected) < RELATIVE[mode] * np.linalg.norm(expected)
    np.testing.assert_array_equal(got[m:], y[m:])


@every_format
@given(rows=st.integers(1, 40), blocks=st.integers(1, 3), m=st.integers(1, ROOM), seed=st.integers(0, 2**32 - 1))
@settings(few, max_examples=3)
def test_embedding_gives_the_rows_of_tokens(host, form, rows, blocks, m, seed) -> None:
    rng = np.random.default_rng(seed)
    k = max(32, FORMATS[form].block_size) * blocks
    w = quantize(rng.standard_normal((rows, k)).astype(np.float32), FORMATS[form])
    tokens = rng.integers(0, rows, m)
    arena = Arena()
    out = put(host, arena, np.zeros((ROOM, k), np.float32))
    op = Op(OpKind.EMBED, (matrix(host, arena, w, form, rows, k), out, real_bits(2.5)))
    run(host, arena, [op], state_bytes([(int(token), at, 0) for at, token in enumerate(tokens)]))
    expected = dequantize(w, FORMATS[form], (rows, k))[tokens] * np.float32(2.5)
    np.testing.assert_allclose(read(host, out, ROOM, k)[:m], expected, rtol=1e-6, atol=1e-6)


rules_of_a_row = st.builds(
    SamplingParams, seed=st.integers(0, 2**32 - 1), temperature=st.sampled_from([0.0, 0.1, 0.7, 3.0]),
    top_k=st.sampled_from([0, 1, 2, 7, 40, 10**6]), top_p=st.sampled_from([1.0, 0.95, 0.5, 0.05]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)  # fmt: skip


FEW_OF_FEW = SamplingParams(seed=3, temperature=3.0, top_k=3, top_p=0.6)
"""Top-p applied to the result of top-k."""


@given(
    size=st.integers(2, 900), seed=st.integers(0, 9999),
    rows=st.lists(st.tuples(st.integers(0, 5000), rules_of_a_row), min_size=1, max_size=4),
)  # fmt: skip
@example(size=50, seed=1, rows=[(at, FEW_OF_FEW) for at in range(4)])
@few
def test_samplers_draw_by_the_rules_of_each_row(host, size, seed, rows) -> None:
    """Run both in turn: argmax chooses for the rows without a temperature, sample for the others."""
    logits = (np.random.default_rng(seed).standard_normal((len(rows), size)) * 3).astype(np.float32)
    arena, count = Arena(), len(rows)
    history = put(host, arena, bytes(count * RING * 4))
    arguments = (put(host, arena, logits), history, size, RING, arena.take(size * 4 + 16))
    # Row r is in slot count - 1 - r: a row's number is not that of its slot.
    started = [(9, position, count - 1 - row) for row, (position, _) in enumerate(rows)]
    state = put(host, arena, state_bytes(started, [rules for _, rules in rows], count))
    samplers = [Op(kind, arguments, Barrier.NEVER) for kind in (OpKind.ARGMAX, OpKind.SAMPLE)]
    program = put(host, arena, program_bytes(samplers, state))

    async def once() -> int:
        return (await host.run(program, 1))[0]

    first = asyncio.run(once())
    after = np.frombuffer(asyncio.run(host.read(state + STATE_HEADER, ROW_BYTES * count)), np.uint32).reshape(count, -1)
    rings = np.frombuffer(asyncio.run(host.read(history, count * RING * 4)), np.uint32).reshape(count, RING)
    assert after[0, 0] == first
    for row, (position, rules) in enumerate(rows):
        drawn = int(after[row, 0])
        assert drawn in possible(logits[row], position, rules)
        assert after[row, 1:3].tolist() == [position + 1, count - 1 - row]
        assert rings[count - 1 - row, (position + 1) % RING] == drawn


def possible(logits: np.ndarray, position: int, rules: SamplingParams) -> set[int]:
    """The reference's draw, and its draw if a token on the border of top-p or min-p goes the other way."""
    return {
        sample(logits, [], position + 1, dataclasses.replace(rules, top_p=p, min_p=floor))
        for p in (rules.top_p, rules.top_p * (1 - 1e-5), min(1.0, rules.top_p * (1 + 1e-5)))
        for floor in (rules.min_p, rules.min_p * (1 - 1e-5), min(1.0, rules.min_p * (1 + 1e-5)))
    }


penalties_of_a_row = st.builds(
    SamplingParams, repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]), presence_penalty=st.sampled_from([0.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.2, -0.1]), penalty_window=st.integers(0, 256),
)  # fmt: skip


@given(
    size=st.integers(5, 60), seed=st.integers(0, 9999),
    rows=st.lists(st.tuples(st.integers(1, 300), penalties_of_a_row), min_size=1, max_size=4),
)  # fmt: skip
@few
def test_penalties_of_each_row_equal_the_reference(host, size, seed, rows) -> None:
    rng = np.random.default_rng(seed)
    arena, count = Arena(), len(rows)
    logits = rng.standard_normal((count, size)).astype(np.float32)
    texts = [rng.integers(0, size, length) for length, _ in rows]
    rings = np.zeros((count, RING), np.uint32)
    for row, text in enumerate(texts):
        rings[count - 1 - row, np.arange(len(text)) % RING] = text
    address = put(host, arena, logits)
    op = Op(OpKind.PENALTIES, (address, put(host, arena, rings), size, RING), Barrier.NEVER)
    started = [(9, len(text) - 1, count - 1 - row) for row, text in enumerate(texts)]
    run(host, arena, [op], state_bytes(started, [rules for _, rules in rows], count))
    found = read(host, address, count, size)
    for row, (text, (_, rules)) in enumerate(zip(texts, rows, strict=True)):
        recent = text[-rules.penalty_window :].tolist() if rules.penalty_window else []
        np.testing.assert_allclose(found[row], apply_penalties(logits[row], recent, rules), rtol=1e-5, atol=1e-6)


def test_a_checksum_notices_each_changed_byte_and_zeros(host) -> None:
    data = np.random.default_rng(8).integers(0, 256, 160, np.uint8)
    address = put(host, Arena(), data)

    def checksum(changed: np.ndarray) -> int:
        host.write(address, changed.tobytes())
        return host._first.call("checksum", address, changed.size)

    changes = [data ^ np.where(np.arange(data.size) == at, 1 << at % 8, 0).astype(np.uint8) for at in range(data.size)]
    found = [checksum(one) for one in (data, *changes, data[:-32], np.zeros(160, np.uint8), np.zeros(128, np.uint8))]
    assert len(set(found)) == len(found)
    assert checksum(data) == found[0]
