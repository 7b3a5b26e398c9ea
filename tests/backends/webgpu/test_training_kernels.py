"""Each kernel of training against numpy on random numbers, in few variants: tests/training covers whole models."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from py_core.backends.numpy import gradients
from py_core.backends.numpy import rows as reference
from py_core.backends.sampling_state import ROW_BYTES, state_bytes
from py_core.models.graph import Attention, Value
from py_core.training.session import AdamW, Pack
from tests.backends.variants import covering, named
from tests.backends.webgpu.test_kernels import SEEDS, few, floats, random_matrix, width

MAX_ROWS = 96
"""Three tiles of rows."""
COUNTS = st.integers(1, MAX_ROWS)


def state(count: int, positions: np.ndarray | None = None) -> bytes:
    rows = [(0, int(position), 0) for position in (np.arange(count) if positions is None else positions)]
    return state_bytes(rows) + bytes(ROW_BYTES * (MAX_ROWS - count))


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Arrays of random numbers, also in the places that a kernel must not read."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def equal(found: np.ndarray, expected: np.ndarray, before: np.ndarray, count: int) -> None:
    """Asserts that the first `count` rows are as expected, and the others unchanged."""
    wanted = before.astype(np.float64)
    wanted[:count] = expected
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5 * np.abs(wanted).max())


@named(
    covering(
        6, form=["Q4_1", "Q8_0", "Q6_K", "F16"], n=[4, 36, 100], blocks=[1, 3], shape=[(1, 1), (2, 2), (4, 1)],
        add=[False, True], first=[0, 5],
    ),
    gate=4,
)  # fmt: skip
@given(m=COUNTS, seed=SEEDS)
@few
def test_a_product_with_the_columns_of_a_quantized_matrix(run_kernel, variant, m, seed) -> None:
    form, n, first, (slices, wide) = variant["form"], variant["n"], variant["first"], variant["shape"]
    k = width(form, variant["blocks"])
    data, w = random_matrix(run_kernel.host, np.random.default_rng(seed), first + n, k, form)
    dy, dx = drawn(seed, (MAX_ROWS, n), (MAX_ROWS, k))
    (out,) = run_kernel(
        "matmul_gradient", [state(m), *data, dy, dx], (-(-k // (32 * wide)), -(-m // 32), 1),
        {"dequantize": f"dequantize_{form.lower()}"}, MAX_ROWS=MAX_ROWS, K=k, N=n, BLOCKS=(first + n) * k // 32,
        FIRST_ROW=first, ADD=variant["add"], SLICES=slices, WIDE=wide,
    )  # fmt: skip
    expected = dy[:m].astype(np.float64) @ w[first:] + (dx[:m] if variant["add"] else 0)
    equal(floats(out, *dx.shape), expected, dx, m)


@named([{"rank": 3, "b": True, "first": 5, "add": True}, {"rank": 16, "b": False, "first": 0, "add": False}])
@given(m=COUNTS, seed=SEEDS)
@few
def test_products_with_the_few_columns_of_a_pair(run_kernel, variant, m, seed) -> None:
    rank, b, first, add, n, scale = variant["rank"], variant["b"], variant["first"], variant["add"], 96, 0.7
    rows, start = n + first + 2, state(m)
    matrix, x, u, grown = drawn(
        seed, (rows, rank) if b else (rank, n), (MAX_ROWS, n), (MAX_ROWS, rank), (rows, rank) if b else (rank, n)
    )
    w = (matrix[first : first + n] if b else matrix.T).astype(np.float64)
    constants = {"MAX_ROWS": MAX_ROWS, "N": n, "RANK": rank, "B": b, "FIRST_ROW": first, "SCALE": scale}
    (down,) = run_kernel("low_rank_down", [start, matrix, x, u], (-(-m // 4), 1, 1), ADD=add, **constants)
    equal(floats(down, *u.shape), scale * (x[:m] @ w) + (u[:m] if add else 0), u, m)
    groups = (-(-n // 32), -(-m // 8), 1)
    (up,) = run_kernel("low_rank_up", [start, matrix, u, x], groups, ADD=add, WORKGROUP=32, **constants)
    equal(floats(up, *x.shape), scale * (u[:m] @ w.T) + (x[:m] if add else 0), x, m)
    (gradient,) = run_kernel("low_rank_gradient", [start, x, u, grown], (-(-n // 8), 1, 1), COLUMNS=8, **constants)
    expected = grown.astype(np.float64)
    added = scale * (x[:m].astype(np.float64).T @ u[:m])
    if b:
        expected[first : first + n] += added
    else:
        expected += added.T
    np.testing.assert_allclose(floats(gradient, *grown.shape), expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max())


@st.composite
def packs(draw: st.DrawFn) -> Pack:
    """The rows of a pack: a prefix, if any, and sequences behind it."""
    prefix = draw(st.sampled_from([0, 1, 17, 40]))
    lengths = draw(st.lists(st.integers(1, 50), min_size=0 if prefix else 1, max_size=6))
    starts, positions = [0] * prefix, list(range(prefix))
    for length in lengths:
        length = min(length, MAX_ROWS - len(starts))
        positions += range(prefix, prefix + length)
        starts += [len(starts)] * length
    none = np.zeros(0, np.int32)
    return Pack(np.array(starts), np.array(positions), prefix, np.array(starts), none, none, none, none)


def pack_bytes(pack: Pack) -> bytes:
    rows = pack.rows
    table = np.zeros((MAX_ROWS, 4), np.uint32)
    table[:rows, 0], table[:rows, 1] = pack.starts, pack.positions
    return np.array([rows, pack.prefix, 0, 0], np.uint32).tobytes() + table.tobytes()


@named(
    [
        {"heads": 4, "kv_heads": 2, "head_dim": 24, "softcap": 0.0, "window": 0},
        {"heads": 3, "kv_heads": 3, "head_dim": 72, "softcap": 2.0, "window": 19},
    ]
)
@given(pack=packs(), seed=SEEDS)
@settings(few, max_examples=6)
def test_attention_in_a_pack_and_its_gradients(run_kernel, variant, pack, seed) -> None:
    heads, kv_heads, head_dim = variant["heads"], variant["kv_heads"], variant["head_dim"]
    m, kv = pack.rows, (MAX_ROWS, kv_heads * head_dim)
    q, k, v, dout, dk, dv = drawn(seed, *2 * [(MAX_ROWS, heads * head_dim), kv, kv])
    value = Value(0, q.shape[1])
    op = Attention(value, 0, value, value, value, heads, kv_heads, 0.3, variant["softcap"], variant["window"])
    seen = gradients.seen_rows(pack, op.window)
    cut = [each[:m].astype(np.float64) for each in (q, k, v)]
    out, log_sums = gradients.packed_attention(*cut, seen, op)
    constants = {"MAX_ROWS": MAX_ROWS, "HEADS": heads, "HEAD_DIM": head_dim}
    tiles = {**constants, "KV_HEADS": kv_heads, "SCALE": 0.3, "SOFTCAP": op.softcap, "WINDOW": op.window}
    rows, place = (heads, 3, -(-head_dim // 64)), pack_bytes(pack)
    empty = np.zeros((MAX_ROWS, heads), np.float32)
    made, sums = run_kernel("packed_attention", [place, q, k, v, 0 * q, empty], rows, **tiles)
    equal(floats(made, *q.shape), out, 0 * q, m)
    equal(floats(sums, *empty.shape), log_sums, empty, m)
    stats = np.zeros((MAX_ROWS, heads, 2), np.float32)
    (stats_made,) = run_kernel(
        "attention_dots", [state(m), sums, dout, made, stats], (1, m, 1), **constants, WORKGROUP=32
    )
    read = [place, q, k, v, dout, stats_made]
    expected = gradients.attention_gradient(dout[:m].astype(np.float64), out, log_sums, *cut, seen, op)
    (dq_made,) = run_kernel("attention_gradient_rows", [*read, q], rows, **tiles)
    equal(floats(dq_made, *q.shape), expected[0], q, m)
    dk_made, dv_made = run_kernel("attention_gradient_keys", [*read, dk, dv], (kv_heads, *rows[1:]), **tiles)
    equal(floats(dk_made, *kv), expected[1], dk, m)
    equal(floats(dv_made, *kv), expected[2], dv, m)


@pytest.mark.parametrize(("heads", "add"), [(1, False), (3, True)])
@given(m=COUNTS, seed=SEEDS)
@few
def test_gradients_of_norms(run_kernel, heads, add, m, seed) -> None:
    weight, dy, x, out = drawn(seed, (40,), *3 * [(MAX_ROWS, 40 * heads)])
    (made,) = run_kernel(
        "rms_norm_gradient", [state(m), weight, dy, x, out], (m, heads, 1), MAX_ROWS=MAX_ROWS, K=40, HEADS=heads,
        EPS=0.1, ADD=add, LANES=32, WORKGROUP=32,
    )  # fmt: skip
    expected = gradients.rms_norm_gradient(dy[:m].astype(np.float64), x[:m], weight, 0.1)
    equal(floats(made, *out.shape), expected + (out[:m] if add else 0), out, m)


@pytest.mark.parametrize(("pairs", "interleaved"), [(7, True), (12, False)])
@given(m=COUNTS, seed=SEEDS)
@few
def test_rotating_back(run_kernel, pairs, interleaved, m, seed) -> None:
    table, dy, out = drawn(seed, (MAX_ROWS, pairs, 2), (MAX_ROWS, 3 * 32), (MAX_ROWS, 3 * 32))
    positions = np.random.default_rng(seed).permutation(MAX_ROWS)[:m]
    (made,) = run_kernel(
        "rope_gradient", [state(m, positions), dy, table, out], (1, m, 1), MAX_ROWS=MAX_ROWS, HEADS=3, HEAD_DIM=32,
        PAIRS=pairs, INTERLEAVED=interleaved, WORKGROUP=32,
    )  # fmt: skip
    expected = reference.rope(dy[:m], table[positions] * np.array([1, -1], np.float32), 3, interleaved)
    equal(floats(made, *out.shape), expected, out, m)


@pytest.mark.parametrize("activation", ["silu", "gelu"])
@given(m=COUNTS, seed=SEEDS, size=st.sampled_from([0.1, 1, 20]))
@few
def test_gradients_of_gated_units_and_soft_caps(run_kernel, activation, m, seed, size) -> None:
    dy, gate, up, dgate, dup = drawn(seed, *5 * [(MAX_ROWS, 70)])
    gate, gelu = np.float32(size) * gate, activation == "gelu"
    common, groups = {"MAX_ROWS": MAX_ROWS, "N": 70, "WORKGROUP": 32}, (3, m, 1)
    made = run_kernel("glu_gradient", [state(m), dy, gate, up, dgate, dup], groups, GELU=gelu, **common)
    wanted = gradients.glu_gradient(dy[:m].astype(np.float64), gate[:m], up[:m], activation)
    for found, expected, before in zip(made, wanted, (dgate, dup), strict=True):
        equal(floats(found, *dy.shape), expected, before, m)
    y = 30 * np.tanh(gate)
    (capped,) = run_kernel("soft_cap_gradient", [state(m), dy, y, up], groups, CAP=30.0, ADD=gelu, **common)
    expected = gradients.soft_cap_gradient(dy[:m].astype(np.float64), y[:m], 30.0) + (up[:m] if gelu else 0)
    equal(floats(capped, *up.shape), expected, up, m)


@pytest.mark.parametrize("more", [False, True], ids=["plain", "capped, with biases and a divergence"])
@given(count=st.integers(1, MAX_ROWS), last=st.integers(1, 100), seed=SEEDS)
@few
def test_the_loss_over_two_chunks_of_the_vocabulary(run_kernel, more, count, last, seed) -> None:
    """The second chunk has fewer tokens."""
    chunk, cap, rng = 100, 3.0 if more else 0.0, np.random.default_rng(seed)
    sizes = (chunk, last)
    logits, base, bias = drawn(seed, (2, MAX_ROWS, chunk), (2, MAX_ROWS, chunk), (4 * chunk,))
    logits *= 5
    targets = rng.integers(0, chunk + last, count)
    weights, kl_weights = rng.standard_normal((2, count)).astype(np.float32)
    rows = np.zeros((MAX_ROWS, 4), np.uint32)
    rows[:count, 1] = targets
    rows.view(np.float32)[:count, 2:] = np.stack([weights, kl_weights], axis=1)
    constants = {
        "MAX_ROWS": MAX_ROWS, "CHUNK": chunk, "CAP": cap, "KL": more, "ADD_BIAS": more, "BIAS_AT": 3,
    }  # fmt: skip
    states = [np.array([count, 0, chunk * i, size], np.uint32) for i, size in enumerate(sizes)]
    sums: np.ndarray | bytes = np.full((MAX_ROWS, 8), np.nan, np.float32)
    for i, start in enumerate(states):
        data = [start, rows, logits[i], base[i], bias, sums]
        (sums,) = run_kernel("loss_sums", data, (count, 1, 1), WORKGROUP=32, **constants)
    made = [
        run_kernel(
            "loss_gradient", [start, rows, sums, base[i], bias, logits[i]], (4, count, 1), WORKGROUP=32, **constants
        )[0]
        for i, start in enumerate(states)
    ]

    def whole(values: np.ndarray) -> np.ndarray:
        joined = np.concatenate([values[i][:count, :size] for i, size in enumerate(sizes)], axis=1).astype(np.float64)
        joined += bias[3 : 3 + chunk + last] if more else 0
        return reference.soft_cap(joined, cap) if cap else joined

    ours, theirs = whole(logits), whole(base)
    log_sums = np.log(np.exp(ours).sum(axis=1))
    slopes = weights[:, None] * np.exp(ours - log_sums[:, None])
    slopes[np.arange(count), targets] -= weights
    found = floats(sums, MAX_ROWS, 8)[:count].astype(np.float64)
    np.testing.assert_allclose(found[:, 0] + np.log(found[:, 1]), log_sums, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[:, 4], ours[np.arange(count), targets], rtol=1e-5, atol=1e-5)
    if more:
        base_sums = np.log(np.exp(theirs).sum(axis=1))
        shares = np.exp(theirs - base_sums[:, None])
        slopes += kl_weights[:, None] * (np.exp(ours - log_sums[:, None]) - shares)
        apart = found[:, 5] / found[:, 3] - found[:, 2] - np.log(found[:, 3]) + log_sums
        expected = np.sum(shares * (theirs - base_sums[:, None] - ours + log_sums[:, None]), axis=1)
        np.testing.assert_allclose(apart, expected, rtol=1e-4, atol=1e-5)
        slopes *= 1 - (ours / cap) ** 2
    first, second = (floats(one, MAX_ROWS, chunk)[:count] for one in made)
    np.testing.assert_allclose(np.hstack([first, second[:, :last]]), slopes, rtol=1e-4, atol=1e-5)
    assert not second[:, last:].any(), "nothing behind the last token"


@given(
    seed=SEEDS, clip=st.sampled_from([0.0, 1.0, 1e3]), steps=st.integers(1, 50),
    broken=st.sampled_from([None, None, np.nan, np.inf]),
)  # fmt: skip
@settings(few, max_examples=8)
def test_a_step_of_the_optimizer(run_kernel, seed, clip, steps, broken) -> None:
    """With a gradient that may be missing: then it is only set to 0."""
    count, rule = 1028, AdamW(0.01, decay=0.1, clip=clip)
    parameters, first, second, gradient, fisher = drawn(seed, *5 * [(count,)])
    second, fisher = np.abs(second), np.abs(fisher)
    if broken is not None:
        gradient[seed % count] = broken
    sums = {"LANES": 32, "WORKGROUP": 32, "GROUPS": 3}
    corrections = 1 - rule.beta1**steps, 1 - rule.beta2**steps
    settings = (rule.rate, rule.beta1, rule.beta2, rule.eps, rule.decay, rule.clip)
    numbers = np.array([*settings, *corrections], np.float32)
    (partial,) = run_kernel("gradient_squares", [gradient, bytes(12)], (3, 1, 1), QUADS=count // 4, **sums)
    (step,) = run_kernel("gradient_norm", [numbers, partial, bytes(16)], (1, 1, 1), **sums)
    applied, norm = np.frombuffer(step, np.uint32)[2], np.linalg.norm(gradient.astype(np.float64))
    assert applied == np.isfinite(norm)
    made = run_kernel(
        "adamw", [numbers, step, parameters, first, second, gradient], (5, 2, 1), QUADS=count // 4, WORKGROUP=32
    )
    wanted = parameters, first, second
    if applied:
        np.testing.assert_allclose(np.frombuffer(step, np.float32)[0], norm, rtol=1e-5)
        slope = gradient * min(1, clip / norm) if clip else gradient
        m = rule.beta1 * first + (1 - rule.beta1) * slope
        v = rule.beta2 * second + (1 - rule.beta2) * slope**2
        change = m / corrections[0] / (np.sqrt(v / corrections[1]) + rule.eps)
        wanted = parameters - rule.rate * (change + rule.decay * parameters), m, v
    for found, expected in zip(made, (*wanted, 0 * parameters), strict=True):
        np.testing.assert_allclose(floats(found, count), expected, rtol=1e-4, atol=1e-5)

    for keep, weight in ((1.0, 0.0), (0.9, 2.0)):
        if weight and not applied:
            continue
        shares = np.array([keep, weight, 0, 0], np.float32)
        data = [shares, fisher, gradient]
        grown, left = run_kernel("fisher", data, (5, 2, 1), QUADS=count // 4, WORKGROUP=32)
        expected = keep * fisher + (weight * gradient**2 if weight else 0)
        np.testing.assert_allclose(floats(grown, count), expected, rtol=1e-5)
        assert not floats(left, count).any()

    if applied:
        (anchor,) = drawn(seed + 1, (count,))
        data = [np.array([0.3, 0, 0, 0], np.float32), fisher, parameters, anchor, gradient, bytes(12)]
        pulled, partial = run_kernel("pull", data, (3, 1, 1), QUADS=count // 4, **sums)
        apart = (parameters - anchor).astype(np.float64)
        np.testing.assert_allclose(floats(pulled, count), gradient + 0.3 * fisher * apart, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(floats(partial, 3).sum(), np.sum(fisher * apart**2), rtol=1e-4)
