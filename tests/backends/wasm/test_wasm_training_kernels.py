"""Single kernels of training against numpy on random shapes, in both builds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from py_core.backends.numpy.gradients import (
    attention_gradient,
    glu_gradient,
    packed_attention,
    rms_norm_gradient,
    seen_rows,
    soft_cap_gradient,
)
from py_core.backends.numpy.rows import soft_cap
from py_core.backends.sampling_state import state_bytes
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.wasm.layout import ACTIVATIONS, Arena, Op, real_bits
from py_core.backends.wasm.training_layout import CHUNK, PACK_BYTES, PART, SCRATCH_BYTES, PackedLayer, TrainKind
from py_core.formats.quantization import FORMATS, dequantize, quantize
from py_core.models.graph import Attention, Value
from py_core.training.session import Pack
from tests.backends.wasm.kernel_memory import few, put, read, run
from tests.backends.wasm.test_wasm_kernels import every_format, matrix

SEEDS = st.integers(0, 2**32 - 1)
ranks = st.integers(1, 16)


def floats(draw: np.random.Generator, *shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


def train(host: WasmtimeHost, arena: Arena, kind: TrainKind, m: int, *arguments: int) -> None:
    """Run one operation over m rows, with scratch memory behind its arguments."""
    words = (*arguments, *[0] * (13 - len(arguments)), arena.take(SCRATCH_BYTES))
    run(host, arena, [Op(kind, words)], state_bytes([(0, row, 0) for row in range(m)]))


def assert_close(found: np.ndarray, expected: np.ndarray, error: float = 2e-5) -> None:
    """Each is near the expected one, relative to the largest, or to 1: terms that cancel keep their errors."""
    most = np.abs(expected).max(initial=1)
    np.testing.assert_allclose(found / most, expected / most, rtol=0, atol=error)


def wide(x: np.ndarray) -> np.ndarray:
    """Rows filled up to whole vectors with zeros."""
    return np.pad(x, ((0, 0), (0, -x.shape[1] % 4)))


@every_format
@given(
    first=st.integers(0, 9), n=st.integers(1, 300), blocks=st.integers(1, 5), m=st.integers(1, 140),
    plus=st.booleans(), bias=st.booleans(), seed=SEEDS,
)  # fmt: skip
@settings(few, max_examples=3)
def test_linears_and_their_gradients_equal_numpy(host, form, first, n, blocks, m, plus, bias, seed) -> None:
    draw = np.random.default_rng(seed)
    first, k, arena = 4 * first, max(32, FORMATS[form].block_size) * blocks, Arena()
    k -= 12 * (FORMATS[form].block_size == 1)  # rows of floats may have any multiple of 4
    w = quantize(floats(draw, first + n, k), FORMATS[form])
    values = dequantize(w, FORMATS[form], (first + n, k))[first:].astype(np.float64)
    x, dy, before, b = floats(draw, m, k), floats(draw, m, n), floats(draw, m, k), floats(draw, n)
    place = (matrix(host, arena, w, form, first + n, k), first, n)
    y, dx = put(host, arena, np.zeros((m, n), np.float32)), put(host, arena, before)
    train(host, arena, TrainKind.LINEAR, m, *place, put(host, arena, x), y, put(host, arena, b) if bias else 0)
    train(host, arena, TrainKind.LINEAR_GRADIENT, m, *place, put(host, arena, dy), dx, dx if plus else 0)
    assert_close(read(host, y, m, n), x @ values.T + (b if bias else 0))
    assert_close(read(host, dx, m, k), dy @ values + (before if plus else 0))


@given(
    rank=ranks, n=st.integers(1, 90), k=st.integers(1, 9), m=st.integers(1, 150), plus=st.booleans(), out=st.booleans(),
    seed=SEEDS,
)  # fmt: skip
@few
def test_pairs_and_their_gradients_equal_numpy(host, rank, n, k, m, plus, out, seed) -> None:
    draw, arena, scale, k = np.random.default_rng(seed), Arena(), np.float32(0.7), 32 * k
    x, dy, a, b = floats(draw, m, k), floats(draw, m, n), floats(draw, rank, k), floats(draw, n, rank)
    y, before, du_before = floats(draw, m, n), floats(draw, m, k), floats(draw, m, rank)
    da, db = floats(draw, rank, k), floats(draw, n, rank)
    widths, width = (rank, -(-rank // 4) * 4), -(-rank // 4) * 4
    at_x, at_dy, at_a, at_b, at_y, at_da, at_db = (put(host, arena, array) for array in (x, dy, a, b, y, da, db))
    at_u, at_du, at_dx = put(host, arena, wide(du_before)), put(host, arena, wide(du_before)), put(host, arena, before)
    train(host, arena, TrainKind.LORA_DOWN, m, at_x, at_a, at_u, k, *widths)
    u = x @ a.T
    assert_close(read(host, at_u, m, width), wide(u))
    train(host, arena, TrainKind.LORA_UP, m, at_u, at_b, at_y, n, *widths, real_bits(scale))
    assert_close(read(host, at_y, m, n), y + scale * u @ b.T)
    pair = (at_dy, at_u, at_b, at_db, at_du, at_du if plus else 0)
    train(host, arena, TrainKind.LORA_UP_GRADIENT, m, *pair, n, *widths, real_bits(scale))
    du = scale * dy @ b + (du_before if plus else 0)
    assert_close(read(host, at_du, m, width), wide(du))
    assert_close(read(host, at_db, n, rank), db + scale * dy.T @ u)
    pair = (at_du, at_x, at_a, at_da, at_dx if out else 0, at_dx if plus else 0)
    train(host, arena, TrainKind.LORA_DOWN_GRADIENT, m, *pair, k, *widths)
    assert_close(read(host, at_da, rank, k), da + du.T @ x)
    assert_close(read(host, at_dx, m, k), (du @ a if out else 0) + (before if plus or not out else 0))


def pack_of(prefix: int, lengths: list[int]) -> Pack:
    starts = [0] * prefix + [prefix + sum(lengths[:i]) for i, n in enumerate(lengths) for _ in range(n)]
    positions = [*range(prefix), *(prefix + at for n in lengths for at in range(n))]
    none = np.zeros(0)
    rows = np.zeros(len(starts), int)
    return Pack(rows, np.array(positions), prefix, np.array(starts), none, none, none, none)


@given(
    prefix=st.integers(0, 50), lengths=st.lists(st.integers(1, 70), min_size=1, max_size=4),
    kv_heads=st.integers(1, 3), group=st.integers(1, 3), head_dim=st.sampled_from([4, 8, 12, 64]),
    window=st.sampled_from([0, 0, 1, 7, 40]), softcap=st.sampled_from([0.0, 2.0]), seed=SEEDS,
)  # fmt: skip
@settings(few, max_examples=12)
def test_packed_attention_and_its_gradients_equal_numpy(
    host, prefix, lengths, kv_heads, group, head_dim, window, softcap, seed
) -> None:
    draw, arena, pack = np.random.default_rng(seed), Arena(), pack_of(prefix, lengths)
    m, heads = pack.rows, kv_heads * group
    q, dout = floats(draw, m, heads * head_dim), floats(draw, m, heads * head_dim)
    k, v = floats(draw, m, kv_heads * head_dim), floats(draw, m, kv_heads * head_dim)
    op = Attention(Value(0, 0), 0, *(Value(i, 0) for i in (1, 2, 3)), heads, kv_heads, 0.6, softcap, window)
    room = -(-m // 32) * 32 + 32
    lists = np.zeros((2, room), np.int32)
    lists[:, :m] = pack.starts, pack.positions
    header = np.zeros(PACK_BYTES // 4, np.uint32)
    header[:2] = m, prefix
    at_pack = put(host, arena, header.tobytes() + lists.tobytes())
    layer = PackedLayer(heads, kv_heads, head_dim, window, softcap, 0.6, at_pack, room).packed()
    read_values = (put(host, arena, layer), *(put(host, arena, array) for array in (q, k, v)))
    out, dq, dk, dv = (put(host, arena, array) for array in (dout * 9, dout * 9, k * 9, v * 9))
    sums, dots = arena.take(4 * m * heads + 16), arena.take(4 * m * heads + 16)
    at_dout = put(host, arena, dout)
    train(host, arena, TrainKind.ATTENTION, m, *read_values, out, sums)
    train(host, arena, TrainKind.ATTENTION_GRADIENT_Q, m, *read_values, out, sums, at_dout, dq, dots)
    train(host, arena, TrainKind.ATTENTION_GRADIENT_KV, m, *read_values, sums, at_dout, dots, dk, dv)
    seen = seen_rows(pack, window)
    exact = [array.astype(np.float64) for array in (q, k, v)]
    expected, log_sums = packed_attention(*exact, seen, op)
    assert_close(read(host, out, m, heads * head_dim), expected)
    assert_close(read(host, sums, m, heads), log_sums)
    slopes = attention_gradient(dout.astype(np.float64), expected, log_sums, *exact, seen, op)
    for address, slope in zip((dq, dk, dv), slopes, strict=True):
        assert_close(read(host, address, *slope.shape), slope)


@given(
    m=st.integers(1, 12), heads=st.integers(1, 3), size=st.integers(1, 9), n=st.integers(1, 40), plus=st.booleans(),
    activation=st.sampled_from(["silu", "gelu"]), neighbours=st.booleans(), seed=SEEDS,
)  # fmt: skip
@few
def test_gradients_of_rows_equal_numpy(host, m, heads, size, n, plus, activation, neighbours, seed) -> None:
    draw, arena, size = np.random.default_rng(seed), Arena(), 2 * size
    dy, x, before = (floats(draw, m, heads * size) for _ in range(3))
    weight, out = floats(draw, size), put(host, arena, before)
    at_dy, at_plus = put(host, arena, dy), out if plus else 0
    norm = (put(host, arena, weight), real_bits(1e-5), out, at_plus, heads, size)
    train(host, arena, TrainKind.NORM_GRADIENT, m, at_dy, put(host, arena, x), *norm)
    expected = rms_norm_gradient(dy.astype(float), x.astype(float), weight, 1e-5) + (before if plus else 0)
    assert_close(read(host, out, m, heads * size), expected)

    angles = draw.uniform(0, 7, (m, size // 4))
    table = np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)
    turn = (heads, size, put(host, arena, table), size // 4, int(neighbours))
    train(host, arena, TrainKind.ROPE_GRADIENT, m, at_dy, out, *turn)
    given_back = read(host, out, m, heads, size)
    turned = dy.reshape(m, heads, size).copy()
    pairs = np.arange(size // 4)
    a, b = (2 * pairs, 2 * pairs + 1) if neighbours else (pairs, pairs + size // 4)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    one, two = turned[:, :, a].copy(), turned[:, :, b].copy()
    turned[:, :, a], turned[:, :, b] = one * cos + two * sin, two * cos - one * sin
    assert_close(given_back, turned)

    gate, up, dy = 6 * floats(draw, m, n), floats(draw, m, n), floats(draw, m, n)
    slopes = [arena.take(4 * m * n + 16) for _ in range(2)]
    three = [put(host, arena, array) for array in (dy, gate, up)]
    train(host, arena, TrainKind.GLU_GRADIENT, m, *three, *slopes, n, ACTIVATIONS[activation])
    for address, slope in zip(slopes, glu_gradient(dy, gate.astype(float), up, activation), strict=True):
        assert_close(read(host, address, m, n), slope)

    y, before = soft_cap(up, 2.0), floats(draw, m, n)
    out = put(host, arena, before)
    capped = (three[0], put(host, arena, y), real_bits(2.0), out, out if plus else 0, n)
    train(host, arena, TrainKind.SOFT_CAP_GRADIENT, m, *capped)
    assert_close(read(host, out, m, n), soft_cap_gradient(dy, y, 2.0) + (before if plus else 0))


@pytest.mark.parametrize("form", ["Q8_0", "Q4_1", "Q6_K", "F16"])
@given(
    m=st.integers(1, 12), vocabulary=st.integers(2, 700), cap=st.sampled_from([0.0, 3.0]), base=st.booleans(),
    bias=st.booleans(), pieces=st.integers(1, 2), seed=SEEDS,
)  # fmt: skip
@settings(few, max_examples=6)
def test_losses_and_their_gradients_equal_numpy(host, form, m, vocabulary, cap, base, bias, pieces, seed) -> None:
    draw, arena, width = np.random.default_rng(seed), Arena(), 2 * max(32, FORMATS[form].block_size)
    width -= 12 * (form == "F16")
    w = quantize(floats(draw, vocabulary, width) / width**0.5, FORMATS[form])
    values = dequantize(w, FORMATS[form], (vocabulary, width)).astype(np.float64)
    rows = np.sort(draw.choice(m, draw.integers(0, m + 1), replace=False))
    count = len(rows)
    h, states, offset = 3 * floats(draw, m, width), 3 * floats(draw, count, width), floats(draw, vocabulary) * bias
    targets, weights, kl = (
        draw.integers(0, vocabulary, count),
        draw.uniform(0, 1, count),
        draw.uniform(0, 1, count) * base,
    )
    listed = np.zeros(count, [("row", "<u4"), ("target", "<u4"), ("weight", "<f4"), ("kl", "<f4")])
    listed["row"], listed["target"], listed["weight"], listed["kl"] = rows, targets, weights, kl
    header = np.zeros(PACK_BYTES // 4, np.uint32)
    header[:3] = m, 0, count
    pack, loss = put(host, arena, header), put(host, arena, listed.tobytes())
    room = [arena.take(4 * count * width + 64) for _ in range(3)]
    running, dh, losses = arena.take(32 * count), put(host, arena, h * 9), arena.take(8 * count)
    at_w, at_states = matrix(host, arena, w, form, vocabulary, width), put(host, arena, states)
    at_bias = put(host, arena, np.pad(offset, (0, 4))) if bias else 0
    train(host, arena, TrainKind.LOSS_BEGIN, m, pack, loss, put(host, arena, h), width, *room, running, dh)
    cut = min(vocabulary, CHUNK) if pieces == 2 else vocabulary
    for first, last in ((0, cut), (cut, vocabulary)):
        if last > first:
            chunk = (real_bits(cap), first, last, *room[:2], running, *((at_states, room[2]) if base else (0, 0)))
            train(host, arena, TrainKind.LOSS_CHUNKS, m, pack, loss, at_w, at_bias, *chunk)
    end = (real_bits(cap), room[1], running, room[2] if base else 0, dh, losses)
    train(host, arena, TrainKind.LOSS_END, m, pack, loss, at_w, *end)

    def shares(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits = x.astype(np.float64) @ values.T + offset
        logits = cap * np.tanh(logits / cap) if cap else logits
        sums = np.log(np.sum(np.exp(logits), axis=1, keepdims=True))
        return logits, logits - sums

    logits, own = shares(h[rows])
    _, other = shares(states)
    p, p_base, here = np.exp(own), np.exp(other), (np.arange(count), targets)
    found = read(host, losses, count, 2)
    np.testing.assert_allclose(found[:, 0], -weights * own[here], rtol=1e-4, atol=1e-5)
    divergence = kl * np.sum(p_base * (other - own), axis=1)
    np.testing.assert_allclose(found[:, 1], divergence, rtol=1e-4, atol=1e-5)
    dl = (weights + kl)[:, None] * p - kl[:, None] * p_base
    dl[here] -= weights
    expected = np.zeros((m, width))
    expected[rows] = (dl * (1 - (logits / cap) ** 2) if cap else dl) @ values
    assert_close(read(host, dh, m, width), expected)


@given(size=st.integers(1, 400), clip=st.sampled_from([0.0, 1.0, 1e9]), decay=st.sampled_from([0.0, 0.1]), seed=SEEDS)
@settings(few, max_examples=8)
def test_the_optimizer_equals_numpy(host, size, clip, decay, seed) -> None:
    draw, arena, size = np.random.default_rng(seed), Arena(), 64 * size
    g, p, m, v = (floats(draw, size) for _ in range(4))
    v, fisher = v * v, floats(draw, size)
    at_g, at_p, at_m, at_v, at_fisher = (put(host, arena, array) for array in (g, p, m, v, fisher))
    parts, result = arena.take(8 * -(-size // PART)), put(host, arena, bytes(16))
    rule = np.array([0.01, 0.9, 0.1, 0.95, 0.05, 1e-8, decay, clip, 1 / (1 - 0.9**3), 1 / (1 - 0.95**3)], np.float32)
    train(host, arena, TrainKind.ADD_FISHER, 1, at_g, size, at_fisher, real_bits(0.5), real_bits(2.0))
    assert_close(read(host, at_fisher, size), 0.5 * fisher + 2 * g * g)
    np.testing.assert_array_equal(read(host, at_g, size), 0)
    host.write(at_g, g.tobytes())
    anchor, sums = floats(draw, size), arena.take(8 * -(-size // PART))
    pulled = (at_p, put(host, arena, fisher * fisher), put(host, arena, anchor), sums, real_bits(0.3))
    train(host, arena, TrainKind.ADD_PULL, 1, at_g, size, *pulled)
    assert_close(read(host, at_g, size), g + 0.3 * fisher**2 * (p - anchor))
    found = read(host, sums, 2 * -(-size // PART)).view(np.float64).sum()
    assert found == pytest.approx(float(np.sum((fisher * (p - anchor)) ** 2, dtype=float)), rel=1e-5)
    g = read(host, at_g, size).copy()
    train(host, arena, TrainKind.SUM_SQUARES, 1, at_g, size, parts)
    state = (at_p, at_m, at_v, put(host, arena, rule), result)
    train(host, arena, TrainKind.ADAMW, 1, at_g, size, parts, *state)
    norm = np.linalg.norm(g.astype(np.float64))
    assert read(host, result, 4).view(np.float64)[0] == pytest.approx(norm, rel=1e-12)
    assert read(host, result, 4).view(np.uint32)[2] == 1
    g = g * (clip / norm if clip and norm > clip else 1)
    m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
    p = p - 0.01 * (m / (1 - 0.9**3) / (np.sqrt(v / (1 - 0.95**3)) + 1e-8) + decay * p)
    for address, expected in ((at_p, p), (at_m, m), (at_v, v)):
        assert_close(read(host, address, size), expected)
    np.testing.assert_array_equal(read(host, at_g, size), 0)
    host.write(at_g, g.tobytes())
    train(host, arena, TrainKind.CLEAR, 1, at_g, size)
    np.testing.assert_array_equal(read(host, at_g, size), 0)
