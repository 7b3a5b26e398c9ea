"""Demoting pages, and attention over pages of all tiers, against numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from py_core.backends.webgpu.attention import SHORT, SPLIT
from py_core.paging.page_table import PAGE, TIER_SHIFT
from py_core.paging.tiers import MOST_CODE, Tier, codes, demoted
from tests.backends.variants import covering, named
from tests.backends.webgpu.test_attention_kernels import HEADS, Sequences, run_splits, sequences, untouched

few = settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
PLACES = {Tier.WARM: 2, Tier.COLD: 1}
WORKGROUP = 256
UNWRITTEN = 0xFFFFFFFF
"""Halves of NaN, and the highest codes."""


def place_words(kv_heads: int, head_dim: int) -> int:
    return kv_heads * (PAGE * head_dim // 4 + head_dim + PAGE)


def packed(page: np.ndarray, tier: Tier) -> np.ndarray:
    """The words of a page (key | value, kv_heads, PAGE, head_dim) in a tier, as snippets/tiers.wgsl lays it out."""
    heads = [
        [*map(np.ravel, planes), *map(np.ravel, scales)]
        for planes, scales in (
            zip(*map(packed_plane, head, (0, 1), (tier, tier)), strict=True) for head in page.swapaxes(0, 1)
        )
    ]
    words = np.concatenate([part for head in heads for part in head])
    whole = PLACES[tier] * place_words(*page.shape[1::2])
    return np.concatenate([words, np.full(whole - len(words), UNWRITTEN, np.uint32)])


def packed_plane(x: np.ndarray, which: int, tier: Tier) -> tuple[np.ndarray, np.ndarray]:
    """The words of the codes of a head's keys (which 0) or values, and the words of their scales and offsets."""
    found, scales, offsets = (each[:, 0] for each in codes(x[:, None], 2 * which, tier))
    halves = np.stack([scales.ravel(), offsets.ravel()], axis=1).view(np.uint32)
    quads = found.reshape(PAGE, -1, 4).astype(np.uint32)
    if tier == Tier.WARM:
        return quads @ (1 << 8 * np.arange(4, dtype=np.uint32)), halves
    nibbles = quads @ (1 << 4 * np.arange(4, dtype=np.uint32))
    return nibbles[::2] | nibbles[1::2] << 16, halves


class Tiered(Sequences):
    """Sequences with demoted whole pages: at the same places in both, for the length of `tiers`."""

    def demote(self, tiers: Sequence[Tier]) -> Tiered:
        places, self.beside = [np.full(place_words(self.kv_heads, self.head_dim), UNWRITTEN, np.uint32)], []
        for slot in range(self.SLOTS):
            length = self.length_of(slot)
            for at, tier in enumerate(tiers[: length // PAGE]):
                if not tier:
                    continue
                page = self.pool[self.table[slot, at]]
                places.append(packed(page, tier))
                keys, values = demoted(*page.swapaxes(1, 2), tier)
                self.kv[slot, :, :, at * PAGE : (at + 1) * PAGE] = np.stack([keys, values]).swapaxes(1, 2)
                page[:] = np.nan
                before = sum(map(len, places[:-1])) // len(places[0])
                self.table[slot, at] = (tier << TIER_SHIFT) + before
        self.beside, self.reader = [np.concatenate(places)], {"kv_quads": "kv_quads_demoted"}
        return self

    @property
    def sizes(self) -> dict[str, float]:
        return {**super().sizes, "TIER_SHIFT": TIER_SHIFT}


def tiered(case: Sequences, tiers: Sequence[Tier]) -> Tiered:
    return Tiered(**{name: getattr(case, name) for name in case.__dataclass_fields__}).demote(tiers)


TIERS = st.lists(st.sampled_from(list(Tier)), max_size=Sequences.pages)
LANE_GROUPS = [("reduce_subgroup", 4, 64), ("reduce_workgroup", 8, 128), ("reduce_workgroup", 32, 256)]
"""As in test_attention_kernels.py. With fewer lanes the code for large heads takes a minute to compile."""
CHOICES = {"heads": HEADS, "softcap": [0.0, 3.0], "window": [0], "halves": ["halves", "halves_unpacked"]}


def with_halves(case: Tiered, variant: dict) -> Tiered:
    case.reader["halves"] = variant["halves"]
    return case


@named(
    covering(
        8, lane_group=LANE_GROUPS, head_dim=[8, 24, 64, 80, 128], most=[1, 2, 3, 4], one=[False, True], **CHOICES,
    ),
    gate=4,
)  # fmt: skip
@given(draw=sequences(longest=SHORT), tiers=TIERS)
@few
def test_attention_of_one_split_reads_all_tiers(run_kernel, variant, draw, tiers) -> None:
    case = with_halves(tiered(draw(variant), tiers), variant)
    case.check(run_splits(run_kernel, case, untouched(case), variant, 1, SPLIT=SHORT, DIRECT=True))


@named(
    covering(
        5, lane_group=LANE_GROUPS, head_dim=[128, 64, 24], most=[1, 2, 4], one=[False, True],
        **CHOICES | {"heads": HEADS[3::2]},
    ),
    gate=2,
)  # fmt: skip
@given(draw=sequences(), tiers=TIERS)
@few
def test_splits_merged_read_all_tiers(run_kernel, variant, draw, tiers) -> None:
    case = with_halves(tiered(draw(variant), tiers), variant)
    splits = -(-case.longest // SPLIT)
    shape = (case.max_rows, case.heads, -(-case.pages * PAGE // SPLIT), case.head_dim + 4)
    partials = run_splits(
        run_kernel, case, np.full(shape, np.nan, np.float32), variant, splits, SPLIT=SPLIT, DIRECT=False
    )
    (out,) = run_kernel(
        "attention_merge", [case.state, partials, untouched(case)], (case.heads, case.m, 1),
        **case.sizes, SPLIT=SPLIT, WORKGROUP=variant["lane_group"][2],
    )  # fmt: skip
    case.check(np.frombuffer(out, np.float32).reshape(case.q.shape))


@named(covering(8, head_dim=[8, 24, 64, 80, 96, 128, 256], slices=[1, 2], **CHOICES), gate=4)
@given(draw=sequences(consecutive=70), tiers=TIERS)
@few
def test_attention_over_tiles_reads_all_tiers(run_kernel, variant, draw, tiers) -> None:
    case = with_halves(tiered(draw(variant), tiers), variant)
    grid = (case.heads, -(-case.m // 32), 1)
    case.check(case.run(run_kernel, "attention_tiles", untouched(case), grid, SLICES=variant["slices"]))


DEMOTING = covering(7, kv_heads=[1, 3], head_dim=[4, 8, 24, 64, 80, 256], halves=CHOICES["halves"])


@named(DEMOTING, gate=4)
@given(
    seed=st.integers(0, 2**32 - 1),
    tiers=st.sampled_from([(Tier.HOT, Tier.WARM), (Tier.HOT, Tier.COLD), (Tier.WARM, Tier.COLD)]),
    spread=st.sampled_from([1e-6, 1e-3, 1.0, 1e6]),
    count=st.integers(1, 3),
)
@few
def test_a_demoted_page_is_what_numpy_makes_of_it(run_kernel, variant, seed, tiers, spread, count) -> None:
    rng, (old, new) = np.random.default_rng(seed), tiers
    kv_heads, head_dim, size = (
        variant["kv_heads"],
        variant["head_dim"],
        place_words(variant["kv_heads"], variant["head_dim"]),
    )
    shape = (count, 2, kv_heads, PAGE, head_dim)
    pages = rng.standard_normal(shape) * spread + 10 * rng.standard_normal((count, 2, kv_heads, 1, head_dim))
    pages[0, :, 0, :, 0] = -0.0
    pages = pages.astype(np.float32)
    pool, space = np.full((4, *shape[1:]), np.nan, np.float32), np.full((9, size), UNWRITTEN, np.uint32)
    sources, targets = rng.permutation(4)[:count], 2 * rng.permutation(4)[:count] + 1
    if old == Tier.HOT:
        pool[sources] = pages
    else:
        # Warm pages lie before the cold pages that they become.
        sources, targets = np.arange(count) * 2, 8 - np.arange(count)
        for at, page in zip(sources, pages, strict=True):
            space[at : at + 2] = packed(page, old).reshape(2, -1)
    before = space.copy()
    jobs = [[count, 0], *zip((old << TIER_SHIFT) + sources, (new << TIER_SHIFT) + targets, strict=True)]
    (written,) = run_kernel(
        "demote", [np.array(jobs, np.uint32), pool, space], (kv_heads, 2, 5), {"halves": variant["halves"]},
        KV_HEADS=kv_heads, HEAD_DIM=head_dim, PAGE=PAGE, TIER_SHIFT=TIER_SHIFT, WORKGROUP=WORKGROUP,
    )  # fmt: skip
    space = np.frombuffer(written, np.uint32)[: space.size].reshape(space.shape).copy()
    for at, page in zip(targets, pages, strict=True):
        if old:
            page = np.stack([each.swapaxes(0, 1) for each in demoted(*page.swapaxes(1, 2), old)])
        place = slice(at, at + PLACES[new])
        assert_packed_alike(space[place].ravel(), packed(page, new), kv_heads, head_dim, new)
        space[place] = before[place]
    np.testing.assert_array_equal(space, before)  # nothing else was written


def assert_packed_alike(got: np.ndarray, expected: np.ndarray, kv_heads: int, head_dim: int, tier: Tier) -> None:
    """Scales may round to the next half, and values halfway between two codes may become either."""
    quads = PAGE * head_dim // (4 if tier == Tier.WARM else 8)
    heads = kv_heads * (2 * quads + head_dim + PAGE)
    np.testing.assert_array_equal(got[heads:], expected[heads:])
    got, expected = (each[:heads].reshape(kv_heads, -1) for each in (got, expected))
    bits = 8 if tier == Tier.WARM else 4
    one, other = (
        (each[:, : 2 * quads, None] >> np.arange(0, 32, bits, dtype=np.uint32) & ((1 << bits) - 1)).astype(np.int32)
        for each in (got, expected)
    )
    assert one.max(initial=0) <= MOST_CODE[tier]
    assert np.abs(one - other).max() <= 1
    assert (one != other).mean() < 0.02
    halves, wanted = (
        np.ascontiguousarray(each[:, 2 * quads :]).view(np.uint16).astype(np.int32) for each in (got, expected)
    )
    assert np.abs(halves - wanted).max() <= 1
    np.testing.assert_array_equal(halves[:, 1::2], wanted[:, 1::2])  # offsets
