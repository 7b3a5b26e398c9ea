"""Two adapters side by side are exactly their sum, if there is room."""

from __future__ import annotations

import numpy as np

from py_core.adapters.joining import joined
from py_core.adapters.lora import MAX_RANK, LoraAdapter, LoraPair


def pair(rank: int, seed: int, scale: float = 2.0) -> LoraPair:
    draw = np.random.default_rng(seed)
    return LoraPair(
        draw.normal(size=(rank, 6)).astype(np.float32), draw.normal(size=(5, rank)).astype(np.float32), scale
    )


def test_what_both_change_is_the_sum_and_what_one_changes_stays() -> None:
    first = LoraAdapter("mine", {"both": pair(3, 0), "one": pair(2, 1)}, "abc")
    second = LoraAdapter("learned 1", {"both": pair(8, 2, 0.5), "other": pair(8, 3)})
    both = joined(first, second)
    assert both is not None
    assert (both.name, both.base_sha256, both.pairs["both"].rank) == ("mine + learned 1", "abc", 11)
    expected = first.pairs["both"].delta + second.pairs["both"].delta
    np.testing.assert_allclose(both.pairs["both"].delta, expected, atol=1e-5)
    assert both.pairs["one"] is first.pairs["one"]
    assert both.pairs["other"] is second.pairs["other"]


def test_where_the_ranks_have_no_room_there_is_none() -> None:
    first = LoraAdapter("mine", {"both": pair(MAX_RANK - 7, 0)})
    assert joined(first, LoraAdapter("learned 1", {"both": pair(8, 2)})) is None
    assert joined(first, LoraAdapter("learned 1", {"both": pair(7, 2)})) is not None
