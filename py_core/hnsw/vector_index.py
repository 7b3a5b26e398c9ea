"""Vectors by name (text), compared by their cosine: the search of the router and the memory.

Up to SCANNED vectors are compared one by one, which is exact and not slower; with more vectors, a graph is searched. A
graph gets slower with the number of wanted neighbours, so with many of them the limit is higher. `insert` brings a
vector into the graph at once. After `insert_many`, `link` does it, which the owner calls in idle time
(py_core/store/stored_index.py). Until then every vector is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.hnsw.index import HnswIndex, HnswSettings
from py_core.hnsw.index_file import IndexFileError, load, save

SCANNED = HnswSettings.brute_force_below
"""The measured crossover for up to 16 neighbours: docs/results/routing.md."""
CANDIDATES = 3
"""Candidates that a search of the graph keeps per wanted neighbour: so it finds more of the true ones."""
_LINKED_AT_ONCE = 8


class VectorIndex:
    """See above. `changed` is called after each change, with True if something was deleted."""

    def __init__(self, dimensions: int, kernel: HnswKernel | None = None, scanned: int = SCANNED) -> None:
        """kernel: numpy's if None."""
        self.changed: Callable[[bool], None] = lambda deleted: None
        self.taken_out = 0
        """The number of vectors of the file that are gone now, or have changed."""
        self._kernel = kernel
        self._index = HnswIndex(HnswSettings(dimensions, brute_force_below=scanned), kernel)
        self._ids: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._next = 0

    @classmethod
    def of(
        cls,
        vectors: Mapping[str, np.ndarray],
        dimensions: int,
        kernel: HnswKernel | None = None,
        file: bytes | None = None,
        scanned: int = SCANNED,
    ) -> VectorIndex:
        """An index of vectors, float32 (dimensions,) by name. file: from `dump`; its vectors need no linking."""
        index = cls(dimensions, kernel, scanned)
        lacking: Sequence[str] = list(vectors)
        if file is not None and len(vectors) > scanned:
            try:
                lacking = index._restore(file, vectors)
            except IndexFileError:
                index = cls(dimensions, kernel, scanned)  # only time is lost: build it again
        index.insert_many({name: vectors[name] for name in lacking})
        return index

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    @property
    def behind(self) -> int:
        """The number of vectors not yet in the graph."""
        return self._index.behind

    @property
    def has_graph(self) -> bool:
        return self._index.linked > 0

    def insert(self, name: str, vector: np.ndarray) -> None:
        """Insert a vector, replacing the name's previous one, if any. Raises VectorError."""
        id = self._ids.get(name, self._next)
        before = self._index.inserted
        self._index.insert(id, vector)
        self._name(name, id)
        if self._index.inserted > before:
            self.changed(False)

    def insert_many(self, vectors: Mapping[str, np.ndarray]) -> None:
        """Insert vectors under new names. Raises VectorError."""
        ids = range(self._next, self._next + len(vectors))
        self._index.insert_many(ids, list(vectors.values()))
        for name, id in zip(vectors, ids, strict=True):
            self._name(name, id)

    def delete(self, name: str) -> None:
        """Delete a vector. A missing name is no error."""
        id = self._ids.pop(name, None)
        if id is not None:
            del self._names[id]
            self._index.delete(id)
            self.changed(True)

    def search(
        self, vector: np.ndarray, k: int, filter: Callable[[str], bool] | None = None
    ) -> list[tuple[str, float]]:
        """At most k (name, cosine), the most similar first. filter: True for names that may be found; called for each.

        Raises VectorError.
        """
        where = None if filter is None else lambda id: filter(self._names[id])
        settings = self._index.settings
        ef = max(settings.ef_search, CANDIDATES * k)
        exact = len(self) <= settings.brute_force_below * ef / settings.ef_search
        found = self._index.search(vector, k, ef=ef, where=where, exact=exact)
        return [(self._names[id], 1 - distance) for id, distance in found]

    def link(self, seconds: float) -> None:
        """Bring vectors into the graph for about this long."""
        end = time.perf_counter() + seconds
        while self._index.behind:
            self._index.link(_LINKED_AT_ONCE)
            if time.perf_counter() >= end:
                return

    def dump(self) -> bytes:
        """The graph, without the vectors: index_file.py. Nothing may be `behind`."""
        return save(self._index, self._names)

    def _restore(self, file: bytes, vectors: Mapping[str, np.ndarray]) -> list[str]:
        """Restore from a file. Returns the names that it lacks. Raises IndexFileError."""
        loaded = load(file, self._index.settings, vectors, self._kernel)
        self._index = loaded.index
        for id in loaded.index:
            self._name(loaded.names[id], id)
        self._next = len(loaded.names)
        self.taken_out = len(loaded.names) - len(loaded.index)
        return loaded.lacking

    def _name(self, name: str, id: int) -> None:
        self._ids[name], self._names[id] = id, name
        self._next = max(self._next, id + 1)
