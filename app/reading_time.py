"""How long the rest of a prompt takes to read, from the passes that were measured.

A token takes longer the more tokens stand before it, so a line is laid through the passes: seconds for a token at a
position. What is told never rises.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter

LEAST_PASSES = 2
"""The first pass is not counted (shaders are compiled, pages are made); so many after it are needed."""


class ReadingTime:
    """For one prompt. `push` gets the number of tokens that are read, before the first pass and after each."""

    def __init__(self, total: int, clock: Callable[[], float] = perf_counter) -> None:
        self._total, self._clock = total, clock
        self._last: tuple[int, float] | None = None
        self._passes = list[tuple[float, float, float]]()  # tokens, the position of their middle, seconds
        self._begun = 0
        self._told = math.inf

    def push(self, done: int) -> float | None:
        """The seconds that are left; None as long as nobody knows."""
        now = self._clock()
        if self._last is not None and done > self._last[0]:
            self._begun += 1
            if self._begun > 1:
                before, then = self._last
                self._passes.append((done - before, (done + before) / 2, now - then))
        self._last = done, now
        if len(self._passes) < LEAST_PASSES and done < self._total:
            return None
        self._told = min(self._told, self._left(done))
        return self._told

    def _left(self, done: int) -> float:
        left = self._total - done
        if not left or not self._passes:
            return 0.0
        tokens = sum(n for n, _, _ in self._passes)
        mean_at = sum(n * at for n, at, _ in self._passes) / tokens
        mean = sum(seconds for _, _, seconds in self._passes) / tokens  # of a token
        spread = sum(n * (at - mean_at) ** 2 for n, at, _ in self._passes)
        rise = sum((at - mean_at) * (seconds - n * mean) for n, at, seconds in self._passes)
        slope = max(rise / spread, 0.0) if spread else 0.0  # how much longer a token takes one position further on
        return left * (mean + slope * ((done + self._total) / 2 - mean_at))
