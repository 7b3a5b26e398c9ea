"""The WASM kernels of attention against numpy on random shapes, in both builds."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from py_core.backends.numpy import rows as reference
from py_core.backends.sampling_state import state_bytes
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.wasm.layout import (
    EXTENT,
    MOST_GROUP,
    MOST_HEAD_DIM,
    PART,
    TIER_BIT,
    Arena,
    AttentionLayer,
    Mode,
    Op,
    OpKind,
    head_page_bytes,
    head_tier_bytes,
    real_bits,
    tier_pages,
)  # fmt: skip
from py_core.paging.page_table import PAGE
from py_core.paging.tiers import Tier, demoted
from tests.backends.wasm.kernel_memory import RELATIVE, ROOM, few, put, read, run

EPS = 1e-3


@dataclasses.dataclass(frozen=True)
class Case:
    """`pairs` of a head rotate; `window` and `softcap` of 0 are none."""

    mode: Mode
    heads: int
    kv_heads: int
    head_dim: int
    length: int
    m: int
    pairs: int
    interleaved: bool
    normed: bool
    window: int
    softcap: float
    joined: bool
    tiers: tuple[Tier, ...] = ()
    """The tiers of the first whole pages, before the rows that attend: how they were demoted, first to the previous
    tier if that is not HOT."""


@st.composite
def cases(draw) -> Case:
    heads, kv_heads = draw(st.sampled_from([(1, 1), (3, 1), (6, 3), (4, 1), (7, 1), (16, 1)]))
    head_dim, length = draw(st.sampled_from([8, 24, 64, 256])), draw(st.integers(1, 700))
    pairs = draw(st.sampled_from([head_dim // 2, head_dim // 2, head_dim // 4, 1, 0]))
    return Case(
        draw(st.sampled_from([Mode.PRECISE, Mode.FAST])), heads, kv_heads, head_dim, length,
        min(draw(st.integers(1, 5)), length), pairs, draw(st.booleans()), draw(st.booleans()),
        draw(st.sampled_from([0, 1, 5, 63, 64, 65, 130, 400, 5000])), draw(st.sampled_from([0.0, 0.0, 2.0, 50.0])),
        draw(st.booleans()), tuple(draw(st.lists(st.sampled_from(list(Tier)), max_size=11))),
    )  # fmt: skip


class Memory:
    """Queries, keys and values of all positions, and the pages of the second of two layers."""

    def __init__(self, host: WasmtimeHost, case: Case, seed: int) -> None:
        rng, c, arena = np.random.default_rng(seed), case, Arena()
        self.host, self.case, self.arena = host, case, arena
        width = (c.heads + 2 * c.kv_heads) * c.head_dim
        spread = rng.uniform(0.1, 1.5, width).astype(np.float32)
        self.qkv = rng.standard_normal((c.length, width)).astype(np.float32) * spread
        turn = rng.uniform(0, 2 * np.pi, (c.length, c.pairs))
        self.table = 1.1 * np.stack([np.cos(turn), np.sin(turn)], axis=-1).astype(np.float32)
        self.norms = rng.uniform(0.5, 1.2, (2, c.head_dim)).astype(np.float32)
        self.scale = float(rng.uniform(0.3, 0.8)) * c.head_dim**-0.5
        pages = self.pages = -(-c.length // PAGE)
        layer_bytes = EXTENT * c.kv_heads * head_page_bytes(c.head_dim, c.mode)
        # Pages of slot 1 are in any order; earlier contents must not matter.
        self.sizes, self.fit = (each(c.head_dim, c.mode) for each in (head_tier_bytes, tier_pages))
        extents = [-(-pages // number) for number in self.fit]
        self.first_numbers = [sum(extents[:tier]) * number for tier, number in enumerate(self.fit)]
        left = rng.standard_normal(sum(extents) * 2 * layer_bytes // 4).astype(np.float32) * 1e20
        left[rng.random(len(left)) < 0.3] = np.nan
        base = self.base = put(host, arena, left) + layer_bytes
        self.extent_bytes = 2 * layer_bytes
        self.row = rng.permutation(pages).astype(np.uint32)
        page_table = self.page_table = put(host, arena, np.stack([np.zeros(pages, np.uint32), self.row]))
        layer = AttentionLayer(
            c.heads, c.kv_heads, c.head_dim, int(c.mode), base, 2 * layer_bytes, page_table, pages, self.scale,
            c.softcap, c.window,
        )  # fmt: skip
        self.layer = put(host, arena, layer.packed())
        self.angles = put(host, arena, self.table)
        self.norms_v = c.normed and not c.interleaved
        self.ones = put(host, arena, np.ones(c.head_dim, np.float32))
        self.norm_places = [put(host, arena, norm) for norm in self.norms] if c.normed else [0, 0]
        self.q = arena.take(c.length * c.heads * c.head_dim * 4)

    def tier(self, place: int) -> Tier:
        """The tier of a page after all demotions: only pages that are whole before the rows that attend are demoted."""
        whole = (self.case.length - self.case.m) // PAGE
        return self.case.tiers[place] if place < min(whole, len(self.case.tiers)) else Tier.HOT

    def address(self, entry: int) -> int:
        tier, number = divmod(entry, TIER_BIT)
        return self.base + number // self.fit[tier] * self.extent_bytes + number % self.fit[tier] * self.sizes[tier]

    def demote(self, place: int, tier: Tier) -> Op:
        """Demote one page, whose entry is written at once: nothing else runs meanwhile."""
        c, old = self.case, int(self.row[place])
        new = tier * TIER_BIT + self.first_numbers[tier] + place
        tiers = (old // TIER_BIT, int(tier))
        steps = (self.fit[each] * self.sizes[each] for each in tiers)
        places = (self.address(old), self.address(new), *tiers, *steps)
        self.row[place] = new
        self.host.write(self.page_table + self.row.nbytes, self.row.tobytes())
        return Op(OpKind.DEMOTE, (*places, c.kv_heads, 1, self.extent_bytes, c.head_dim, int(c.mode)))

    def split(self, rows: np.ndarray) -> list[np.ndarray]:
        q = self.case.heads * self.case.head_dim
        return np.split(rows, [q, q + self.case.kv_heads * self.case.head_dim], axis=1)

    def append(self, first: int, rows: int) -> Op:
        c = self.case
        new = self.qkv[first : first + rows]
        widths = [part.shape[1] for part in self.split(new)]
        if c.joined:
            q = put(self.host, self.arena, new)
            places = (q, q + 4 * widths[0], q + 4 * (widths[0] + widths[1]), sum(widths), sum(widths))
        else:
            places = (*(put(self.host, self.arena, part) for part in self.split(new)), widths[0], widths[1])
        turn = (self.angles, c.pairs, int(c.interleaved), *self.norm_places, real_bits(EPS))
        return Op(OpKind.ROPE_APPEND, (*places, self.q, *turn, self.layer, self.ones if self.norms_v else 0))

    def expected(self) -> np.ndarray:
        c = self.case
        q, k, v = self.split(self.qkv)
        if c.normed:
            q, k = (reference.rms_norm(x, norm, EPS) for x, norm in zip((q, k), self.norms, strict=True))
        if self.norms_v:
            v = reference.rms_norm(v, np.ones(c.head_dim, np.float32), EPS)
        q = reference.rope(q, self.table, c.heads, c.interleaved)
        k = reference.rope(k, self.table, c.kv_heads, c.interleaved)
        k, v = (x.reshape(c.length, c.kv_heads, c.head_dim).copy() for x in (k, v))
        for place in range(self.pages):
            page = slice(place * PAGE, (place + 1) * PAGE)
            for tier in list(Tier)[1 : self.tier(place) + 1]:
                k[page], v[page] = demoted(k[page], v[page], tier)
        positions = np.arange(c.length - c.m, c.length)
        return reference.attention(q[-c.m :], k, v, positions, c.heads, self.scale, c.softcap, c.window)


MOST = Case(Mode.PRECISE, MOST_GROUP, 1, MOST_HEAD_DIM, 300, 5, MOST_HEAD_DIM // 2, False, True, 200, 50.0, True)


@given(case=cases(), seed=st.integers(0, 2**32 - 1))
@example(case=MOST, seed=0)
@example(case=dataclasses.replace(MOST, m=1), seed=0)
@example(case=dataclasses.replace(MOST, window=0, softcap=0.0, tiers=(Tier.COLD,) * 4), seed=0)
@few
def test_attention_over_shuffled_pages_equals_numpy(host, case: Case, seed: int) -> None:
    memory = Memory(host, case, seed)
    length, m, width = case.length, case.m, case.heads * case.head_dim
    out = put(host, memory.arena, np.full((m, width), 7, np.float32))
    parts = memory.arena.take(-(-length // PART) * case.heads * (case.head_dim + 2) * 4)
    # Pages before a window are never written here: a kernel that reads them finds old contents.
    first = at = max(0, length - m + 1 - case.window) // PAGE * PAGE if case.window else 0
    while at < length - m:
        rows = min(ROOM, length - m - at)  # the room that `run` gives a state
        run(host, memory.arena, [memory.append(at, rows)], state_bytes([(0, at + r, 1) for r in range(rows)]))
        at += rows
    for tier in (Tier.WARM, Tier.COLD):
        for place in (place for place in range(first // PAGE, memory.pages) if memory.tier(place) >= tier):
            run(host, memory.arena, [memory.demote(place, tier)], state_bytes([(0, 0, 0)]))
    state = state_bytes([(0, length - m + row, 1) for row in range(m)])
    attend = Op(OpKind.ATTENTION, (memory.q, out, parts, memory.layer))
    run(host, memory.arena, [memory.append(length - m, m), attend], state)
    expected, got = memory.expected(), read(host, out, m, width)
    close, relative = {Mode.PRECISE: 1e-3, Mode.FAST: 0.1}[case.mode], RELATIVE[case.mode]
    if any(memory.tier(place) for place in range(memory.pages)):
        # A value halfway between two codes may become either, and in a short window few positions average that out.
        close, relative = close + 0.15, relative + 0.1
    np.testing.assert_allclose(got, expected, rtol=0, atol=close)
    assert np.linalg.norm(got - expected) < relative * np.linalg.norm(expected)
    # The last row is bit for bit the same without the others.
    run(host, memory.arena, [memory.append(length - 1, 1), attend], state_bytes([(0, length - 1, 1)]))
    np.testing.assert_array_equal(read(host, out, 1, width)[0], got[-1])
