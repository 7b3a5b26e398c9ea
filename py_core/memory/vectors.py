"""Search by meaning: the k nearest of the stored vectors of a kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import numpy as np

from py_core.memory.errors import StoreError
from py_core.memory.records import Record, Vector
from py_core.memory.rows import Change
from py_core.memory.store import Store

Filter = Callable[[str], bool]
"""Whether an id may be among the results."""


class VectorIndex(Protocol):
    """Vectors of one length by id. Similarity is the cosine, -1 to 1."""

    def insert(self, id: str, vector: Vector) -> None:
        """Replaces the vector of an id that is there already."""
        ...

    def delete(self, id: str) -> None:
        """No error when it is not there."""
        ...

    def search(self, vector: Vector, k: int, filter: Filter | None = None) -> list[tuple[str, float]]:
        """At most k (id, similarity), the most similar first."""
        ...


class BruteForceIndex:
    """Compares with all of them: exact, and good for some thousands."""

    def __init__(self, dimensions: int) -> None:
        self._ids: list[str] = []
        self._places: dict[str, int] = {}
        self._vectors = np.zeros((0, dimensions), np.float32)  # (capacity, dimensions), of length 1

    def insert(self, id: str, vector: Vector) -> None:
        place = self._places.get(id, len(self._ids))
        if place == len(self._ids):
            self._places[id] = place
            self._ids.append(id)
        if place >= len(self._vectors):
            grown = np.zeros((max(64, 2 * place), len(vector)), np.float32)
            if place:
                grown[:place] = self._vectors[:place]
            self._vectors = grown
        self._vectors[place] = _unit(vector)

    def delete(self, id: str) -> None:
        place = self._places.pop(id, None)
        if place is None:
            return
        last = self._ids.pop()
        if last != id:  # fill the gap
            self._ids[place] = last
            self._places[last] = place
            self._vectors[place] = self._vectors[len(self._ids)]

    def search(self, vector: Vector, k: int, filter: Filter | None = None) -> list[tuple[str, float]]:
        if not self._ids or k <= 0:
            return []
        similarities = self._vectors[: len(self._ids)] @ _unit(vector)
        if filter is None and k < len(similarities):
            candidates = np.argpartition(-similarities, k - 1)[:k]
        else:
            candidates = np.arange(len(similarities))
        found: list[tuple[str, float]] = []
        for place in candidates[np.argsort(-similarities[candidates], kind="stable")].tolist():
            if filter is None or filter(self._ids[place]):
                found.append((self._ids[place], float(similarities[place])))
                if len(found) == k:
                    break
        return found


class VectorSearch:
    """Search over a store's kinds. An index a kind (and length of vector) is made at its first search, from the stored
    vectors, and then follows every change, also those of other tabs and processes. make_index: of the dimensions."""

    def __init__(self, store: Store, make_index: Callable[[int], VectorIndex] = BruteForceIndex) -> None:
        self._store = store
        self._make_index = make_index
        self._indexes: dict[str, dict[int, VectorIndex]] = {}  # kind -> length -> index
        self._stale: dict[str, set[str]] = {}  # ids to read again
        self._generation = 0  # counts what makes indexes useless
        self._refreshing = asyncio.Lock()
        store.on_change(self._note)

    async def search(
        self, kind: str, vector: Vector, k: int, filter: Filter | None = None
    ) -> list[tuple[Record, float]]:
        """At most k (record, similarity) of a kind, the most similar first. Records without a vector of this length are
        not found."""
        await self._store.poll()
        await self._refresh(kind)
        index = self._indexes[kind].get(len(vector))
        if index is None:
            return []
        found = index.search(vector, k, filter)
        records = {record.id: record for record in await self._store.get_many([(kind, id) for id, _ in found])}
        return [(records[id], similarity) for id, similarity in found if id in records]

    async def _refresh(self, kind: str) -> None:
        async with self._refreshing:
            while True:
                if kind not in self._indexes:
                    generation = self._generation
                    self._stale[kind] = set()  # from now on, changes are noted
                    indexes: dict[int, VectorIndex] = {}
                    async for record in self._store.scan(kind):
                        self._insert(indexes, record)
                    if generation != self._generation:
                        continue
                    self._indexes[kind] = indexes
                stale = self._stale[kind]
                if not stale:
                    return
                self._stale[kind] = set()
                records = await self._store.get_many([(kind, id) for id in stale])
                if kind in self._indexes:
                    for id in stale:
                        for index in self._indexes[kind].values():
                            index.delete(id)
                    for record in records:
                        self._insert(self._indexes[kind], record)

    def _insert(self, indexes: dict[int, VectorIndex], record: Record) -> None:
        if record.vector is not None:
            length = len(record.vector)
            if length not in indexes:
                indexes[length] = self._make_index(length)
            indexes[length].insert(record.id, record.vector)

    def _note(self, change: Change) -> None:
        if change.everything or change.cleared is not None:
            self._generation += 1
            self._indexes.clear()
            self._stale.clear()
        for kind, id in (*change.puts, *change.deletes):
            if kind in self._stale:
                self._stale[kind].add(id)


def _unit(vector: Vector) -> Vector:
    """Of length 1; zeros stay zeros, and are similar to nothing."""
    array = np.asarray(vector, np.float32)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise StoreError("record", "A vector is a row of finite float32 numbers.")
    length = float(np.linalg.norm(array))
    return array / length if length > 0 else array
