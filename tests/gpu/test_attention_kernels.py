"""RoPE, the paged keys and values, and attention against numpy, over pages in any order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from py_core.backends import numpy as reference
from py_core.backends.page_table import PAGE
from py_core.backends.sampling_state import state_bytes

MAX_ROWS = 8
SLOTS, MAX_PAGES, POOL = 3, 4, 13

few = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@st.composite
def cases(draw: st.DrawFn) -> dict:
    groups, kv_heads = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    m = draw(st.integers(1, MAX_ROWS))
    return {
        "heads": groups * kv_heads,
        "kv_heads": kv_heads,
        "head_dim": 8 * draw(st.integers(1, 9)),
        "m": m,
        "start": draw(st.integers(0, MAX_PAGES * PAGE - m)),
        "slot": draw(st.integers(0, SLOTS - 1)),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


class Pages:
    """A pool of pages and a table with random places, as arrays."""

    def __init__(self, rng: np.random.Generator, case: dict, kind: str) -> None:
        self.case, self.dtype = case, np.float16 if kind == "kv_f16" else np.float32
        shape = (POOL, 2, case["kv_heads"], PAGE, case["head_dim"])
        self.pool = rng.standard_normal(shape).astype(self.dtype)
        self.table = rng.permutation(POOL)[: SLOTS * MAX_PAGES].reshape(SLOTS, MAX_PAGES).astype(np.uint32)

    def sequence(self, pool: np.ndarray, which: int) -> np.ndarray:
        """All positions of the case's slot: (MAX_PAGES * PAGE, kv_heads, head_dim)"""
        pages = pool[self.table[self.case["slot"]], which]  # (pages, kv_heads, PAGE, head_dim)
        return pages.transpose(0, 2, 1, 3).reshape(-1, *pages.shape[1::2]).astype(np.float32)


def rows_of(case: dict) -> bytes:
    rows = [(0, case["start"] + row, case["slot"]) for row in range(case["m"])]
    return state_bytes(rows) + bytes(16 * (MAX_ROWS - case["m"]))


def sizes(case: dict) -> dict:
    return {
        "MAX_ROWS": MAX_ROWS, "HEADS": case["heads"], "KV_HEADS": case["kv_heads"], "HEAD_DIM": case["head_dim"],
        "PAGE": PAGE, "MAX_PAGES": MAX_PAGES,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["kv_f32", "kv_f16"])
@pytest.mark.parametrize("interleaved", [True, False])
@given(case=cases())
@few
def test_rope_append_rotates_q_and_k_and_stores_k_and_v(run_kernel, kind, interleaved, case) -> None:
    rng = np.random.default_rng(case["seed"])
    heads, kv_heads, head_dim, m = case["heads"], case["kv_heads"], case["head_dim"], case["m"]
    pages = Pages(rng, case, kind)
    width = (heads + 2 * kv_heads) * head_dim
    qkv = rng.standard_normal((MAX_ROWS, width)).astype(np.float32)
    angles = rng.uniform(0, 7, (MAX_PAGES * PAGE, head_dim // 2))
    table = np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)
    q_out, pool = run_kernel(
        "rope_append",
        [rows_of(case), qkv, table, pages.table, bytes(4 * MAX_ROWS * heads * head_dim), pages.pool],
        (-(-width // 4 // 8), m, 1), {"kv": kind}, **sizes(case), WORKGROUP=8, INTERLEAVED=interleaved,
    )  # fmt: skip
    positions = slice(case["start"], case["start"] + m)
    q, k, v = np.split(qkv[:m], [heads * head_dim, (heads + kv_heads) * head_dim], axis=1)
    expected_q = reference.rope(q, table[positions], heads, interleaved)
    got_q = np.frombuffer(q_out, np.float32).reshape(MAX_ROWS, -1)[:m]
    np.testing.assert_allclose(got_q, expected_q, rtol=1e-5, atol=1e-6)
    # What was not written must be as before, everywhere in the pool.
    expected_k, expected_v = pages.sequence(pages.pool, 0), pages.sequence(pages.pool, 1)
    expected_k[positions] = reference.rope(k, table[positions], kv_heads, interleaved).reshape(m, kv_heads, head_dim)
    expected_v[positions] = v.reshape(m, kv_heads, head_dim)
    after = np.frombuffer(pool, pages.dtype)[: pages.pool.size].reshape(pages.pool.shape)
    tolerance = {"rtol": 2e-3, "atol": 1e-3} if kind == "kv_f16" else {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(pages.sequence(after, 0), expected_k, **tolerance)
    np.testing.assert_allclose(pages.sequence(after, 1), expected_v, **tolerance)
    others = np.setdiff1d(np.arange(POOL), pages.table[case["slot"]])
    np.testing.assert_array_equal(after[others], pages.pool[others])


@pytest.mark.parametrize("kind", ["kv_f32", "kv_f16"])
@pytest.mark.parametrize(("lanes", "workgroup"), [(1, 4), (16, 16), (32, 32)])
@given(case=cases(), spread=st.sampled_from([0.0, 1.0, 12.0]))
@few
def test_attention_equals_numpy(run_kernel, kind, lanes, workgroup, case, spread) -> None:
    rng = np.random.default_rng(case["seed"])
    heads, head_dim, m = case["heads"], case["head_dim"], case["m"]
    pages = Pages(rng, case, kind)
    q = (rng.standard_normal((MAX_ROWS, heads * head_dim)) * spread).astype(np.float32)
    merge = "merge_single" if lanes == 1 else "merge_workgroup"
    (out,) = run_kernel(
        "attention", [rows_of(case), q, pages.table, pages.pool, bytes(q.nbytes)],
        (-(-heads // (workgroup // lanes)), m, 1), {"kv": kind, "merge_lanes": merge},
        **sizes(case), LANES=lanes, WORKGROUP=workgroup,
    )  # fmt: skip
    positions = np.arange(case["start"], case["start"] + m)
    keys, values = pages.sequence(pages.pool, 0), pages.sequence(pages.pool, 1)
    expected = reference.attention(q[:m], keys, values, positions, heads)
    got = np.frombuffer(out, np.float32).reshape(MAX_ROWS, -1)[:m]
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-4)
