"""Work that can wait: it pauses while an answer is being made, so that it takes no time from the tokens."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

SHARE = 0.25
"""The share of the time for background work while no answer is being made."""


class Background:
    """Must be used on an event loop. There is one per memory. share: of the time, see SHARE."""

    def __init__(self) -> None:
        self.share = SHARE
        self._pauses = 0
        self._free = asyncio.Event()
        self._free.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.last_work: dict[object, Callable[[], Awaitable[None]]] = {}
        """Work to do at the end, by its owner."""

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Pauses the background work while this is open."""
        self._pauses += 1
        self._free.clear()
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._free.set()

    def start(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Start a background task, which may be cancelled. It should do its work in steps."""

        async def run() -> None:
            await work()

        task = asyncio.ensure_future(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @contextlib.asynccontextmanager
    async def step(self, share: float | None = None) -> AsyncIterator[None]:
        """A few milliseconds of work, once there is time. Others get their turn after it. The work gets `share` of the
        time, by default `self.share`."""
        await self._free.wait()
        begin = time.perf_counter()
        yield
        await asyncio.sleep((time.perf_counter() - begin) * (1 / (share or self.share) - 1))

    async def settled(self) -> None:
        """Return when all tasks that were started are done."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """End unfinished tasks, then do the last work."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self.last_work:
            _, work = self.last_work.popitem()
            await work()
