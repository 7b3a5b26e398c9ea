"""Search by meaning: the k nearest of the stored vectors of a kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.hnsw.index import VectorError
from py_core.store.background import Background
from py_core.store.errors import StoreError
from py_core.store.records import Record, Vector
from py_core.store.rows import Change
from py_core.store.store import Store
from py_core.store.stored_index import StoredIndex

Filter = Callable[[str], bool]
"""Returns True if an id may be among the results."""


class VectorSearch:
    """Search over a store's kinds. An index for a kind and a vector length is opened at its first search. It then
    follows every change, including those of other tabs and processes."""

    def __init__(
        self,
        store: Store,
        kernel: Callable[[], HnswKernel | None] = lambda: None,
        background: Background | None = None,
    ) -> None:
        """kernel: returns the indexes' kernel once it is loaded; None is numpy's."""
        self._store = store
        self._kernel = kernel
        self._background = background or Background()
        self._indexes: dict[str, dict[int, StoredIndex]] = {}  # kind -> length -> index
        self._stale: dict[str, set[str]] = {}  # ids to read again
        self._generation = 0  # counts events that make indexes useless
        self._refreshing = asyncio.Lock()
        store.on_change(self._note)

    async def search(
        self, kind: str, vector: Vector, k: int, filter: Filter | None = None
    ) -> list[tuple[Record, float]]:
        """At most k (record, cosine) of a kind, the most similar first. filter: called for every id, so slow for many.

        Records without a vector of this length are not found. Raises StoreError.
        """
        await self._store.poll()
        await self._refresh(kind)
        stored = self._indexes[kind].get(len(vector))
        if stored is None:
            return []
        try:
            found = stored.index.search(vector, k, filter)
        except VectorError as error:
            raise StoreError("record", "memory.unfit-record", "{why}", why=error) from error
        records = {record.id: record for record in await self._store.get_many([(kind, id) for id, _ in found])}
        return [(records[id], similarity) for id, similarity in found if id in records]

    async def save(self) -> None:
        """Store the graphs that have changed. Raises StoreError."""
        for indexes in tuple(self._indexes.values()):
            for stored in tuple(indexes.values()):
                await stored.save()

    async def _refresh(self, kind: str) -> None:
        async with self._refreshing:
            while True:
                if kind not in self._indexes:
                    generation = self._generation
                    self._stale[kind] = set()  # from now on, changes are noted
                    vectors: dict[int, dict[str, Vector]] = {}
                    async for record in self._store.scan(kind):
                        if record.vector is not None:
                            vectors.setdefault(len(record.vector), {})[record.id] = record.vector
                    indexes = {length: await self._open(kind, length, found) for length, found in vectors.items()}
                    if generation != self._generation:
                        _forget(indexes)
                        continue
                    self._indexes[kind] = indexes
                stale = self._stale[kind]
                if not stale:
                    return
                self._stale[kind] = set()
                records = {record.id: record for record in await self._store.get_many([(kind, id) for id in stale])}
                if kind in self._indexes:
                    for id in stale:
                        await self._take(kind, id, records.get(id))

    async def _take(self, kind: str, id: str, record: Record | None) -> None:
        """Update the indexes of a kind with one record; None if it was deleted."""
        indexes = self._indexes[kind]
        length = None if record is None or record.vector is None else len(record.vector)
        for other, stored in indexes.items():
            if other != length:
                stored.index.delete(id)
        if record is not None and record.vector is not None:
            assert length is not None
            if length not in indexes:
                indexes[length] = await self._open(kind, length, {})
            indexes[length].index.insert(id, record.vector)

    async def _open(self, kind: str, length: int, vectors: dict[str, Vector]) -> StoredIndex:
        return await StoredIndex.open(
            self._store, f"{kind}/{length}", vectors, length, self._background, self._kernel()
        )

    def _note(self, change: Change) -> None:
        if change.everything or change.cleared is not None:
            self._generation += 1
            for indexes in self._indexes.values():
                _forget(indexes)
            self._indexes.clear()
            self._stale.clear()
        for kind, id in (*change.puts, *change.deletes):
            if kind in self._stale:
                self._stale[kind].add(id)


def _forget(indexes: dict[int, StoredIndex]) -> None:
    for stored in indexes.values():
        stored.forget()
