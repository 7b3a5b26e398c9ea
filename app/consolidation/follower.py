"""Keeps data that is derived from the memory's records up to date: renews it when records of their kinds change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from app.records.memory import Memory
from py_core.store.rows import EVERYTHING, Change


class MemoryFollower:
    """Made stale by changes of these kinds of records, and renewed in the background."""

    def __init__(self, memory: Memory, kinds: frozenset[str], renew: Callable[[], Awaitable[None]]) -> None:
        """renew: makes the data again; may raise anything, and is then called again."""
        self._kinds, self._renew = kinds, renew
        self.is_stale = True
        self._renewing = asyncio.Lock()
        self._refreshing: asyncio.Future[None] | None = None
        self._unlisten = memory.store.on_change(self._note)

    def close(self) -> None:
        """Stop following the memory."""
        self._unlisten()
        if self._refreshing is not None:
            self._refreshing.cancel()

    async def refresh(self) -> None:
        """Renew the data if it is stale. Raises what `renew` raises."""
        async with self._renewing:
            if not self.is_stale:
                return
            self.is_stale = False
            try:
                await self._renew()
            except BaseException:
                self.is_stale = True
                raise

    def _note(self, change: Change) -> None:
        kinds = {kind for kind, _ in (*change.puts, *change.deletes)}
        if change.everything or change.cleared in (EVERYTHING, *self._kinds) or kinds & self._kinds:
            self.is_stale = True
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        try:
            await self.refresh()
        except Exception:
            self.is_stale = True  # the next call gets the error
