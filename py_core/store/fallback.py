"""Continues in plain memory if nothing can be stored, and reports this."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from py_core.store.errors import GOES_ON_IN_MEMORY, StoreError
from py_core.store.rows import UNCOMPACTED, Batch, Key, OnChange, Query, Row, Rows
from py_core.store.volatile import VolatileRows

T = TypeVar("T")
OnTrouble = Callable[[StoreError], None]
MakeRoom = Callable[[], Awaitable[None]]
"""Deletes data that can be made again, to free space."""
CHUNK = 1000


async def open_or_volatile(
    opening: Callable[[], Awaitable[Rows]], on_trouble: OnTrouble, make_room: MakeRoom | None = None
) -> FallbackRows | VolatileRows:
    """The rows that `opening` opens. If that fails, tells `on_trouble` why and returns plain memory; no StoreError."""
    try:
        return FallbackRows(await opening(), on_trouble, make_room)
    except StoreError as error:
        on_trouble(error)
        return VolatileRows()


class FallbackRows:
    """`Rows` that continue in memory if the rows under them are lost: no space left, or a newer version in another tab.

    They hold what could still be read, and repeat the write that failed. `on_trouble` is called once. If there is no
    space left, `make_room` is asked first, and the write is tried again.
    """

    def __init__(self, rows: Rows, on_trouble: OnTrouble, make_room: MakeRoom | None = None) -> None:
        self._rows = rows
        self._on_trouble, self._make_room = on_trouble, make_room
        self._heard: OnChange | None = None
        self._meta: dict[str, str] = {}  # as last seen
        self._closed = False
        self.kept: frozenset[Key] = frozenset()
        """The keys of rows that are still stored after the underlying rows were lost."""

    @property
    def persistent(self) -> bool:
        return self._rows.persistent

    @property
    def place(self) -> str:
        return self._rows.place

    async def meta(self) -> dict[str, str]:
        self._meta = await self._do(lambda rows: rows.meta())
        return dict(self._meta)

    async def get(self, keys: Sequence[Key]) -> list[Row]:
        return await self._do(lambda rows: rows.get(keys))

    async def scan(self, kind: str | None, after: Key | None, limit: int) -> list[Row]:
        return await self._do(lambda rows: rows.scan(kind, after, limit))

    async def query(self, query: Query) -> list[Row]:
        return await self._do(lambda rows: rows.query(query))

    async def count(self, kind: str | None) -> int:
        return await self._do(lambda rows: rows.count(kind))

    async def apply(self, batch: Batch) -> int:
        revision = await self._do(lambda rows: rows.apply(batch))
        changed = {**self._meta, **batch.meta, "revision": str(revision)}
        self._meta = {name: value for name, value in changed.items() if value is not None}
        return revision

    async def poll(self) -> bool:
        return await self._do(lambda rows: rows.poll())

    async def check_room(self) -> None:
        await self._do(lambda rows: rows.check_room())

    async def was_locked(self) -> bool:
        return await self._do(lambda rows: rows.was_locked())

    async def note_locked(self, locked: bool) -> None:
        await self._do(lambda rows: rows.note_locked(locked))

    async def compact(self) -> None:
        await self._do(lambda rows: rows.compact())
        self._meta.pop(UNCOMPACTED, None)

    def listen(self, heard: OnChange | None) -> None:
        self._heard = heard
        self._rows.listen(heard)

    async def close(self) -> None:
        self._closed = True
        await self._rows.close()

    async def _do(self, work: Callable[[Rows], Awaitable[T]]) -> T:
        rows = self._rows
        try:
            try:
                return await work(rows)
            except StoreError as error:
                if error.reason != "quota" or self._make_room is None:
                    raise
                await self._make_room()
                return await work(rows)
        except StoreError as error:
            if error.reason not in GOES_ON_IN_MEMORY or not rows.persistent or self._closed:
                raise
            await self._leave(rows, error)
        return await work(self._rows)

    async def _leave(self, lost: Rows, error: StoreError) -> None:
        volatile = VolatileRows(self._meta)
        kept = await _copy(lost, volatile)
        if self._rows is not lost:  # several writes failed at once
            return
        self._rows, self.kept = volatile, kept
        lost.listen(None)
        self._on_trouble(error)


async def _copy(lost: Rows, volatile: VolatileRows) -> frozenset[Key]:
    """Copy everything that can still be read. Returns its keys."""
    copied = set[Key]()
    with contextlib.suppress(StoreError):
        after: Key | None = None
        while rows := await lost.scan(None, after, CHUNK):
            await volatile.apply(Batch(puts=rows))
            copied.update(row.key for row in rows)
            after = rows[-1].key
    return frozenset(copied)
