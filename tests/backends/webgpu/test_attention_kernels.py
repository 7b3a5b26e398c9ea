"""RoPE, the paged keys and values, and attention against numpy, over pages in any order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from py_core.backend_errors import BackendError
from py_core.backends.numpy import rows as reference
from py_core.backends.pass_blocks import seen_ahead
from py_core.backends.sampling_state import ROW_BYTES, state_bytes
from py_core.backends.webgpu.attention import (
    SHORT,
    SPLIT,
    heads_each,
    lane_group_shape,
    length_class_of,
    reduction_of,
)
from py_core.backends.webgpu.kernel_shapes import choose_shapes
from py_core.paging.page_table import PAGE
from tests.backends.variants import covering, named

MAX_ROWS = 8
SLOTS, MAX_PAGES, POOL = 3, 4, 13

few = settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@st.composite
def cases(draw: st.DrawFn) -> dict:
    m = draw(st.integers(1, MAX_ROWS))
    return {
        "m": m,
        "start": draw(st.integers(0, MAX_PAGES * PAGE - m)),
        "slot": draw(st.integers(0, SLOTS - 1)),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


class Pages:
    """A pool of pages and a table with random places, as arrays."""

    def __init__(self, rng: np.random.Generator, case: dict) -> None:
        self.case = case
        shape = (POOL, 2, case["kv_heads"], PAGE, case["head_dim"])
        self.pool = rng.standard_normal(shape).astype(np.float32)
        self.table = rng.permutation(POOL)[: SLOTS * MAX_PAGES].reshape(SLOTS, MAX_PAGES).astype(np.uint32)

    def sequence(self, pool: np.ndarray, which: int) -> np.ndarray:
        """All positions of the case's slot: (MAX_PAGES * PAGE, kv_heads, head_dim)"""
        pages = pool[self.table[self.case["slot"]], which]  # (pages, kv_heads, PAGE, head_dim)
        return pages.transpose(0, 2, 1, 3).reshape(-1, *pages.shape[1::2])


def rows_of(case: dict) -> bytes:
    rows = [(0, case["start"] + row, case["slot"]) for row in range(case["m"])]
    return state_bytes(rows) + bytes(ROW_BYTES * (MAX_ROWS - case["m"]))


def sizes(case: dict) -> dict:
    return {
        "MAX_ROWS": MAX_ROWS, "HEADS": case["heads"], "KV_HEADS": case["kv_heads"], "HEAD_DIM": case["head_dim"],
        "PAGE": PAGE, "MAX_PAGES": MAX_PAGES,
    }  # fmt: skip


@named(
    covering(
        10, interleaved=[True, False], heads=[(1, 1), (4, 1), (3, 3), (4, 2)], head_dim=[8, 24, 64, 72],
        rotated=[0, 0.25, 0.75, 1, 1], norm=[False, True],
    ),
    gate=6,
)  # fmt: skip
@given(case=cases())
@few
def test_rope_append_normalizes_and_rotates_q_and_k_and_stores_k_and_v(run_kernel, variant, case) -> None:
    rng = np.random.default_rng(case["seed"])
    interleaved, (heads, kv_heads) = variant["interleaved"], variant["heads"]
    case = {**case, "heads": heads, "kv_heads": kv_heads, "head_dim": variant["head_dim"]}
    heads, kv_heads, head_dim, m = case["heads"], case["kv_heads"], case["head_dim"], case["m"]
    pages = Pages(rng, case)
    width = (heads + 2 * kv_heads) * head_dim
    qkv = rng.standard_normal((MAX_ROWS, width)).astype(np.float32)
    pairs, v_norm = int(variant["rotated"] * head_dim) // 2, variant["norm"] and not interleaved
    angles = rng.uniform(0, 7, (MAX_PAGES * PAGE, max(pairs, 1)))
    norms = rng.standard_normal((2, head_dim)).astype(np.float32)
    table = np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)
    q_out, pool = run_kernel(
        "rope_append",
        [rows_of(case), qkv, table, pages.table, *norms, bytes(4 * MAX_ROWS * heads * head_dim), pages.pool],
        (-(-width // 4 // 8), m, 1), **sizes(case), HEAD_SIZE=head_dim, WORKGROUP=8,
        INTERLEAVED=interleaved, PAIRS=pairs,
        HEAD_NORM=variant["norm"], V_NORM=v_norm, EPS=0.1,
    )  # fmt: skip
    positions = slice(case["start"], case["start"] + m)
    q, k, v = np.split(qkv[:m], [heads * head_dim, (heads + kv_heads) * head_dim], axis=1)
    if variant["norm"]:
        q, k = (reference.rms_norm(x, weight, 0.1) for x, weight in zip((q, k), norms, strict=True))
    if v_norm:
        v = reference.rms_norm(v, np.ones(head_dim, np.float32), 0.1)
    turn = table[positions, :pairs]
    expected_q = reference.rope(q, turn, heads, interleaved)
    got_q = np.frombuffer(q_out, np.float32).reshape(MAX_ROWS, -1)[:m]
    np.testing.assert_allclose(got_q, expected_q, rtol=1e-5, atol=1e-6)
    # Places that were not written must be unchanged, everywhere in the pool.
    expected_k, expected_v = pages.sequence(pages.pool, 0), pages.sequence(pages.pool, 1)
    expected_k[positions] = reference.rope(k, turn, kv_heads, interleaved).reshape(m, kv_heads, head_dim)
    expected_v[positions] = v.reshape(m, kv_heads, head_dim)
    after = np.frombuffer(pool, np.float32)[: pages.pool.size].reshape(pages.pool.shape)
    np.testing.assert_allclose(pages.sequence(after, 0), expected_k, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(pages.sequence(after, 1), expected_v, rtol=1e-5, atol=1e-6)
    others = np.setdiff1d(np.arange(POOL), pages.table[case["slot"]])
    np.testing.assert_array_equal(after[others], pages.pool[others])


@dataclass
class Sequences:
    """Rows of sequences in shuffled pages. Data that no row may read are NaN: positions after theirs or before all
    of their windows, queries past the last."""

    heads: int
    kv_heads: int
    head_dim: int
    rows: list[tuple[int, int]]
    """(position, slot) of each"""
    max_rows: int
    seed: int
    spread: float
    """Scale of the scores: large ones test the softmax's range."""
    pages: int = SHORT // PAGE + 1
    """The number of pages of each sequence."""
    softcap: float = 0.0
    window: int = 0
    ahead: list[int] = field(default_factory=list)
    """How many positions behind its own each row sees; empty for none."""

    SLOTS = 2

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        shape = (self.SLOTS, 2, self.kv_heads, self.pages * PAGE, self.head_dim)
        self.kv = rng.standard_normal(shape).astype(np.float32)
        for slot in range(self.SLOTS):
            length = self.length_of(slot)
            self.kv[slot, :, :, length:] = np.nan
            first = min((self.first_seen(position) for position, of in self.rows if of == slot), default=0)
            self.kv[slot, :, :, :first] = np.nan
        places = rng.permutation(self.SLOTS * self.pages + 1)[1:]
        self.table = places.reshape(self.SLOTS, self.pages).astype(np.uint32)
        self.pool = np.full((len(places) + 1, 2, self.kv_heads, PAGE, self.head_dim), np.nan, np.float32)
        paged = self.kv.reshape(*shape[:3], self.pages, PAGE, self.head_dim)
        self.pool[self.table] = paged.transpose(0, 3, 1, 2, 4, 5)
        self.q = np.full((self.max_rows, self.heads * self.head_dim), np.nan, np.float32)
        self.q[: len(self.rows)] = rng.standard_normal((len(self.rows), self.q.shape[1])) * self.spread
        self.beside: list[np.ndarray] = []
        """The kernel's other bindings."""
        self.reader: dict[str, str] = {}
        """The snippets that read the pages."""

    @property
    def scale(self) -> float:
        return 0.7 * self.head_dim**-0.5

    def first_seen(self, position: int) -> int:
        return max(0, position + 1 - self.window) if self.window else 0

    @property
    def m(self) -> int:
        return len(self.rows)

    @property
    def rows_ahead(self) -> list[tuple[tuple[int, int], int]]:
        return list(zip(self.rows, self.ahead or [0] * self.m, strict=True))

    def length_of(self, slot: int) -> int:
        """The positions of a slot that a row sees."""
        return max((position + ahead + 1 for (position, of), ahead in self.rows_ahead if of == slot), default=0)

    @property
    def longest(self) -> int:
        return max(map(self.length_of, range(self.SLOTS)))

    @property
    def state(self) -> bytes:
        rows = [(0, *row) for row in self.rows]
        return state_bytes(rows, ahead=self.ahead) + bytes(ROW_BYTES * (self.max_rows - self.m))

    @property
    def sizes(self) -> dict[str, float]:
        return {
            "MAX_ROWS": self.max_rows, "HEADS": self.heads, "KV_HEADS": self.kv_heads, "HEAD_DIM": self.head_dim,
            "PAGE": PAGE, "MAX_PAGES": self.pages, "SCALE": self.scale, "SOFTCAP": self.softcap, "WINDOW": self.window,
        }  # fmt: skip

    def run(
        self, run_kernel, name: str, out: np.ndarray, groups: tuple[int, int, int],
        snippets: dict[str, str] | None = None, **constants,
    ) -> np.ndarray:  # fmt: skip
        """The contents of `out` after a kernel over the pages."""
        (written,) = run_kernel(
            name,
            [self.state, self.q, self.table, self.pool, out, *self.beside],
            groups,
            {**self.reader, **(snippets or {})},
            **self.sizes,
            **constants,
        )
        return np.frombuffer(written, np.float32)[: out.size].reshape(out.shape)

    def check(self, out: np.ndarray) -> None:
        """Asserts that each row's attention equals numpy's, and that everything else is unchanged."""
        for m, ((position, slot), ahead) in enumerate(self.rows_ahead):
            first = self.first_seen(position)
            keys, values = self.kv[slot, :, :, first : position + ahead + 1].swapaxes(1, 2)
            at = np.array([position - first])
            expected = reference.attention(
                self.q[m : m + 1], keys, values, at, self.heads, self.scale, self.softcap, self.window, [ahead]
            )[0]
            np.testing.assert_allclose(out[m], expected, rtol=2e-4, atol=2e-4)
        np.testing.assert_array_equal(out[self.m :], BEFORE)


BEFORE = 7.0
BORDERS = [
    1, PAGE - 1, PAGE, PAGE + 1, SPLIT - 1, SPLIT, SPLIT + 1, SHORT - 1, SHORT, SHORT + 1, 4 * SPLIT, 4 * SPLIT + 1,
]  # fmt: skip


HEADS = [(1, 1), (2, 1), (5, 1), (8, 1), (16, 1), (3, 3), (6, 2), (12, 3)]
"""Numbers of heads of queries, and of keys and values."""
HEAD_DIMS = [8, 24, 64, 80, 96, 128, 256]
SCORES = {"softcap": [0.0, 0.0, 3.0], "window": [0, 0, 1, 40, SPLIT, 300]}


@st.composite
def sequences(
    draw: st.DrawFn, longest: int = Sequences.pages * PAGE, consecutive: int = 0
) -> Callable[[dict], Sequences]:
    """For a variant's heads: up to 8 rows of any sequences and lengths, or up to `consecutive` rows of one sequence."""
    lengths = st.sampled_from([length for length in BORDERS if length <= longest]) | st.integers(1, longest)
    slots = st.integers(0, Sequences.SLOTS - 1)
    if consecutive:
        slot, count = draw(slots), draw(st.sampled_from([1, 31, 32, 33, consecutive]) | st.integers(1, consecutive))
        start = max(0, draw(lengths) - count)
        rows = [(start + row, slot) for row in range(count)]
        ahead = list(seen_ahead(start, start + count, draw(st.sampled_from([1, 1, 8, 24, 0])))) or [0] * count
    else:
        drawn = st.lists(st.tuples(lengths, slots, st.sampled_from([0, 0, 1, 7, 40])), min_size=1, max_size=8)
        found = [(length, slot, min(more, length - 1)) for length, slot, more in draw(drawn)]
        rows, ahead = [(length - 1 - more, slot) for length, slot, more in found], [more for _, _, more in found]
    seed, spread = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([0.0, 1.0, 12.0]))

    def of(variant: dict) -> Sequences:
        count = 1 if variant.get("one") else len(rows)
        more = {"softcap": variant["softcap"], "window": variant["window"], "ahead": ahead[:count]}
        return Sequences(*variant["heads"], variant["head_dim"], rows[:count], consecutive + 8, seed, spread, **more)

    return of


def untouched(case: Sequences) -> np.ndarray:
    return np.full_like(case.q, BEFORE)


@named(covering(8, heads=HEADS, head_dim=HEAD_DIMS[:-1], **SCORES), gate=5)
@given(draw=sequences())
@few
def test_attention_of_one_invocation_a_row_equals_numpy(run_kernel, variant, draw) -> None:
    case = draw(variant)
    grid = (-(-case.heads // 4), case.m, 1)
    case.check(case.run(run_kernel, "attention", untouched(case), grid, WORKGROUP=4))


LANE_GROUPS = [
    ("reduce_subgroup", 4, 64),
    ("reduce_workgroup", 2, 512),
    ("reduce_workgroup", 8, 64),
    ("reduce_workgroup", 32, 256),
]
"""The way of summing over the lanes of a lane group, the lanes, and the workgroup."""


def run_splits(run_kernel, case: Sequences, out: np.ndarray, variant: dict, splits: int, **sizes) -> np.ndarray:
    (reduce, lanes, workgroup), most = variant["lane_group"], variant["most"]
    group = case.heads // case.kv_heads
    each = min(most, group)
    grid = (splits, case.kv_heads * -(-group // each), case.m)
    sizes |= {"HEADS_EACH": each, "LANES": lanes, "WORKGROUP": workgroup, "SINGLE_ROW": variant["one"]}
    return case.run(run_kernel, "attention_split", out, grid, {"reduce": reduce}, **sizes)


@named(
    covering(
        9, lane_group=LANE_GROUPS, heads=HEADS, head_dim=HEAD_DIMS, most=[1, 2, 3, 4], one=[False, False, True],
        **SCORES,
    ),
    gate=6,
)  # fmt: skip
@given(draw=sequences(longest=SHORT))
@few
def test_attention_of_one_split_equals_numpy(run_kernel, variant, draw) -> None:
    case = draw(variant)
    case.check(run_splits(run_kernel, case, untouched(case), variant, 1, SPLIT=SHORT, DIRECT=True))


@named(
    covering(
        8, lane_group=LANE_GROUPS, heads=HEADS[:6:2], head_dim=HEAD_DIMS[:4], most=[1, 2], one=[False, True],
        softcap=[0.0], window=[1, 40, 300],
    ),
    gate=3,
)  # fmt: skip
@given(draw=sequences())
@few
def test_one_split_of_the_window_of_any_sequence_equals_numpy(run_kernel, variant, draw) -> None:
    case = draw(variant)
    case.check(run_splits(run_kernel, case, untouched(case), variant, 1, SPLIT=case.pages * PAGE, DIRECT=True))


@named(
    covering(
        9, lane_group=LANE_GROUPS, heads=HEADS, head_dim=HEAD_DIMS[::-1], most=[1, 2, 3, 4], one=[False, False, True],
        **SCORES,
    ),
    gate=5,
)  # fmt: skip
@given(draw=sequences(), more=st.integers(0, 2))
@few
def test_splits_merged_equal_numpy(run_kernel, variant, draw, more: int) -> None:
    case = draw(variant)
    # The recorded grid covers any length of its class: splits past the position must do nothing.
    splits = -(-case.longest // SPLIT) + more
    width = case.head_dim + 4
    partials = np.full((case.max_rows, case.heads, -(-case.pages * PAGE // SPLIT), width), np.nan, np.float32)
    partials = run_splits(run_kernel, case, partials, variant, splits, SPLIT=SPLIT, DIRECT=False)
    (out,) = run_kernel(
        "attention_merge", [case.state, partials, untouched(case)], (case.heads, case.m, 1),
        **case.sizes, SPLIT=SPLIT, WORKGROUP=variant["lane_group"][2],
    )  # fmt: skip
    case.check(np.frombuffer(out, np.float32).reshape(case.q.shape))


@named(covering(10, heads=HEADS, head_dim=HEAD_DIMS, slices=[1, 2], **SCORES), gate=6)
@given(draw=sequences(consecutive=70))
@few
def test_attention_over_tiles_equals_numpy(run_kernel, variant, draw) -> None:
    case = draw(variant)
    grid = (case.heads, -(-case.m // 32), 1)
    case.check(case.run(run_kernel, "attention_tiles", untouched(case), grid, SLICES=variant["slices"]))


def test_heads_of_gemma_4_equal_numpy(run_kernel) -> None:
    case = Sequences(4, 1, 512, [(40 + row, 0) for row in range(35)], 40, 0, 1.0)
    case.check(case.run(run_kernel, "attention_tiles", untouched(case), (4, 2, 2), SLICES=1))
    few = Sequences(4, 1, 512, [(100, 0), (3, 1)], 8, 0, 1.0)
    variant = {"lane_group": ("reduce_workgroup", 32, 128), "most": 1, "one": False}
    few.check(run_splits(run_kernel, few, untouched(few), variant, 1, SPLIT=SHORT, DIRECT=True))


@pytest.mark.parametrize(
    ("name", "constants", "head_dim"), [("attention", {"WORKGROUP": 1}, 128), ("attention_tiles", {"SLICES": 2}, 256)]
)
def test_a_full_context_equals_numpy(run_kernel, name, constants, head_dim) -> None:
    case = Sequences(1, 1, head_dim, [(8191, 0)], 1, 0, 1.0, pages=128)
    case.check(case.run(run_kernel, name, untouched(case), (1, 1, 1), **constants))


def test_a_class_of_lengths_reaches_to_a_power_of_two() -> None:
    assert [length_class_of(n) for n in (1, 1024, 1025, 2048, 2049, 8192)] == [1024, 1024, 2048, 2048, 4096, 8192]


def test_heads_share_a_workgroup_evenly() -> None:
    assert [heads_each(group, 4) for group in (1, 3, 4, 5, 9, 16)] == [1, 3, 4, 3, 3, 4]


def test_lane_groups_and_their_workgroup_fit_the_adapter(host) -> None:
    roomy = replace(host.adapter, max_workgroup_storage=48 << 10, max_workgroup_size=1024)
    assert [lane_group_shape(dim, 32, 512, roomy) for dim in (8, 64, 80, 128, 256)] == [
        (1, 256), (8, 512), (16, 512), (16, 512), (32, 512)
    ]  # fmt: skip
    assert lane_group_shape(256, 16, 512, roomy)[0] == 16
    assert lane_group_shape(64, 32, 256, roomy) == (8, 256)
    least = replace(host.adapter, max_workgroup_storage=16 << 10, max_workgroup_size=256)
    assert all(lane_group_shape(dim, 32, 512, least)[1] >= 64 for dim in range(8, 513, 8))
    for lanes in (8, 16, 32):
        shapes = choose_shapes(replace(least, software=False, subgroup_size=lanes), 512)
        assert lane_group_shape(512, reduction_of(shapes, 512)[1], 512, least)[0] == 32
        assert reduction_of(shapes, 256) == ("reduce_subgroup", lanes)
    with pytest.raises(BackendError, match="too little workgroup memory for attention heads of 256"):
        lane_group_shape(256, 32, 512, replace(least, max_workgroup_storage=2 << 10))
