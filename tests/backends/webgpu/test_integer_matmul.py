"""The matmul in integers, and its input, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from py_core.backends.sampling_state import ROW_BYTES, state_bytes
from tests.backends.variants import covering, named
from tests.backends.webgpu.test_kernels import (
    DRAWN,
    MAX_ROWS,
    PLAIN,
    QUANTIZED,
    SEEDS,
    SIZES,
    RandomMatmul,
    all_values,
    few,
    floats,
    more,
    random_matrix,
    rounded,
    rounding,
    state,
    with_all_formats,
)


def limbs_of(run_kernel, x: np.ndarray, m: int) -> bytes:
    """The first m rows of x in integers, (blocks of a row, rows) records of 80 bytes; the others are zeros."""
    rows, k = x.shape
    many = state_bytes([(0, position, 0) for position in range(m)]) + bytes(ROW_BYTES * (rows - m))
    (limbs,) = run_kernel(
        "limbs", [many, x, bytes(80 * rows * (k // 32))], (-(-k // 32 // 4), m, 1), MAX_ROWS=rows, K=k, WORKGROUP=4
    )
    return limbs


@pytest.mark.parametrize("kind", ["normal", "positive", "any"])
@given(size=st.sampled_from([1e-30, 1e-9, 1, 1e4, 1e30]), blocks=st.sampled_from([1, 7]), seed=SEEDS)
@more
def test_limbs_are_within_half_a_step_of_the_values(run_kernel, kind, size, blocks, seed) -> None:
    rng = np.random.default_rng(seed)
    x = (
        np.stack([all_values(rng, 32 * blocks) for _ in range(3)])
        if kind == "any"
        else rng.standard_normal((3, 32 * blocks))
    )
    x = (np.float32(size) * (np.abs(x) if kind == "positive" else x)).astype(np.float32)
    records = (
        np.frombuffer(limbs_of(run_kernel, x, 3)[: 80 * 3 * blocks], np.uint8).reshape(blocks, 3, 80).swapaxes(0, 1)
    )
    limbs = records[:, :, :64].copy().view(np.int8).astype(np.float64).reshape(3, blocks, 2, 32)
    step, *sums = np.moveaxis(records[:, :, 64:].copy().view(np.float32).astype(np.float64), -1, 0)
    blocks_of_x = x.astype(np.float64).reshape(3, blocks, 32)
    found = (256 * limbs[:, :, 0] + limbs[:, :, 1]) * step[..., None]
    assert (np.abs(found - blocks_of_x) <= step[..., None] * 0.51).all()
    assert (step <= np.maximum(np.abs(blocks_of_x).max(axis=-1), 1e-30) / 32638).all()
    for which, given_sum in zip((slice(0, 32), slice(0, 16), slice(16, 32)), sums, strict=True):
        np.testing.assert_allclose(
            given_sum * step, blocks_of_x[..., which].sum(axis=-1), rtol=1e-5, atol=4e-6 * 32639 * step.max()
        )


@named(
    with_all_formats(
        covering(
            13,
            shape=[(1, 4), (2, 8), (4, 8), (4, 4)],
            **{**SIZES, "form": [name for name in QUANTIZED if name in DRAWN]},
        )
    ),
    gate=6,
)
@given(m=st.integers(1, MAX_ROWS), seed=SEEDS)
@settings(few, max_examples=2)
def test_integer_matmul_equals_numpy_and_leaves_the_rest_alone(run_kernel, variant, m, seed) -> None:
    problem = RandomMatmul(run_kernel, variant, m, seed)
    wide, epilogue = variant["shape"][1], variant["epilogue"]
    (out,) = run_kernel(
        "matmul_integer",
        [state(m), *problem.data, limbs_of(run_kernel, problem.x, m), problem.vectors, problem.y],
        (-(-variant["n"] // (8 * wide // (2 if epilogue == 2 else 1))), 1, 1), problem.snippets,
        **problem.constants,
    )  # fmt: skip
    expected = problem.expected(rounded(problem.x))
    scale, slack = np.abs(expected).max(), rounding(problem.w, problem.x)
    np.testing.assert_allclose(floats(out, *expected.shape), expected, rtol=1e-4, atol=(1e-5 + slack) * scale + slack)


def test_integer_matmul_over_several_tiles_of_rows(run_kernel) -> None:
    rng = np.random.default_rng(1)
    m, n, k, rows = 71, 70, 96, 96
    data, w = random_matrix(run_kernel.host, rng, n, k, "Q4_1")
    x = rng.standard_normal((rows, k)).astype(np.float32)
    many = state_bytes([(0, position, 0) for position in range(m)]) + bytes(ROW_BYTES * (rows - m))
    (out,) = run_kernel(
        "matmul_integer", [many, *data, limbs_of(run_kernel, x, m), x, bytes(4 * rows * n)], (2, 2, 2),
        {"dequantize": "dequantize_q4_1"}, MAX_ROWS=rows, K=k, N=n, BLOCKS=n * k // 32, Y_STRIDE=n, Y_OFFSET=0,
        EPILOGUE=0, SLICES=2, WIDE=4, **PLAIN,
    )  # fmt: skip
    expected = np.zeros((rows, n))
    expected[:m] = rounded(x[:m]) @ w.T
    np.testing.assert_allclose(floats(out, rows, n), expected, rtol=1e-4, atol=1e-4 + rounding(w, x))
