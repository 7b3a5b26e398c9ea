"""The conversations of a store without their turns: read once, then only changes, including those of other tabs."""

from __future__ import annotations

import asyncio

from app.records.sessions import KIND
from py_core.store.records import Record
from py_core.store.rows import Change
from py_core.store.store import Store


class ConversationList:
    """Serves a side bar that is shown again after each answer, and a search that runs at each key press."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records: dict[str, Record] = {}
        self._stale: set[str] | None = None  # ids to read again; None: all
        self._refreshing = asyncio.Lock()
        store.on_change(self._note)

    async def newest_first(self) -> dict[str, Record]:
        """The conversations by their ids, the most recently continued first. Raises StoreError."""
        await self._refresh()
        said = sorted(self._records.values(), key=lambda record: record.body["said"], reverse=True)
        return {record.id: record for record in said}

    async def _refresh(self) -> None:
        await self._store.poll()
        async with self._refreshing:
            while self._stale is None or self._stale:
                stale, self._stale = self._stale, set()
                try:
                    if stale is None:
                        self._records = {record.id: record for record in await self._store.query(KIND)}
                        continue
                    found = await self._store.get_many([(KIND, id) for id in sorted(stale)])
                except BaseException:
                    self._stale = None  # read again at the next call
                    raise
                for id in stale:
                    self._records.pop(id, None)
                self._records |= {record.id: record for record in found}

    def _note(self, change: Change) -> None:
        if change.everything or change.cleared is not None:
            self._stale = None
        elif self._stale is not None:
            self._stale.update(id for kind, id in (*change.puts, *change.deletes) if kind == KIND)
