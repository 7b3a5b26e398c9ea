"""Each kernel against numpy on random shapes, in every variant that an adapter may choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from py_core.backends.numpy import rows as reference
from py_core.backends.sampling_state import ROW_BYTES, state_bytes
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.weights.layout import LAYOUTS
from py_core.formats.quantization import FORMATS, dequantize, quantize
from py_core.paging.page_table import PAGE
from tests.backends.variants import covering, gated, named
from tests.backends.webgpu.gpu_layout import to_gpu_layout

FORMAT_NAMES = list(FORMATS)
BESIDE = ("MXFP4", "TQ1_0", "TQ2_0")
"""Formats whose blocks are read like those of others, so that a variant of each kernel outside the gate is enough."""
DRAWN = [name for name in FORMAT_NAMES if name not in BESIDE]
REDUCTIONS = [
    ("reduce_single", 1, 8),
    ("reduce_workgroup", 1, 8),
    ("reduce_workgroup", 8, 32),
    ("reduce_workgroup", 32, 64),
    ("reduce_subgroup", 4, 16),
]


def lane_group_constants(
    lanes: int, workgroup: int, subgroups: int, row_tiles: int, chunk: int, k: int
) -> dict[str, int]:
    """A shape of a matvec: a workgroup of whole lane groups; several row tiles only if all of x is at hand."""
    whole = chunk >= k // 32
    subgroups = subgroups if workgroup % (lanes * subgroups) == 0 else 1
    return {"LANES": lanes, "WORKGROUP": workgroup, "SUBGROUPS": subgroups, "ROW_TILES": row_tiles if whole else 1,
            "CHUNK": k // 32 if whole else chunk}  # fmt: skip


def snippets_of(form: str, reduce: str, integers: bool) -> dict[str, str]:
    """Snippets of a matvec: without sums over lanes, x is read in place. Integers multiply codes only."""
    columns = "x_limbs" if integers and LAYOUTS[form].quantized else "x_staged"
    if reduce == "reduce_single":
        columns = "x_direct"
    return {"dequantize": f"dequantize_{form.lower()}", "reduce": reduce, "columns": columns}


def with_all_formats(variants: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The variants, and the first of them once more in each of the formats that have no variants of their own."""
    return [*variants, *({**variants[0], "form": form} for form in BESIDE)]


MAX_ROWS = 16
PLAIN = {"FIRST_ROW": 0, "ADD_BIAS": False, "BIAS_AT": 0, "GELU": False}
"""Constants of a linear with all rows of W, without biases."""

SEEDS = st.integers(0, 2**32 - 1)
few = settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
more = settings(few, max_examples=10)


def state(count: int, logit_rows: int = 0) -> bytes:
    rows = [(0, position, 0) for position in range(count)]
    return state_bytes(rows, logit_rows=logit_rows) + bytes(ROW_BYTES * (MAX_ROWS - count))


def random_matrix(
    host: WgpuHost, rng: np.random.Generator, rows: int, columns: int, form: str
) -> tuple[tuple[bytes, bytes], np.ndarray]:
    """Quants and scales of a random matrix, and the values they stand for."""
    values = rng.standard_normal((rows, columns)).astype(np.float32)
    data = quantize(values, FORMATS[form])
    return to_gpu_layout(host, data, form, columns), dequantize(data, FORMATS[form], (rows, columns))


def floats(data: bytes, *shape: int) -> np.ndarray:
    return np.frombuffer(data, np.float32)[: int(np.prod(shape))].reshape(shape)


def expected_linear(
    w: np.ndarray, bias: np.ndarray, x: np.ndarray, before: np.ndarray, epilogue: int, gelu: bool
) -> np.ndarray:
    out = x.astype(np.float64) @ w.astype(np.float64).T + bias
    if epilogue == 1:
        out = out + before
    if epilogue == 2:
        out = reference.glu(*np.split(out, 2, axis=1), "gelu" if gelu else "silu")
    return out


def rounded(x: np.ndarray) -> np.ndarray:
    """x in the form that integer kernels read: 16 bits for each value of a block of 32."""
    blocks = x.astype(np.float64).reshape(-1, 32)
    step = np.maximum(np.abs(blocks).max(axis=1, keepdims=True), 1e-30) / 32639
    return (np.rint(blocks / step) * step).reshape(x.shape)


def rounding(w: np.ndarray, x: np.ndarray) -> float:
    """The change of a sum if values of x that are halfway between two steps are rounded the other way."""
    return float(5 * np.abs(x).max() / 32639 * np.abs(w).max())


def random_bias(rng: np.random.Generator, variant: dict, rows: int, before: np.ndarray) -> tuple[np.ndarray, dict]:
    """A bias for each row of W, or zeros, and the constants for its place behind other vectors."""
    if not variant["bias"]:
        return np.zeros(rows, np.float32), {"ADD_BIAS": False, "BIAS_AT": 0}
    return rng.standard_normal(rows).astype(np.float32), {"ADD_BIAS": True, "BIAS_AT": len(before)}


def width(form: str, blocks: int) -> int:
    """Number of columns: this many blocks of 32, or fewer superblocks."""
    size = FORMATS[form].block_size
    return 32 * blocks if size <= 32 else size * -(-blocks // 4)


SIZES = {
    "form": DRAWN, "n": [1, 7, 32, 75], "blocks": [1, 2, 5, 9], "epilogue": [0, 1, 2], "offset": [0, 3],
    "first": [0, 0, 3], "bias": [False, True], "gelu": [False, True],
}  # fmt: skip
"""Sizes of a matrix product; `n` rows of results, `offset` their place in a row of y, `first` rows of W before
them."""


@named(
    with_all_formats(covering(
        33, reduction=REDUCTIONS, **SIZES, tile=[1, 2, 4, 8], together=[1, 2, 3], norm=[False, True],
        logits=[False, True], one=[False, False, True], chunk=[1, 3, 12], integers=[False, True],
        subgroups=[1, 2, 3, 4], row_tiles=[1, 2, 5], cap=[0.0, 0.0, 4.0],
    )),
    gate=15,  # the formats
)  # fmt: skip
@given(m=st.integers(1, 9), logits=st.integers(1, 9), seed=SEEDS)
@few
def test_matvec_equals_numpy_and_leaves_the_rest_alone(run_kernel, variant, m, logits, seed) -> None:
    rng = np.random.default_rng(seed)
    (reduce, lanes, workgroup), form, one = variant["reduction"], variant["form"], variant["one"]
    n, k, offset, epilogue = variant["n"], width(form, variant["blocks"]), variant["offset"], variant["epilogue"]
    rows = 2 * n if epilogue == 2 else n
    m, tile = (1, 1) if one else (m, variant["tile"] if variant["row_tiles"] == 1 else 2)
    count = min(logits, m) if variant["logits"] else m
    staged = reduce != "reduce_single"
    norm, subgroups, chunk = (variant["norm"], variant["subgroups"], variant["chunk"]) if staged else (False, 1, 1)
    lane_group = lane_group_constants(
        lanes, workgroup * (3 if subgroups == 3 else 1), subgroups, variant["row_tiles"], chunk, k
    )
    first = variant["first"]
    data, w = random_matrix(run_kernel.host, rng, first + rows, k, form)
    x = rng.standard_normal((MAX_ROWS, k)).astype(np.float32)
    weight = rng.standard_normal(k).astype(np.float32)
    before = np.concatenate([weight, np.full(offset, np.nan, np.float32)])
    bias, bias_constants = random_bias(rng, variant, rows, before)
    stride = n + offset + 3
    y = rng.standard_normal((MAX_ROWS, stride)).astype(np.float32)
    together = variant["together"]
    items = -(-n // together)
    groups = -(-items // (lane_group["WORKGROUP"] // lanes // lane_group["SUBGROUPS"] * lane_group["ROW_TILES"]))
    fold = 2 if groups > 3 else 1
    (out,) = run_kernel(
        "matvec", [state(m, count if variant["logits"] else 0), *data, x, np.concatenate([before, bias]), y],
        (-(-groups // fold), fold, -(-count // tile)), snippets_of(form, reduce, variant["integers"]),
        MAX_ROWS=MAX_ROWS, K=k, N=n, BLOCKS=(first + rows) * k // 32, FIRST_ROW=first, Y_STRIDE=stride, Y_OFFSET=offset,
        EPILOGUE=epilogue, GELU=variant["gelu"], CAP=variant["cap"], NORM=norm, EPS=1e-5,
        ROWS=2 * together if epilogue == 2 else together, M_TILE=tile,
        LOGITS=variant["logits"], SINGLE_ROW=one, **bias_constants, **lane_group,
    )  # fmt: skip
    used = x[m - count : m]
    used = reference.rms_norm(used, weight, 1e-5) if norm else used
    snippets, slack = snippets_of(form, reduce, variant["integers"]), 0.0
    if snippets["columns"] == "x_limbs":
        slack, used = rounding(w, used), rounded(used)
    expected = y.copy()
    wanted = expected_linear(w[first:], bias, used, y[:count, offset : offset + n], epilogue, variant["gelu"])
    scale = max(np.abs(expected).max(), np.abs(wanted).max())  # a cap leaves the errors of large values
    if variant["cap"]:
        wanted = reference.soft_cap(wanted, variant["cap"])
    expected[:count, offset : offset + n] = wanted
    np.testing.assert_allclose(floats(out, MAX_ROWS, stride), expected, rtol=1e-4, atol=(1e-5 + slack) * scale + slack)


@named(
    covering(
        9, reduction=REDUCTIONS, form=["Q8_0", "Q4_1", "F16", "Q4_K"], n=[7, 32, 75], blocks=[1, 5], together=[1, 2],
        integers=[False, True], shared=[False, True], used=[1, 3], row_tiles=[1, 2],
    ),
    gate=0,  # test_architectures.py runs it in the gate
)  # fmt: skip
@given(m=st.integers(1, 5), seed=SEEDS)
@few
def test_each_row_is_multiplied_by_its_experts(run_kernel, variant, m, seed) -> None:
    rng, experts = np.random.default_rng(seed), 4
    (reduce, lanes, workgroup), form, used = variant["reduction"], variant["form"], variant["used"]
    n, k, together = variant["n"], width(form, variant["blocks"]), variant["together"]
    slots = 1 if variant["shared"] else used
    snippets = snippets_of(form, reduce, variant["integers"])
    chunk = 1 if reduce == "reduce_single" else 12
    lane_group = lane_group_constants(lanes, workgroup, 1, variant["row_tiles"], chunk, k)
    data, w = random_matrix(run_kernel.host, rng, experts * n, k, form)
    x = rng.standard_normal((MAX_ROWS, slots * k)).astype(np.float32)
    y = rng.standard_normal((MAX_ROWS, used * n)).astype(np.float32)
    routed = reference.route(rng.standard_normal((MAX_ROWS, experts)).astype(np.float32), used, True)
    groups = -(-n // (together * (workgroup // lanes) * lane_group["ROW_TILES"]))
    (out,) = run_kernel(
        "expert_linear", [state(m), *data, x, x, y, routed], (groups, 1, m * used), snippets,
        MAX_ROWS=MAX_ROWS, K=k, N=n, BLOCKS=experts * n * k // 32, EXPERTS=experts, USED=used, SHARED=slots == 1,
        NORM=False, EPS=1e-5, ROWS=together, M_TILE=1, **lane_group,
    )  # fmt: skip
    used_x, slack = x[:m].astype(np.float64), 0.0
    if snippets["columns"] == "x_limbs":
        slack, used_x = rounding(w, used_x), rounded(used_x)
    expected = y.copy()
    expected[:m] = reference.expert_linear(used_x, routed[:m], w.reshape(experts, n, k), used)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(floats(out, *y.shape), expected, rtol=1e-4, atol=(1e-5 + slack) * scale + slack)


@named(
    with_all_formats(covering(
        15, lanes=[("reduce_subgroup", 2), ("reduce_subgroup", 4), ("reduce_workgroup", 8)],
        form=[name for name in DRAWN if LAYOUTS[name].quantized], read=[False, True], x_rows=[2, 4, 8],
        together=[1, 2, 4], subgroups=[1, 2, 4], n=[7, 32, 75], blocks=[1, 5, 9], epilogue=[0, 1, 2],
        norm=[False, True],
    ))
)  # fmt: skip
@given(m=st.integers(1, 9), logits=st.one_of(st.none(), st.integers(1, 9)), seed=SEEDS)
@few
def test_several_rows_in_integers_equal_numpy(run_kernel, variant, m, logits, seed) -> None:
    rng = np.random.default_rng(seed)
    (reduce, lanes), form, read, tile = variant["lanes"], variant["form"], variant["read"], variant["x_rows"]
    n, k, epilogue, norm = variant["n"], width(form, variant["blocks"]), variant["epilogue"], variant["norm"]
    rows, together, subgroups = 2 * n if epilogue == 2 else n, variant["together"], variant["subgroups"]
    count, needed = min(logits or m, m), state(m, min(logits or 0, m))
    data, w = random_matrix(run_kernel.host, rng, rows, k, form)
    x = rng.standard_normal((MAX_ROWS, k)).astype(np.float32)
    x[m:] = np.nan  # missing rows, of whatever was computed before
    weight = rng.standard_normal(k).astype(np.float32)
    y = rng.standard_normal((MAX_ROWS, n)).astype(np.float32)
    norms: dict[str, int | float | bool] = {"NORM": norm, "EPS": 1e-5 if norm else 0.0}
    given, columns, binding = x, "x_limbs_rows", "x_binding"
    if read:
        given = np.zeros((MAX_ROWS, 5, k // 32, 4), np.uint32)
        (limbs,) = run_kernel(
            "row_limbs", [needed, x, weight, given], (-(-k // 16 // 64), MAX_ROWS, 1), {"reduce": reduce},
            MAX_ROWS=MAX_ROWS, K=k, LANES=lanes, WORKGROUP=64, LOGITS=logits is not None, **norms,
        )  # fmt: skip
        given, columns, binding = np.frombuffer(limbs, np.uint32), "x_limbs_read", "x_binding_limbs"
        norms = {"NORM": False, "EPS": 0.0}
    lane_group = lanes * subgroups
    items = -(-n // together)
    (out,) = run_kernel(
        "matvec", [needed, *data, given, weight, y], (-(-items // (64 // lane_group)), 1, -(-MAX_ROWS // tile)),
        {"dequantize": f"dequantize_{form.lower()}", "reduce": reduce, "columns": columns, "x_binding": binding},
        MAX_ROWS=MAX_ROWS, K=k, N=n, BLOCKS=rows * k // 32, Y_STRIDE=n, Y_OFFSET=0, EPILOGUE=epilogue, CAP=0.0,
        ROWS=2 * together if epilogue == 2 else together, M_TILE=tile, LANES=lanes, SUBGROUPS=subgroups, ROW_TILES=1,
        WORKGROUP=64, CHUNK=lane_group if read else k // 32, LOGITS=logits is not None, SINGLE_ROW=False, **PLAIN,
        **norms,
    )  # fmt: skip
    used = x[m - count : m]
    used = reference.rms_norm(used, weight, 1e-5) if norm else used
    slack, used = rounding(w, used), rounded(used)
    expected = y.copy()
    expected[:count] = expected_linear(w, np.zeros(rows), used, y[:count], epilogue, False)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(floats(out, MAX_ROWS, n), expected, rtol=1e-4, atol=(1e-5 + slack) * scale + slack)


def all_values(rng: np.random.Generator, k: int) -> np.ndarray:
    """Blocks of any magnitude side by side: zeros, one large value, values just below a power of two."""
    x = rng.standard_normal((k // 32, 32))
    x[:, 0] *= rng.choice([1, 1, 1e3], k // 32)
    nearly = rng.random(k // 32) < 0.3
    x[nearly] = np.sign(x[nearly]) * rng.choice([1 - 2**-24, 1 - 2**-9, 1 - 2**-6, 0.5], nearly.sum())[:, None]
    return (x * rng.choice([0, 1, 1, 30], k // 32)[:, None]).astype(np.float32).ravel()


QUANTIZED = [name for name in FORMAT_NAMES if LAYOUTS[name].quantized]


@pytest.mark.parametrize(
    ("form", "blocks", "norm"),
    gated(
        [(form, *size) for form in QUANTIZED for size in ((1, True), (40, False))],
        lambda case: case[2] == (QUANTIZED.index(case[0]) % 3 == 0),
    ),
)
@given(
    size=st.sampled_from([1e-30, 1e-9, 1, 1e4, 1e30]), kind=st.sampled_from(["normal", "positive", "any"]), seed=SEEDS
)
@more
def test_integers_are_as_exact_as_floats_of_rounded_values(run_kernel, form, blocks, size, norm, kind, seed) -> None:
    rng = np.random.default_rng(seed)
    n, k, norm = 40, width(form, blocks), norm and 1e-9 <= size <= 1e4
    data, w = random_matrix(run_kernel.host, rng, n, k, form)
    x = all_values(rng, k) if kind == "any" else rng.standard_normal(k).astype(np.float32)
    x = np.float32(size) * (np.abs(x) if kind == "positive" else x)
    weight = rng.standard_normal(k).astype(np.float32)
    used = x.astype(np.float64)
    if norm:
        used = used * weight / np.sqrt(np.mean(used**2) + 1e-5)
    w = w.astype(np.float64)
    expected = {False: w @ used, True: w @ rounded(used)}
    errors = {}
    for integers in (False, True):
        (out,) = run_kernel(
            "matvec", [state(1), *data, x, weight, bytes(4 * n)], (-(-n // 4), 1, 1),
            snippets_of(form, "reduce_workgroup", integers),
            MAX_ROWS=1, K=k, N=n, BLOCKS=n * k // 32, Y_STRIDE=n, Y_OFFSET=0, EPILOGUE=0, NORM=norm, EPS=1e-5, ROWS=1,
            M_TILE=1, LOGITS=False, SINGLE_ROW=True, **lane_group_constants(8, 32, 1, 1, 11, k), **PLAIN, CAP=0.0,
        )  # fmt: skip
        errors[integers] = np.abs(floats(out, n) - expected[integers]).max()
    scale = np.abs(expected[False]).max()
    assert errors[True] <= max(2 * errors[False], 1e-6 * scale) + rounding(w, used)


@named(
    with_all_formats(covering(
        22, reduction=REDUCTIONS, form=DRAWN, heads=[(1, 1), (3, 1), (4, 2)], first=[0, 1, 2],
        head_dim=[8, 24, 64], blocks=[1, 3, 5], tile=[1, 2, 4], norm=[False, True], interleaved=[False, True],
        one=[False, False, True], chunk=[1, 3, 9], integers=[False, True], subgroups=[1, 2, 4], row_tiles=[1, 2, 5],
        rotated=[0, 0.25, 0.75, 1, 1], bias=[False, True], before=[0, 0, 3],
    )),
    gate=10,
)  # fmt: skip
@given(m=st.integers(1, 5), seed=SEEDS)
@few
def test_qkv_rotates_and_appends_as_numpy_does(run_kernel, variant, m, seed) -> None:
    rng = np.random.default_rng(seed)
    (reduce, lanes, workgroup), form, one = variant["reduction"], variant["form"], variant["one"]
    (heads, kv_heads), first, head_dim = variant["heads"], variant["first"], variant["head_dim"]
    k, interleaved = width(form, variant["blocks"]), variant["interleaved"]
    m, tile = (1, 1) if one else (m, variant["tile"] if variant["row_tiles"] == 1 else 2)
    staged = reduce != "reduce_single"
    norm, subgroups, chunk = (variant["norm"], variant["subgroups"], variant["chunk"]) if staged else (False, 1, 1)
    lane_group = lane_group_constants(lanes, workgroup, subgroups, variant["row_tiles"], chunk, k)
    # The kernel may be given some of the heads only, when their formats differ.
    count = heads + 2 * kv_heads - first
    before, pairs = variant["before"], int(variant["rotated"] * head_dim) // 2
    data, w = random_matrix(run_kernel.host, rng, before + count * head_dim, k, form)
    x = rng.standard_normal((MAX_ROWS, k)).astype(np.float32)
    weight = rng.standard_normal(k).astype(np.float32)
    bias, bias_constants = random_bias(rng, variant, count * head_dim, weight)
    positions = rng.choice(3 * PAGE, m, replace=False)
    turn = rng.uniform(0, 2 * np.pi, (3 * PAGE, max(pairs, 1)))
    table = np.stack([np.cos(turn), np.sin(turn)], axis=-1).astype(np.float32)
    pages = np.stack([np.zeros(3, np.uint32), rng.permutation(3).astype(np.uint32)])
    rows = state_bytes([(0, int(position), 1) for position in positions]) + bytes(ROW_BYTES * (MAX_ROWS - m))
    q = rng.standard_normal((MAX_ROWS, heads, head_dim)).astype(np.float32)
    kv = rng.standard_normal((3, 2, kv_heads, PAGE, head_dim)).astype(np.float32)
    groups = -(-count * head_dim // 2 // (workgroup // lanes // lane_group["SUBGROUPS"] * lane_group["ROW_TILES"]))
    out_q, out_kv = run_kernel(
        "qkv", [rows, *data, x, np.concatenate([weight, bias]), table, pages, q, kv], (groups, 1, -(-m // tile)),
        snippets_of(form, reduce, variant["integers"]),
        MAX_ROWS=MAX_ROWS, K=k, N=count * head_dim, BLOCKS=(before + count * head_dim) * k // 32, FIRST_ROW=before,
        FIRST_HEAD=first, HEADS=heads, KV_HEADS=kv_heads, HEAD_DIM=head_dim, PAGE=PAGE, MAX_PAGES=3, PAIRS=pairs,
        INTERLEAVED=interleaved, NORM=norm, EPS=1e-5, ROWS=2, M_TILE=tile, SINGLE_ROW=one, **bias_constants,
        **lane_group,
    )  # fmt: skip
    used = reference.rms_norm(x[:m], weight, 1e-5) if norm else x[:m]
    slack = 0.0
    if snippets_of(form, reduce, variant["integers"])["columns"] == "x_limbs":
        slack, used = rounding(w, used), rounded(used)
    product = used.astype(np.float64) @ w[before:].T.astype(np.float64) + bias
    product = product.astype(np.float32).reshape(m, count, head_dim)
    turn_of = table[positions, :pairs]
    turned = reference.rope(product.reshape(m, -1), turn_of, count, interleaved).reshape(product.shape)
    expected_q, expected_kv = q.copy(), kv.copy()
    for at in range(count):
        head = first + at
        if head < heads:
            expected_q[:m, head] = turned[:, at]
            continue
        is_value = head >= heads + kv_heads
        for row, position in enumerate(positions):
            page = pages[1, position // PAGE]
            value = (product if is_value else turned)[row, at]
            expected_kv[page, int(is_value), (head - heads) % kv_heads, position % PAGE] = value
    scale = np.abs(product).max()
    np.testing.assert_allclose(floats(out_q, *q.shape), expected_q, rtol=1e-4, atol=1e-5 * scale + slack)
    np.testing.assert_allclose(floats(out_kv, *kv.shape), expected_kv, rtol=1e-4, atol=1e-5 * scale + slack)


class RandomMatmul:
    """A matmul of m rows in a variant of SIZES and of "shape", (slices, wide): a kernel's input, and its y.

    `data` are the buffers of W, x (MAX_ROWS, K), `vectors` (the bias behind unrelated numbers), y (MAX_ROWS,
    stride).
    """

    def __init__(self, run_kernel, variant: dict, m: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        (slices, wide), form, epilogue = variant["shape"], variant["form"], variant["epilogue"]
        n, k, offset, first = variant["n"], width(form, variant["blocks"]), variant["offset"], variant["first"]
        rows = 2 * n if epilogue == 2 else n
        self._variant, self._m = variant, m
        self.data, self.w = random_matrix(run_kernel.host, rng, first + rows, k, form)
        self.x = rng.standard_normal((MAX_ROWS, k)).astype(np.float32)
        before = np.full(offset, np.nan, np.float32)
        self._bias, bias_constants = random_bias(rng, variant, rows, before)
        self.vectors = np.concatenate([before, self._bias])
        self.y = rng.standard_normal((MAX_ROWS, n + offset + 3)).astype(np.float32)
        self.snippets = {"dequantize": f"dequantize_{form.lower()}"}
        self.constants = {
            "MAX_ROWS": MAX_ROWS, "K": k, "N": n, "BLOCKS": (first + rows) * k // 32, "FIRST_ROW": first,
            "Y_STRIDE": self.y.shape[1], "Y_OFFSET": offset, "EPILOGUE": epilogue, "GELU": variant["gelu"],
            "SLICES": slices, "WIDE": wide, **bias_constants,
        }  # fmt: skip

    def expected(self, x: np.ndarray) -> np.ndarray:
        """y after it, if x is in the kernel's form; the rest is left alone."""
        v, y = self._variant, self.y.copy()
        at = np.s_[: self._m, v["offset"] : v["offset"] + v["n"]]
        y[at] = expected_linear(self.w[v["first"] :], self._bias, x[: self._m], self.y[at], v["epilogue"], v["gelu"])
        return y


@named(with_all_formats(covering(22, shape=[(2, 2), (2, 1), (4, 1)], **SIZES)))
@given(m=st.integers(1, MAX_ROWS), seed=SEEDS)
@few
def test_matmul_equals_numpy_and_leaves_the_rest_alone(run_kernel, variant, m, seed) -> None:
    problem = RandomMatmul(run_kernel, variant, m, seed)
    wide, epilogue = variant["shape"][1], variant["epilogue"]
    (out,) = run_kernel(
        "matmul", [state(m), *problem.data, problem.x, problem.vectors, problem.y],
        (-(-variant["n"] // ((16 if epilogue == 2 else 32) * wide)), 1, -(-m // 32)), problem.snippets,
        **problem.constants,
    )  # fmt: skip
    expected = problem.expected(problem.x)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(floats(out, *expected.shape), expected, rtol=1e-4, atol=1e-5 * scale)


def test_matmul_over_several_tiles_of_rows(run_kernel) -> None:
    rng = np.random.default_rng(1)
    m, n, k, rows = 71, 130, 96, 96
    data, w = random_matrix(run_kernel.host, rng, n, k, "Q4_1")
    x = rng.standard_normal((rows, k)).astype(np.float32)
    many = state_bytes([(0, position, 0) for position in range(m)]) + bytes(ROW_BYTES * (rows - m))
    (out,) = run_kernel(
        "matmul", [many, *data, x, x, bytes(4 * rows * n)], (3, 2, 3), {"dequantize": "dequantize_q4_1"},
        MAX_ROWS=rows, K=k, N=n, BLOCKS=n * k // 32, Y_STRIDE=n, Y_OFFSET=0, EPILOGUE=0, SLICES=2, WIDE=1, **PLAIN,
    )  # fmt: skip
    expected = np.zeros((rows, n))
    expected[:m] = x[:m] @ w.T
    np.testing.assert_allclose(floats(out, rows, n), expected, rtol=1e-4, atol=1e-3)


# test_repack.py reads every format with this kernel.
@pytest.mark.parametrize(
    ("form", "rows", "blocks", "scale"),
    gated(
        [(form, *size) for form in FORMAT_NAMES for size in ((1, 1, 1.0), (40, 7, 11.3))],
        lambda case: case in [("Q8_0", 1, 1, 1.0), ("Q4_1", 40, 7, 11.3), ("Q6_K", 40, 7, 11.3), ("F16", 40, 7, 11.3)],
    ),
)
@given(m=st.integers(1, 5), seed=SEEDS)
@more
def test_embedding_gathers_the_tokens_rows(run_kernel, form, rows, blocks, scale, m, seed) -> None:
    rng = np.random.default_rng(seed)
    k, first = width(form, blocks), 7
    data, table = random_matrix(run_kernel.host, rng, rows, k, form)
    # Some tokens are in another part of the table: their rows stay unchanged.
    tokens = rng.integers(0, rows + 2 * first, m)
    rows_state = state_bytes([(int(token), 0, 0) for token in tokens]) + bytes(ROW_BYTES * (MAX_ROWS - m))
    x = rng.standard_normal((MAX_ROWS, k)).astype(np.float32)
    (out,) = run_kernel(
        "embedding", [rows_state, *data, x], (-(-k // 8 // 4), m, 1), {"dequantize": f"dequantize_{form.lower()}"},
        MAX_ROWS=MAX_ROWS, K=k, N=rows, BLOCKS=rows * k // 32, FIRST_ROW=first, SCALE=scale, WORKGROUP=4,
    )  # fmt: skip
    expected = x.copy()
    for row, token in enumerate(tokens):
        if first <= token < first + rows:
            expected[row] = table[token - first] * np.float32(scale)
    np.testing.assert_allclose(floats(out, MAX_ROWS, k), expected, rtol=0 if scale == 1 else 1e-6)


NORMS = [(1, 1, False), (45, 3, False), (300, 1, True)]
"""Values of a norm, norms of a row, and whether the result is added to the old values."""


@pytest.mark.parametrize(
    ("reduce", "lanes", "workgroup", "k", "heads", "add"),
    gated(
        [(*reduction, *norm) for reduction in REDUCTIONS for norm in NORMS],
        lambda case: REDUCTIONS.index(case[:3]) % 3 == NORMS.index(case[3:]),
    ),
)
@given(
    logits=st.sampled_from([0, 1, 2]), m=st.integers(2, 6), scale=st.sampled_from([1e-4, 1.0, 1e3]), seed=SEEDS
)  # fmt: skip
@more
def test_rms_norm_equals_numpy(run_kernel, reduce, lanes, workgroup, logits, k, heads, add, m, scale, seed) -> None:
    rng, weighted = np.random.default_rng(seed), k != 45
    x = (rng.standard_normal((MAX_ROWS, heads * k)) * scale).astype(np.float32)
    weight = rng.standard_normal(k).astype(np.float32)
    y = rng.standard_normal(x.shape).astype(np.float32)
    (out,) = run_kernel(
        "rms_norm", [state(m, logits), weight, x, y], (logits or m, heads, 1), {"reduce": reduce},
        MAX_ROWS=MAX_ROWS, K=k, HEADS=heads, EPS=1e-5, ADD=add, LANES=lanes, WORKGROUP=lanes,
        LOGITS=logits > 0, WEIGHTED=weighted,
    )  # fmt: skip
    wanted = x[m - (logits or m) : m]
    expected = y.copy()
    expected[: len(wanted)] = reference.rms_norm(wanted, weight if weighted else np.ones_like(weight), 1e-5) + (
        y[: len(wanted)] if add else 0
    )
    np.testing.assert_allclose(floats(out, *x.shape), expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(("quads", "m"), [(1, 1), (17, 3), (40, MAX_ROWS)])
def test_rows_are_copied_and_the_rest_is_left_alone(run_kernel, quads, m) -> None:
    x, y = np.random.default_rng(7).standard_normal((2, MAX_ROWS, 4 * quads)).astype(np.float32)
    grid = (-(-quads // 8), m, 1)
    (out,) = run_kernel("copy_rows", [state(m), x, y], grid, MAX_ROWS=MAX_ROWS, K=4 * quads, WORKGROUP=8)
    np.testing.assert_array_equal(floats(out, MAX_ROWS, 4 * quads), np.concatenate([x[:m], y[m:]]))
