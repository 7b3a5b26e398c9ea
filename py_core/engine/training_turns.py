"""A training session whose calls take turns with the model's other uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import numpy as np

from py_core.engine.scheduler import Priority, Scheduler
from py_core.training.session import AdamW, AfterPiece, Loss, Pack, StepResult, Training, TrainingState

T = TypeVar("T")


class TrainingInTurns:
    """See `Training` for the contract of each method. Changes of the session's state are never left half done."""

    def __init__(self, training: Training, scheduler: Scheduler, priority: Priority) -> None:
        self._training, self._scheduler, self._priority = training, scheduler, priority
        self.max_rows = training.max_rows

    async def restore(self, state: TrainingState) -> None:
        await self._whole(lambda: self._training.restore(state))

    async def save(self) -> TrainingState:
        return await self._whole(self._training.save)

    async def accumulate(self, pack: Pack, after_piece: AfterPiece | None = None) -> Loss:
        return await self._in_pieces(lambda after: self._training.accumulate(pack, after), after_piece)

    async def states(self, pack: Pack, after_piece: AfterPiece | None = None) -> np.ndarray:
        return await self._in_pieces(lambda after: self._training.states(pack, after), after_piece)

    async def step(self, rule: AdamW) -> StepResult:
        return await self._whole(lambda: self._training.step(rule))

    async def clear(self) -> None:
        await self._whole(self._training.clear)

    async def add_fisher(self, keep: float, weight: float) -> None:
        await self._whole(lambda: self._training.add_fisher(keep, weight))

    async def gradient(self) -> np.ndarray:
        return await self._whole(self._training.gradient)

    def close(self) -> None:
        self._training.close()

    async def _in_pieces(self, work: Callable[[AfterPiece], Awaitable[T]], after_piece: AfterPiece | None) -> T:
        async def begin(give_way: AfterPiece) -> T:
            async def after() -> None:
                await give_way()
                if after_piece:
                    await after_piece()

            return await work(after)

        return await self._scheduler.in_pieces(begin, self._priority)

    async def _whole(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run work in one turn. If this is cancelled after the turn has begun, the work is finished before it ends."""

        async def to_its_end() -> T:
            task = asyncio.ensure_future(work())
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                await asyncio.wait([task])
                raise

        return await self._scheduler.alone(to_its_end, self._priority)
