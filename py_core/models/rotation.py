"""The rotation angles of queries and keys, and how they are stretched for a longer context than the trained one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Rotation:
    """Pair i of a head at position p is rotated by p * frequencies[i] radians and multiplied by `magnitude`."""

    frequencies: tuple[float, ...]
    magnitude: float = 1.0

    @property
    def dimensions(self) -> int:
        """The number of values of a head that rotate: the first ones."""
        return 2 * len(self.frequencies)

    def table(self, positions: int) -> np.ndarray:
        """magnitude * (cos, sin) of every position's angles: float32 (positions, dimensions // 2, 2).

        Computed once in float64: a GPU's own sine of a large angle is too coarse.
        """
        angles = np.arange(positions, dtype=np.float64)[:, None] * np.array(self.frequencies)
        return (self.magnitude * np.stack([np.cos(angles), np.sin(angles)], axis=-1)).astype(np.float32)


STANDS_STILL = 1e-20
"""A pair of a smaller frequency does not rotate: Gemma 4's files divide some by 1e30."""


def plain(theta: float, dimensions: int) -> Rotation:
    """Frequencies theta^(-2i / dimensions) (RoFormer, arXiv 2104.09864)."""
    return Rotation(tuple(theta ** (-2 * i / dimensions) for i in range(dimensions // 2)))


def linear(rotation: Rotation, factor: float) -> Rotation:
    """Divide every angle by `factor`: positions are squeezed into the trained range (arXiv 2306.15595)."""
    return Rotation(tuple(f / factor for f in rotation.frequencies), rotation.magnitude)


def divided(rotation: Rotation, factors: Sequence[float], magnitude: float = 1.0) -> Rotation:
    """Divide each frequency by its own factor from the file: Llama 3's scaling, or LongRoPE (arXiv 2402.13753)."""
    frequencies = tuple(f / factor for f, factor in zip(rotation.frequencies, factors, strict=True))
    return Rotation(frequencies, magnitude)


def yarn(
    rotation: Rotation, theta: float, factor: float, trained_context: int, magnitude: float = 1.0,
    beta_fast: float = 32.0, beta_slow: float = 1.0,
) -> Rotation:  # fmt: skip
    """Stretch slow pairs by `factor`, leave fast ones alone, and blend those between (YaRN, arXiv 2309.00071).

    Slow pairs turn at most `beta_slow` times over `trained_context`, the number of tokens before stretching. Fast pairs
    turn at least `beta_fast` times. `magnitude` multiplies YaRN's own.
    """
    dimensions = rotation.dimensions

    def pair_that_turns(times: float) -> float:
        return dimensions * math.log(trained_context / (times * 2 * math.pi)) / (2 * math.log(theta))

    low = max(0, math.floor(pair_that_turns(beta_fast)))
    high = min(dimensions - 1, math.ceil(pair_that_turns(beta_slow)))
    frequencies = []
    for i, frequency in enumerate(rotation.frequencies):
        stretched = min(1.0, max(0.0, (i - low) / max(0.001, high - low)))
        frequencies.append(frequency / factor * stretched + frequency * (1 - stretched))
    return Rotation(tuple(frequencies), magnitude * (1 + 0.1 * math.log(factor)))
