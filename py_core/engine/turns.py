"""Grants the device to one request at a time, the most urgent first, and equals in turns."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from enum import IntEnum

TURN_SECONDS = 0.1
"""How long a request continues while an equal one waits. A handover leaves the device idle for some milliseconds, until
it is known that its work has ended; a tenth of a second between two words is hardly noticed."""


class Priority(IntEnum):
    """The order of requests; a lower number is more urgent."""

    INTERACTIVE = 0
    """A person waits for the answer."""
    BACKGROUND = 1
    """The request may wait until the device has nothing else to do."""
    IDLE = 2
    """The request may wait until the model has been unused for a while (`Scheduler.idle_held`)."""


class Turns:
    """The queue for the device: the most urgent request goes first, and among equals the one that came first."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: list[tuple[int, int, bool, asyncio.Future[None]]] = []
        """Priority, order, if the request decodes, and the future that it waits for."""
        self._order = itertools.count()
        self.held = 0
        """How many callers want idle work to pause."""

    async def take(self, priority: Priority, decodes: bool) -> None:
        if not self._taken and not self.is_held(priority):
            self._taken = True
            return
        handed_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._order), decodes, handed_over))
        try:
            await handed_over
        except asyncio.CancelledError:
            if not handed_over.cancelled():
                self.hand_over()
            raise

    def is_held(self, priority: int) -> bool:
        return bool(self.held) and priority == Priority.IDLE

    def go_on(self) -> None:
        """Give the device to the next request if the device is free."""
        if not self._taken:
            self._taken = True
            self.hand_over()

    def hand_over(self) -> None:
        self._drop_cancelled()
        if self._waiting and not self.is_held(self._waiting[0][0]):
            heapq.heappop(self._waiting)[-1].set_result(None)
        else:
            self._taken = False

    @property
    def next(self) -> tuple[int, bool] | None:
        """The priority of the next request, and True if it decodes; None if no request waits."""
        self._drop_cancelled()
        return (self._waiting[0][0], self._waiting[0][2]) if self._waiting else None

    def _drop_cancelled(self) -> None:
        while self._waiting and self._waiting[0][-1].done():
            heapq.heappop(self._waiting)


class DeviceTurn:
    """The right to use the device, as a context."""

    def __init__(self, turns: Turns, priority: Priority, decodes: bool = False) -> None:
        self._turns, self._priority, self._decodes = turns, priority, decodes
        self._held, self._since = False, 0.0
        self.is_used = False
        """True if the turn made progress. A turn is not over before, however short turns are."""

    async def __aenter__(self) -> DeviceTurn:
        await self._turns.take(self._priority, self._decodes)
        self._held, self._since, self.is_used = True, time.perf_counter(), False
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._held:
            self._held = False
            self._turns.hand_over()

    @property
    def is_over(self) -> bool:
        """True if another request should have the device now.

        If a text waits to be read, sequences that are decoded have only their shortest turn between two of its passes:
        all of them continue, and the first word of the waiting answer comes little later than it would alone.
        """
        if not self.is_used:
            return False
        if self.is_wanted:
            return True
        if (waiting := self._turns.next) is None or waiting[0] > self._priority:
            return False
        reads = not waiting[1]
        return (self._decodes and reads) or self.was_long

    @property
    def is_wanted(self) -> bool:
        """True if a more urgent request waits, or this one is to pause."""
        waiting = self._turns.next
        return self._turns.is_held(self._priority) or (waiting is not None and waiting[0] < self._priority)

    @property
    def was_long(self) -> bool:
        """True if an equal request that waits should have the device now."""
        return self.is_used and time.perf_counter() - self._since >= TURN_SECONDS

    async def stand_aside(self, other: asyncio.Lock) -> None:
        """Let others go first until `other` is released."""
        await self.__aexit__()
        async with other:
            pass
        await self.__aenter__()

    async def give_way(self) -> None:
        """Let other requests go first if it is their turn."""
        self.is_used = True
        if self.is_over:
            await self.__aexit__()
            await self.__aenter__()
