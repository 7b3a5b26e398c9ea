"""Byte-pair encoding of one word: joins the neighbours of least cost, the leftmost first among equals.

A short word is merged by scanning a list, a long one in n log n with a heap over a linked list.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from py_core.display import shown
from py_core.tokenizers.vocabulary import TokenizerError

HEAP_FROM = 96
"""Words with at least this many parts are merged with a heap; for shorter ones, scanning a list in C is faster."""

NEVER = math.inf
"""The cost of a pair that is not joined."""


def merge(word: str, costs: Mapping[str, float], between: str) -> list[str]:
    """The characters of `word`, merged until no two neighbours have a cost. The key of a cost has `between` inside."""
    return (merge_short if len(word) < HEAP_FROM else merge_long)(word, costs, between)


def merge_short(word: str, costs: Mapping[str, float], between: str) -> list[str]:
    parts = list(word)
    cost = costs.get
    # For strings this short `+` is faster than an f-string, by 5 % of a text's time.
    pairs = [cost(left + between + right, NEVER) for left, right in pairwise(parts)]
    while pairs:
        best = min(pairs)
        if best == NEVER:
            break
        at = pairs.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        del pairs[at]
        if at:
            pairs[at - 1] = cost(parts[at - 1] + between + parts[at], NEVER)
        if at < len(pairs):
            pairs[at] = cost(parts[at] + between + parts[at + 1], NEVER)
    return parts


def merge_long(word: str, costs: Mapping[str, float], between: str) -> list[str]:
    """Like merge_short, with a heap of (cost, position) over a linked list."""
    parts = list(word)
    count = len(parts)
    following, preceding = list(range(1, count + 1)), list(range(-1, count - 1))
    cost = costs.get
    heap = [
        (found, at)
        for at, (left, right) in enumerate(pairwise(parts))
        if (found := cost(f"{left}{between}{right}", NEVER)) < NEVER
    ]
    heapq.heapify(heap)
    while heap:
        best, at = heapq.heappop(heap)
        right = following[at]
        # An entry is stale once its pair has changed. If another pair there has the same cost, the entry is valid.
        if right >= count or not parts[at] or cost(f"{parts[at]}{between}{parts[right]}") != best:
            continue
        parts[at] += parts[right]
        parts[right] = ""
        after = following[at] = following[right]
        if after < count:
            preceding[after] = at
            if (found := cost(f"{parts[at]}{between}{parts[after]}", NEVER)) < NEVER:
                heapq.heappush(heap, (found, at))
        before = preceding[at]
        if before >= 0 and (found := cost(f"{parts[before]}{between}{parts[at]}", NEVER)) < NEVER:
            heapq.heappush(heap, (found, before))
    return [part for part in parts if part]


def merge_ranks(merges: Sequence[str], ids: Mapping[str, int]) -> dict[str, int]:
    """The rank of each "left right". The key is the joined text: pairs of ids would take ten times as long to build.

    Raises TokenizerError if a merge does not give a token.
    """
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    for pair in ranks:
        if pair.count(" ") != 1 or pair.replace(" ", "") not in ids:
            raise TokenizerError(
                "tokenizer.bad-merge",
                "The model's vocabulary is damaged: the merge {pair} does not give a token. Download the model again.",
                pair=shown(pair),
            )
    return ranks
