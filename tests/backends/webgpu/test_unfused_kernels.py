"""The kernels of operations that no pattern of fusion covers, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from py_core.backends.numpy import rows as reference
from py_core.backends.sampling_state import ROW_BYTES, state_bytes
from py_core.paging.page_table import PAGE
from tests.backends.convolved_rows import PAGES, ROWS, ConvolvedRows
from tests.backends.delta_rows import DeltaRows
from tests.backends.variants import covering, gated, named

MAX_ROWS = 8
SEEDS = st.integers(0, 2**32 - 1)
few = settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def state(positions: np.ndarray, slot: int = 0) -> bytes:
    rows = [(0, int(position), slot) for position in positions]
    return state_bytes(rows) + bytes(ROW_BYTES * (MAX_ROWS - len(rows)))


def normal(rng: np.random.Generator, *shape: int, spread: float = 1.0) -> np.ndarray:
    return (rng.standard_normal(shape) * spread).astype(np.float32)


def floats(data: bytes, *shape: int) -> np.ndarray:
    return np.frombuffer(data, np.float32)[: int(np.prod(shape))].reshape(shape)


def check(out: bytes, before: np.ndarray, expected: np.ndarray, atol: float = 2e-6) -> None:
    """Asserts that the rows of a pass are as expected, and the others unchanged."""
    m = len(expected)
    np.testing.assert_allclose(floats(out, *before.shape)[:m], expected, rtol=1e-5, atol=atol)
    np.testing.assert_array_equal(floats(out, *before.shape)[m:], before[m:])


@pytest.mark.parametrize("activation", ["silu", "gelu", "sigmoid"])
@pytest.mark.parametrize("n", [1, 7, 200])
@given(m=st.integers(1, 5), spread=st.sampled_from([4.0, 60.0]), seed=SEEDS)
@few
def test_gated_units_equal_numpy_for_large_values_too(run_kernel, activation, n, m, spread, seed) -> None:
    rng, first = np.random.default_rng(seed), n // 2
    gate, up, y = normal(rng, MAX_ROWS, n, spread=spread), normal(rng, MAX_ROWS, 2 * n), normal(rng, MAX_ROWS, n)
    (out,) = run_kernel(
        "glu", [state(np.arange(m)), gate, up, y], (-(-n // 8), m, 1),
        MAX_ROWS=MAX_ROWS, N=n, UP_WIDTH=2 * n, FIRST=first, GELU=activation == "gelu",
        SIGMOID=activation == "sigmoid", WORKGROUP=8,
    )  # fmt: skip
    check(out, y, reference.glu(gate[:m], up[:m, first : first + n], activation))


def test_rows_are_multiplied_by_the_number_of_a_layer(run_kernel) -> None:
    rng = np.random.default_rng(1)
    x, y, weight = normal(rng, MAX_ROWS, 70), normal(rng, MAX_ROWS, 70), np.array([0.37], np.float32)
    (out,) = run_kernel("scale", [state(np.arange(3)), x, weight, y], (9, 3, 1), MAX_ROWS=MAX_ROWS, N=70, WORKGROUP=8)
    check(out, y, x[:3] * weight)


@given(n=st.sampled_from([1, 7, 200]), m=st.integers(1, 5), seed=SEEDS)
@few
def test_sums_equal_numpy(run_kernel, n, m, seed) -> None:
    a, b, y = normal(np.random.default_rng(seed), 3, MAX_ROWS, n)
    data = [state(np.arange(m)), a, b, y]
    (out,) = run_kernel("add", data, (-(-n // 8), m, 1), MAX_ROWS=MAX_ROWS, N=n, WORKGROUP=8)
    check(out, y, a[:m] + b[:m])


@given(cap=st.sampled_from([2.0, 50.0]), m=st.integers(1, 5), spread=st.sampled_from([1.0, 1e4]), seed=SEEDS)
@few
def test_soft_caps_equal_numpy_for_large_values_too(run_kernel, cap, m, spread, seed) -> None:
    x, y = normal(np.random.default_rng(seed), 2, MAX_ROWS, 45, spread=spread)
    data = [state(np.arange(m)), x, y]
    (out,) = run_kernel("soft_cap", data, (6, m, 1), MAX_ROWS=MAX_ROWS, N=45, CAP=cap, WORKGROUP=8)
    # tanh is made of exp, which rounds to some 1e-7 of 1, however small it is.
    check(out, y, reference.soft_cap(x[:m], cap), atol=3e-7 * cap)


@named(covering(8, interleaved=[True, False], heads=[1, 3], head_dim=[8, 24, 40], rotated=[0, 0.25, 0.75, 1]))
@given(m=st.integers(1, MAX_ROWS), seed=SEEDS)
@few
def test_rotation_equals_numpy(run_kernel, variant, m, seed) -> None:
    rng = np.random.default_rng(seed)
    heads, head_dim, positions = variant["heads"], variant["head_dim"], rng.permutation(100)[:m]
    pairs = int(variant["rotated"] * head_dim) // 2
    table, width = normal(rng, 100, max(pairs, 1), 2), heads * head_dim
    x, y = normal(rng, 2, MAX_ROWS, width)
    (out,) = run_kernel(
        "rope", [state(positions), x, table, y], (-(-width // 4 // 8), m, 1),
        MAX_ROWS=MAX_ROWS, HEADS=heads, HEAD_DIM=head_dim, PAIRS=pairs, INTERLEAVED=variant["interleaved"], WORKGROUP=8,
    )  # fmt: skip
    check(out, y, reference.rope(x[:m], table[positions, :pairs], heads, variant["interleaved"]))


@pytest.mark.parametrize(("kv_heads", "head_dim"), [(1, 8), (3, 24)])
@given(m=st.integers(1, MAX_ROWS), seed=SEEDS)
@few
def test_keys_and_values_go_to_the_pages_of_their_positions(run_kernel, kv_heads, head_dim, m, seed) -> None:
    rng = np.random.default_rng(seed)
    positions, table = rng.permutation(3 * PAGE)[:m], rng.permutation(7)[:6].reshape(2, 3).astype(np.uint32)
    k, v = normal(rng, 2, MAX_ROWS, kv_heads, head_dim)
    pool = normal(rng, 7, 2, kv_heads, PAGE, head_dim)
    (out,) = run_kernel(
        "append", [state(positions, slot=1), k, v, table, pool], (-(-kv_heads * head_dim // 4 // 8), m, 1),
        MAX_ROWS=MAX_ROWS, KV_HEADS=kv_heads, HEAD_DIM=head_dim, PAGE=PAGE, MAX_PAGES=3, WORKGROUP=8,
    )  # fmt: skip
    expected = pool.copy()
    for row, position in enumerate(positions):
        page = expected[table[1, position // PAGE]]
        page[0, :, position % PAGE], page[1, :, position % PAGE] = k[row], v[row]
    np.testing.assert_array_equal(floats(out, *pool.shape), expected)


@pytest.mark.parametrize(("width", "taps", "gated"), [(40, 3, True), (8, 2, False)])
@given(m=st.integers(1, MAX_ROWS), seed=SEEDS)
@few
def test_a_convolution_equals_numpy_and_keeps_its_rows(run_kernel, width, taps, gated, m, seed) -> None:
    rng = np.random.default_rng(seed)
    drawn, y = ConvolvedRows.drawn(rng, m, width, taps, gated), normal(rng, MAX_ROWS, width)
    x = np.concatenate([drawn.x, normal(rng, MAX_ROWS - m, drawn.x.shape[1])])
    places = state_bytes([(0, position, slot) for position, slot in drawn.places]) + bytes(ROW_BYTES * (MAX_ROWS - m))
    kept, out = run_kernel(
        "short_conv", [places, x, drawn.weight, drawn.table, drawn.kept, y], (-(-width // 4 // 8), 1, 1),
        MAX_ROWS=MAX_ROWS, K=width, TAPS=taps, GATED=gated, ROWS=ROWS, PAGE=PAGE, MAX_PAGES=PAGES, WORKGROUP=8,
    )  # fmt: skip
    expected, rows = drawn.expected()
    check(out, y, expected)
    np.testing.assert_array_equal(floats(kept, *rows.shape), rows)


@pytest.mark.parametrize(("key_heads", "heads", "size"), [(2, 4, 16), (1, 1, 80)])
@given(seed=SEEDS)
@settings(few, max_examples=1)
def test_a_delta_rule_equals_numpy_over_pages(run_kernel, key_heads, heads, size, seed) -> None:
    rng, most = np.random.default_rng(seed), 32
    drawn = DeltaRows.drawn(rng, key_heads, heads, size)
    states, expected, weights = drawn.states, drawn.expected(), np.stack([drawn.rate, drawn.bias])
    for placed in drawn.passes(rng, most):
        count, rest = len(placed), bytes(ROW_BYTES * (most - len(placed)))
        rows = state_bytes([(0, *place) for place in placed]) + rest
        inputs = [
            np.concatenate([drawn.of(values, placed), np.zeros((most - count, values.shape[2]), np.float32)])
            for values in (drawn.x, drawn.alpha, drawn.beta)
        ]
        y = np.zeros((most, heads * size), np.float32)
        states, out = run_kernel(
            "delta_rule", [rows, *inputs, weights, drawn.table, states, y], (heads, 1, 1),
            MAX_ROWS=most, KEY_HEADS=key_heads, HEADS=heads, SIZE=size, PAGE=PAGE, MAX_PAGES=PAGES,
        )  # fmt: skip
        states, got = floats(states, *drawn.states.shape), floats(out, *y.shape)[:count]
        wanted = drawn.of(expected, placed)
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("second", [False, True])
@given(m=st.integers(1, MAX_ROWS), seed=SEEDS)
@few
def test_every_second_head_is_taken(run_kernel, second, m, seed) -> None:
    rng = np.random.default_rng(seed)
    x, y = normal(rng, MAX_ROWS, 2 * 3 * 6), normal(rng, MAX_ROWS, 3 * 6)
    (out,) = run_kernel(
        "half", [state(np.arange(m)), x, y], (3, m, 1), MAX_ROWS=MAX_ROWS, N=18, SIZE=6, SECOND=second, WORKGROUP=8
    )
    check(out, y, reference.half(x[:m], 6, second), atol=0)


@pytest.mark.parametrize(
    ("experts", "used", "normalized"),
    gated([(32, 8, True), (5, 5, False), (70, 2, False)], lambda case: case[0] == 32),
)
@given(m=st.integers(1, MAX_ROWS), seed=SEEDS)
@few
def test_experts_are_chosen_and_mixed_as_in_numpy(run_kernel, experts, used, normalized, m, seed) -> None:
    rng, width = np.random.default_rng(seed), 45
    logits, y = normal(rng, MAX_ROWS, experts, spread=3.0), normal(rng, MAX_ROWS, 2 * used)
    logits[0] = logits[0, 0]  # among equals the first are chosen
    (routed,) = run_kernel(
        "route", [state(np.arange(m)), logits, y], (m, 1, 1),
        MAX_ROWS=MAX_ROWS, EXPERTS=experts, USED=used, NORMALIZED=normalized, WORKGROUP=8,
    )  # fmt: skip
    expected = reference.route(logits[:m], used, normalized)
    check(routed, y, expected)
    x, y = normal(rng, MAX_ROWS, used * width), normal(rng, MAX_ROWS, width)
    (out,) = run_kernel(
        "mix", [state(np.arange(m)), x, floats(routed, MAX_ROWS, 2 * used), y], (-(-width // 8), m, 1),
        MAX_ROWS=MAX_ROWS, N=width, USED=used, WORKGROUP=8,
    )  # fmt: skip
    check(out, y, reference.mix(x[:m], expected, used))
