"""Estimates how long the rest of a prompt takes to read, from the passes that were measured.

A token takes longer the more tokens stand before it: a line through all passes gives the slope. The last seconds give
the present pace, because other programs come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

LEAST_PASSES = 2
"""Passes that an estimate needs after the first. The first is not counted (shaders are compiled, pages are made)."""
RECENT_SECONDS = 4.0
"""The pace is that of the passes in these last seconds, and of at least LEAST_PASSES."""


class _Pass(NamedTuple):
    tokens: int
    at: float
    """The position of the middle of its tokens."""
    seconds: float
    begin: float


class ReadingTime:
    """For one prompt. `push` gets the number of tokens that were read, before the first pass and after each pass."""

    def __init__(self, total: int, clock: Callable[[], float] = perf_counter) -> None:
        self._total, self._clock = total, clock
        self._last: tuple[int, float] | None = None
        self._passes = list[_Pass]()
        self._begun = 0

    def push(self, done: int) -> float | None:
        """Return the seconds that are left; None as long as they are unknown. They rise if reading has become
        slower."""
        now = self._clock()
        if self._last is not None and done > self._last[0]:
            self._begun += 1
            if self._begun > 1:
                before, then = self._last
                self._passes.append(_Pass(done - before, (done + before) / 2, now - then, then))
        self._last = done, now
        if len(self._passes) < LEAST_PASSES and done < self._total:
            return None
        return self._left(done, now)

    def _left(self, done: int, now: float) -> float:
        left = self._total - done
        if not left or not self._passes:
            return 0.0
        late = [one for one in self._passes[:-LEAST_PASSES] if one.begin > now - RECENT_SECONDS]
        pace, at = _means([*late, *self._passes[-LEAST_PASSES:]])
        later = _slope(self._passes) * ((done + self._total) / 2 - at)
        return left * (pace + min(later, pace))  # a few passes of a busy machine may make the line too steep


def _means(passes: Sequence[_Pass]) -> tuple[float, float]:
    """Return the seconds of a token, and its position."""
    tokens = sum(one.tokens for one in passes)
    return sum(one.seconds for one in passes) / tokens, sum(one.tokens * one.at for one in passes) / tokens


def _slope(passes: Sequence[_Pass]) -> float:
    """Return how much longer a token takes one position further on."""
    mean, mean_at = _means(passes)
    spread = sum(one.tokens * (one.at - mean_at) ** 2 for one in passes)
    rise = sum((one.at - mean_at) * (one.seconds - one.tokens * mean) for one in passes)
    return max(rise / spread, 0.0) if spread else 0.0
