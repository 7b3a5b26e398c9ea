"""Writes in a queue: callers do not wait for them, and they are stored together.

writer = BatchedWriter(store)
writer.put(record)        # returns at once; stored with the next hundred, or within a second
await writer.flush()      # everything put so far is durable
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

from py_core.store.codec import check_record
from py_core.store.errors import StoreError
from py_core.store.records import Record
from py_core.store.rows import Key
from py_core.store.store import Store

BATCH = 100
DELAY_SECONDS = 0.5
"""The time from the first write of a batch to its storing: the other half of the second is for the disk."""
MOST_WAITING = 10_000
"""The most records that wait while the store refuses them; the oldest are dropped first."""


class BatchedWriter:
    """Must be made and used on an event loop. on_error is called for each batch that could not be stored.

    Such a batch stays in the queue and is written again with the next one.
    """

    def __init__(
        self,
        store: Store,
        *,
        batch: int = BATCH,
        delay: float = DELAY_SECONDS,
        on_error: Callable[[StoreError], None] | None = None,
    ) -> None:
        self.store = store
        self._batch = batch
        self._delay = delay
        self._on_error = on_error
        self._waiting: dict[Key, Record] = {}
        self._since = 0.0  # when the oldest of them was put, on the event loop's clock
        self._worker: asyncio.Task[None] | None = None
        self._full = asyncio.Event()
        self._storing = asyncio.Lock()
        self._closed = False

    @property
    def waiting(self) -> tuple[Record, ...]:
        """The records that are not stored yet."""
        return tuple(self._waiting.values())

    def put(self, record: Record) -> None:
        """Store a record soon. Its times are the current time unless it has its own.

        Raises StoreError: record (it cannot be kept), closed (after `close`).
        """
        if self._closed:
            raise StoreError("closed")
        now = self.store.clock()
        created, updated = (now if time is None else time for time in (record.created, record.updated))
        record = replace(record, created=created, updated=updated)
        check_record(record)  # here, because one bad record would stop its whole batch
        if (problem := self.store.kinds.problem_of(record)) is not None:
            raise StoreError("record", "memory.unfit-record", "{why}", why=problem)
        if not self._waiting:
            self._since = asyncio.get_running_loop().time()
        self._waiting.pop(record.key, None)
        self._waiting[record.key] = record
        while len(self._waiting) > MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        if len(self._waiting) >= self._batch:
            self._full.set()
        if self._worker is None or self._worker.done():
            self._worker = asyncio.ensure_future(self._store_soon())

    async def flush(self) -> None:
        """Return when everything put so far is durable. Raises StoreError if it could not be stored."""
        async with self._storing:
            self._full.clear()
            records = list(self._waiting.values())
            began = asyncio.get_running_loop().time()
            if not records:
                return
            await self.store.put_many(records)
            for record in records:
                if self._waiting.get(record.key) is record:  # not put again meanwhile
                    del self._waiting[record.key]
            self._since = began  # records that wait now were put after this

    async def close(self) -> None:
        """Flush, then accept no more writes. The store stays open."""
        self._closed = True
        try:
            await self.flush()
        finally:
            if self._worker is not None:
                self._worker.cancel()

    async def _store_soon(self) -> None:
        while self._waiting:
            left = self._since + self._delay - asyncio.get_running_loop().time()
            if left > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._full.wait(), left)
            try:
                await self.flush()
            except StoreError as error:
                if self._on_error is not None:
                    self._on_error(error)
                self._since = asyncio.get_running_loop().time()
                return  # the next put tries again
