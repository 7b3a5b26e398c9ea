"""The kernels that make A x, and those that add B to it, against numpy on random shapes."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from py_core.backends.numpy import rows as reference
from tests.backends.variants import covering, named
from tests.backends.webgpu.test_integer_matmul import limbs_of
from tests.backends.webgpu.test_kernels import MAX_ROWS, PLAIN, SEEDS, few, floats, random_matrix, state

NO_ROW = 2**32 - 1


def matrices(rng: np.random.Generator, linears: int, k: int, rank: int) -> np.ndarray:
    """A as a set stores it."""
    return rng.standard_normal((linears, k, rank)).astype(np.float32)


@named(
    covering(
        7, rank=[8, 16], linears=[1, 2, 3], lanes=[2, 8, 32], subgroups=[1, 2], row_tiles=[1, 2], epilogue=[0, 1, 2],
        parts=[1, 5, 16], norm=[False, True], follow=[1, 3],
    ),
    gate=5,
)  # fmt: skip
@given(seed=SEEDS)
@few
def test_a_matvec_adds_up_parts_of_a_x_and_leaves_parts_for_what_reads_its_result(run_kernel, variant, seed) -> None:
    rng = np.random.default_rng(seed)
    rank, lanes, subgroups, row_tiles = (variant[name] for name in ("rank", "lanes", "subgroups", "row_tiles"))
    gated, norm, parts, follow = variant["epilogue"] == 2, variant["norm"], variant["parts"], variant["follow"]
    linears = 2 if gated else variant["linears"]
    workgroup, k, together = 64, 96, 2
    tile = workgroup // lanes // subgroups * row_tiles * together
    n = 3 * tile
    rows = 2 * n if gated else n
    # Linears also begin in the middle of a lane group's rows.
    second, third = n if gated else n // 3 + 1, n // 2 + 1
    data, w = random_matrix(run_kernel.host, rng, rows, k, "F32")
    x, weight = rng.standard_normal((MAX_ROWS, k)).astype(np.float32), rng.standard_normal(k).astype(np.float32)
    products = np.zeros((MAX_ROWS, linears, rank), np.float32)
    products[:parts] = rng.standard_normal((parts, linears, rank))
    b, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, rank), (MAX_ROWS, n)))
    following = matrices(rng, follow, n, rank)
    after = np.concatenate([np.full(MAX_ROWS * follow * rank, np.nan, np.float32), following.ravel()])
    shares = 2 if 2 * follow * rank <= workgroup else 1
    out, left = run_kernel(
        "matvec", [state(1), *data, x, weight, y, np.concatenate([products.ravel(), b.ravel()]), after], (3, 1, 1),
        {
            "dequantize": "dequantize_f32", "reduce": "reduce_workgroup", "columns": "x_staged", "lora": "lora_parts",
            "lora_binding": "lora_binding_6", "lora_next": "lora_next_part", "lora_next_binding": "lora_next_binding_7",
        },
        MAX_ROWS=MAX_ROWS, K=k, N=n, BLOCKS=rows * k // 32, Y_STRIDE=n, Y_OFFSET=0, EPILOGUE=variant["epilogue"],
        CAP=0.0, NORM=norm, EPS=1e-5, ROWS=2 * together if gated else together, M_TILE=1, LOGITS=False,
        SINGLE_ROW=True, LANES=lanes, WORKGROUP=workgroup, SUBGROUPS=subgroups, ROW_TILES=row_tiles, CHUNK=k // 32,
        RANK=rank, LINEARS=linears, LORA_SECOND=second if linears > 1 else NO_ROW,
        LORA_THIRD=third if linears > 2 else NO_ROW, LORA_FIRST=0, LORA_B=products.size, LORA_PARTS=parts,
        LORA_GATED=gated, NEXT_LINEARS=follow, NEXT_K=n, NEXT_TILE=tile, NEXT_SHARES=shares,
        NEXT_A=MAX_ROWS * follow * rank, **PLAIN,
    )  # fmt: skip
    scale = 1 / np.sqrt(np.mean(np.square(x[0], dtype=np.float64)) + 1e-5) if norm else 1.0
    starts = [*[0, second, third][:linears], rows]
    of_row = np.searchsorted(starts, np.arange(rows), side="right") - 1
    sums = (w @ (x[0] * weight if norm else x[0]) + np.einsum("nr,nr->n", b, products.sum(0)[of_row])) * scale
    made = sums[None].astype(np.float64)
    if gated:
        made = reference.glu(*np.split(made, 2, axis=1))
    if variant["epilogue"] == 1:
        made = made + y[0]
    np.testing.assert_allclose(floats(out, MAX_ROWS, n)[0], made[0], rtol=1e-4, atol=1e-5 * np.abs(sums).max() ** 2)
    expected = np.einsum("pt,lptr->plr", made.reshape(3, tile), following.reshape(follow, 3, tile, rank))
    found = floats(left, MAX_ROWS * follow * rank)[: 3 * follow * rank].reshape(3, follow, rank)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@named(
    covering(6, rank=[8, 16], linears=[1, 2, 3], k=[32, 96, 160], tile=[1, 4], shape=[(0, 0), (64, 0), (64, 32)],
             limbs=[False, True]),
    gate=4,
)  # fmt: skip
@given(m=..., seed=SEEDS)
@few
def test_a_x_of_rows_is_made_for_each_linear_beside_integers_of_x(run_kernel, variant, m: bool, seed) -> None:
    rng = np.random.default_rng(seed)
    rank, linears, k, tile = (variant[name] for name in ("rank", "linears", "k", "tile"))
    workgroup, lanes = (max(one, rank) for one in variant["shape"])
    count = 6 if m else 1
    x = rng.standard_normal((MAX_ROWS, k)).astype(np.float32)
    a = matrices(rng, linears, k, rank)
    untouched = np.full(MAX_ROWS * linears * rank, 7, np.float32)
    records = [bytes(80 * MAX_ROWS * (k // 32))] if variant["limbs"] else []
    found, *limbs = run_kernel(
        "lora_down", [state(count), x, np.concatenate([untouched, a.ravel()]), *records],
        (linears + len(records), 1, -(-count // tile)),
        {"reduce": "reduce_workgroup", **({"limbs_of_rows": "limbs_beside"} if records else {})},
        MAX_ROWS=MAX_ROWS, K=k, M_TILE=tile, WORKGROUP=workgroup, LANES=lanes, LORA_LANES=lanes, RANK=rank,
        LINEARS=linears, LORA_A=untouched.size,
    )  # fmt: skip
    products = floats(found, MAX_ROWS, linears, rank)
    expected = np.einsum("mk,lkr->mlr", x[:count].astype(np.float64), a)
    np.testing.assert_allclose(products[:count], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    assert (products[count:] == 7).all()
    if records:
        ours, alone = (
            np.frombuffer(one, np.uint8).reshape(k // 32, MAX_ROWS, 80)
            for one in (limbs[0], limbs_of(run_kernel, x, count))
        )
        np.testing.assert_array_equal(ours[:, :count], alone[:, :count])
