"""Writes the answers of models of diffusion: places begin as masks, and the surest become tokens with each pass."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace

import numpy as np

from py_core.backends.pass_blocks import block_begin
from py_core.backends.protocols import Backend
from py_core.engine.scheduler import Priority, Scheduler
from py_core.grammar.constraint import Constraint
from py_core.models.diffusion import Diffusion
from py_core.sampling import SamplingParams, Unmasked
from py_core.token_sequence import TokenSequence

WINDOW = 32
"""The places that are written before those behind them, in a text that is one block."""

CANVAS = 256
"""The most places of such a text's answer: each pass runs all of them."""

_NEXT_SEED = 0x9E3779B9


@dataclass(frozen=True)
class Unmasking:
    """threshold: in each pass the places whose token has at least this probability become tokens, and the surest one
    (Fast-dLLM, arXiv 2505.22618). steps: instead, a block or window is written in this many passes, the surest places
    first. remasks: places whose token had a lower probability than the threshold become masks once more when a block
    or window is full, and are written again among the others (after ReMDM, arXiv 2503.00307)."""

    threshold: float = 0.9
    steps: int | None = None
    remasks: bool = False

    def is_sure(self, scores: np.ndarray) -> np.ndarray:
        """scores: log p of tokens."""
        return scores >= math.log(self.threshold) if self.threshold > 0 else np.full(scores.shape, True)

    def chosen(self, scores: np.ndarray, masked: np.ndarray, places: int) -> np.ndarray:
        """Return the places that become tokens, those of `masked` (n,) of which some are True. scores: log p of their
        tokens (n,). places: of the whole block or window."""
        known = np.where(masked, scores, -np.inf)
        if self.steps is None:
            sure = self.is_sure(known) & masked
            return np.flatnonzero(sure) if sure.any() else np.array([known.argmax()])
        count = min(-(-places // self.steps), int(masked.sum()))
        return np.argsort(-known, kind="stable")[:count]


USUAL = Unmasking()


class Writer:
    """Writes behind one sequence. `passes`: how many it has taken so far."""

    def __init__(self, scheduler: Scheduler, backend: Backend, diffusion: Diffusion, ends: Collection[int]) -> None:
        """ends: tokens that end an answer: what follows them is not written."""
        self._scheduler, self._backend, self._diffusion, self._ends = scheduler, backend, diffusion, ends
        self.passes = 0

    async def tokens(
        self, sequence: TokenSequence, n: int, sampling: SamplingParams, priority: Priority,
        unmasking: Unmasking = USUAL,
    ) -> AsyncIterator[list[int]]:  # fmt: skip
        """Yield up to `n` tokens, a block or window at a time, and append them to the sequence; and nothing after each
        other pass, when `sequence.canvas` has changed. Of the rules of sampling temperature and seed count. If the
        sequence has a constraint, places become tokens from left to right: the first with any probability, those
        behind it if they are sure. Ends early if the sequence is changed by another call. Raises GrammarError."""
        block, mask, done = self._diffusion.block, self._diffusion.mask, 0
        canvas = [] if block else [mask] * min(n, CANVAS)
        while done < n:
            if block:
                room = block_begin(sequence.length, block) + block - sequence.length
                canvas = [mask] * min(room, n - done)
            elif not canvas:
                return
            places, start = len(canvas) if block else min(WINDOW, len(canvas)), sequence.length
            filling = self._fill(sequence, canvas, places, sampling, priority, unmasking)
            async with aclosing(filling) as passes:  # type: ignore[type-var]
                async for _ in passes:
                    yield []
            if sequence.length != start:
                return
            found = canvas[: canvas.index(mask)] if mask in canvas[:places] else canvas[:places]
            self._backend.append(sequence, found)
            done += len(found)
            yield found
            if sequence.length != start + len(found) or self._is_over(found):
                return
            canvas = canvas[places:]

    async def _fill(
        self, sequence: TokenSequence, canvas: list[int], places: int, sampling: SamplingParams, priority: Priority,
        unmasking: Unmasking,
    ) -> AsyncIterator[None]:  # fmt: skip
        """Run passes until the first places of a canvas are known, or an answer ends within them. Yields between
        passes. Ends early if the sequence is changed by another call."""
        mask, start, constraint = self._diffusion.mask, sequence.length, sequence.constraint
        written, remasks = np.zeros(places), unmasking.remasks and not constraint
        try:
            while mask in canvas[:places] and not self._is_over(canvas[:places]):
                if constraint and self._write_forced(canvas, places, constraint):
                    continue
                allowed = constraint.mask() if constraint else None
                ids, scores = await self._run(sequence, canvas, sampling, priority, allowed)
                if sequence.length != start:
                    return
                masked = np.array([token == mask for token in canvas[:places]])
                chosen = unmasking.chosen(scores[:places], masked, places).tolist()
                for place in _allowed(chosen, ids, canvas.index(mask), constraint) if constraint else chosen:
                    canvas[place], written[place] = int(ids[place]), scores[place]
                if remasks and (mask not in canvas[:places] or self._is_over(canvas[:places])):
                    unsure = ~unmasking.is_sure(written)
                    unsure[written.argmax()] = False
                    canvas[:places] = np.where(unsure, mask, canvas[:places]).tolist()
                    remasks = False
                sequence.canvas = tuple(None if token == mask else token for token in canvas[:places])
                yield
        finally:
            sequence.canvas = ()

    def _write_forced(self, canvas: list[int], places: int, constraint: Constraint) -> bool:
        """Write the tokens that alone may come at the first mask. Returns False if there are none."""
        at = canvas.index(self._diffusion.mask)
        forced = constraint.forced()[:-1][: places - at]
        canvas[at : at + len(forced)] = forced
        constraint.extend(forced)
        return bool(forced)

    async def _run(
        self, sequence: TokenSequence, canvas: list[int], sampling: SamplingParams, priority: Priority,
        allowed: np.ndarray | None,
    ) -> Unmasked:  # fmt: skip
        """Run a pass. Each has a seed of its own."""
        rules = replace(sampling, seed=(sampling.seed + self.passes * _NEXT_SEED) % 2**32)
        self.passes += 1
        denoised = lambda _: self._backend.denoise(sequence, canvas, rules, allowed)  # noqa: E731
        return await self._scheduler.call(sequence, denoised, priority)

    def _is_over(self, written: list[int]) -> bool:
        """True if an answer ends within what is written without gaps."""
        for token in written:
            if token == self._diffusion.mask:
                return False
            if token in self._ends:
                return True
        return False


def _allowed(chosen: list[int], ids: np.ndarray, first: int, constraint: Constraint) -> Iterator[int]:
    """Yield the first mask's place and the chosen ones behind it, as far as a constraint allows their tokens, which it
    notes. Raises GrammarError."""
    for place in range(first, len(ids)):
        token = int(ids[place])
        if place > first and (place not in chosen or not constraint.mask()[token // 32] >> token % 32 & 1):
            return
        constraint.extend([token])
        yield place
