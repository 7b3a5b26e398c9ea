"""Joins two adapters: the result changes the model as both together do."""

from __future__ import annotations

import numpy as np

from py_core.adapters.lora import MAX_RANK, LoraAdapter, LoraPair


def joined(first: LoraAdapter, second: LoraAdapter) -> LoraAdapter | None:
    """The exact sum of their changes; their ranks add up. None if that exceeds MAX_RANK, or they do not fit together.

    Its name combines both names ("a + b").
    """
    pairs = {**first.pairs, **second.pairs}
    for name in first.pairs.keys() & second.pairs.keys():
        one, other = first.pairs[name], second.pairs[name]
        if one.rank + other.rank > MAX_RANK or one.a.shape[1] != other.a.shape[1] or len(one.b) != len(other.b):
            return None
        pairs[name] = _side_by_side(one, other)
    base = first.base_sha256 or second.base_sha256
    return LoraAdapter(f"{first.name} + {second.name}", pairs, base)


def _side_by_side(one: LoraPair, other: LoraPair) -> LoraPair:
    b = np.concatenate([np.float32(one.scale) * one.b, np.float32(other.scale) * other.b], axis=1)
    return LoraPair(np.concatenate([one.a, other.a]), b, 1.0)
