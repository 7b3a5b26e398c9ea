"""Tiers of a sequence's keys and values: the newest pages are exact, older ones take fewer bits, the oldest fewest.

As in KIVI (arXiv 2402.02750) a page's keys are quantized by channel, since some channels are far larger than others,
and its values by token: value = offset + scale * code. This is the reference for the kernels, in numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class Tier(IntEnum):
    """The format in which a page is stored. Warm codes use 7 bits of a byte, for which products of bytes are exact."""

    HOT = 0
    WARM = 1
    COLD = 2


MOST_CODE = {Tier.WARM: 127, Tier.COLD: 15}

LEAST_HOT = 2
"""The fewest hot pages: tokens in a sequence's last two pages may be taken back and written again."""


@dataclass(frozen=True)
class TierPolicy:
    """The number of a sequence's newest whole pages that are hot, and the number of pages before them that are warm.

    A sequence of at most `least` pages has only hot pages, so its tokens are exact.
    """

    hot: int = 4
    warm: int = 8
    least: int = 12

    def __post_init__(self) -> None:
        if self.hot < LEAST_HOT or self.warm < 0 or self.least < 0:
            raise ValueError(f"{self}: at least {LEAST_HOT} pages are hot, and no number is negative")

    def tiers(self, pages: int) -> list[Tier]:
        """The tier of each of a sequence's whole pages."""
        if pages <= self.least:
            return [Tier.HOT] * pages
        hot = min(self.hot, pages)
        warm = min(self.warm, pages - hot)
        return [Tier.COLD] * (pages - hot - warm) + [Tier.WARM] * warm + [Tier.HOT] * hot


def codes(x: np.ndarray, axis: int, tier: Tier) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Encode x (positions, heads, head_dim) as codes uint8 of the same shape, with float16 scales and offsets over
    `axis`: 0 for keys, whose scales are (1, heads, head_dim), 2 for values, (positions, heads, 1)."""
    most = np.float32(MOST_CODE[tier])
    limit = np.float32(np.finfo(np.float16).max)
    offsets = np.clip(x.min(axis, keepdims=True), -limit, limit).astype(np.float16)
    low = offsets.astype(np.float32)
    scales = np.clip((x.max(axis, keepdims=True) - low) / most, 0, limit).astype(np.float16)
    wide = scales.astype(np.float32)
    factor = np.where(wide > 0, 1 / np.where(wide > 0, wide, 1), 0).astype(np.float32)
    found = np.clip(np.floor((x - low) * factor + np.float32(0.5)), 0, most)
    return found.astype(np.uint8), scales, offsets


def demoted(keys: np.ndarray, values: np.ndarray, tier: Tier) -> tuple[np.ndarray, np.ndarray]:
    """A page's keys and values (positions, kv_heads, head_dim) after storage in a tier: float32 of the same shape."""

    def left(x: np.ndarray, axis: int) -> np.ndarray:
        found, scales, offsets = codes(x, axis, tier)
        return offsets.astype(np.float32) + scales.astype(np.float32) * found.astype(np.float32)

    return left(keys, 0), left(values, 2)
