"""An index of nearest neighbours: HNSW (Malkov and Yashunin, arXiv 1603.09320).

While there are few vectors, each is compared instead.

    index = HnswIndex(HnswSettings(dimension=384), kernel)
    index.insert(7, vector)
    index.search(vector, k=10)          # [(7, 0.0), ...]: ids and distances, nearest first
    index.delete(7)

A kernel does the work: the one in WASM (wasm_kernel.py in the page, wasmtime_kernel.py natively), or numpy
(numpy_kernel.py). The same settings and the same calls in the same order give the same index and results with every
kernel.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from py_core.hnsw.compaction import compact
from py_core.hnsw.hnsw_graph import LARGEST, HnswGraph, HnswParameters
from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.hnsw.numpy_kernel import NumpyHnswKernel

LINKS_AN_INSERT = 4
"""Rows that an insert links while the graph is behind, so that no single insert has to build all of it."""
FEW_DEAD = 256
"""Up to this many dead rows stay where they are."""
BRIDGED_A_DELETE = 64
"""Rows that each delete bridges once there are many dead rows, so that no single delete has to bridge all of them."""
_MOST_LEVELS = 16
_64_BITS = (1 << 64) - 1

Where = Collection[int] | Callable[[int], bool]


class VectorError(ValueError):
    """A vector that cannot be stored or compared; the message says why."""


@dataclass(frozen=True)
class HnswSettings(HnswParameters):
    """The settings of an index."""

    ef_search: int = 50
    """Candidates that a search keeps: with more, it finds more of the true neighbours and takes longer."""
    brute_force_below: int = 1500
    """Up to this many vectors (after a filter) are compared one by one: that is exact and not slower."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.ef_search <= 100_000:
            raise ValueError(f"ef_search is {self.ef_search}: it must be from 1 to 100000.")


class HnswIndex:
    """Vectors by the caller's ids (64-bit integers)."""

    def __init__(self, settings: HnswSettings, kernel: HnswKernel | None = None) -> None:
        """`kernel`: numpy's if None. Several indexes may share one, which does one call at a time."""
        self.settings = settings
        self.kernel: HnswKernel = kernel or NumpyHnswKernel()
        self.graph = HnswGraph(settings, self.kernel.allocate)
        self.linked = 0
        """The number of rows in the graph: the first ones."""
        self.inserted = 0
        """The number of inserts so far, from which the levels are drawn."""
        self.bridged = 0
        """The number of rows that already link past the rows that were dead at the time."""
        self._row_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, id: object) -> bool:
        return id in self._row_of

    def __iter__(self) -> Iterator[int]:
        """The ids."""
        return iter(self._row_of)

    @property
    def nbytes(self) -> int:
        """The memory of the index in bytes, without Python's own dict of ids."""
        return self.graph.nbytes

    def vector(self, id: int) -> np.ndarray:
        """float32 (dimension,), a copy; of length 1 if the metric is cosine. Raises KeyError for an unknown id."""
        return self.graph.vector(self._row_of[id])[: self.settings.dimension].copy()

    def insert(self, id: int, vector: np.ndarray) -> None:
        """Store float32 (dimension,) under an id, replacing its previous vector. Raises VectorError.

        Storing the same vector again changes nothing.
        """
        id = operator.index(id)
        if not -(1 << 63) <= id < 1 << 63:
            raise ValueError(f"The id {id} does not fit 64 bits.")
        self._set_query(vector)
        row = self._row_of.get(id)
        if row is not None and np.array_equal(self.graph.vector(row), self.graph.query):
            return
        level = self._draw_level()
        # If memory runs out, the id keeps its previous vector.
        self.graph.reserve(self.graph.rows + 1, self.graph.slots + level)
        self.delete(id)
        self._row_of[id] = self.graph.append(id, level)
        self.inserted += 1
        if self.behind:
            self.link(LINKS_AN_INSERT)

    def insert_many(self, ids: Sequence[int], vectors: Sequence[np.ndarray]) -> None:
        """Store float32 (dimension,) each, under new ids. `link` brings them into the graph. Raises VectorError."""
        if len(set(ids)) != len(ids) or any(id in self._row_of for id in ids):
            raise ValueError("Each id must be new.")
        self.graph.reserve(self.graph.rows + len(ids), self.graph.slots)
        for id, vector in zip(ids, vectors, strict=True):
            self._set_query(vector)
            self._row_of[id] = self.graph.append(id, self._draw_level())
            self.inserted += 1

    @property
    def behind(self) -> int:
        """The number of rows not yet in the graph: 0 while there are so few that each is compared."""
        return self.graph.rows - self.linked if len(self) > self.settings.brute_force_below or self.linked else 0

    def link(self, most: int) -> None:
        """Link up to `most` more rows into the graph. Until all are in it, searches compare each row."""
        for row in range(self.linked, min(self.graph.rows, self.linked + most)):
            if self.graph.alive[row]:
                self.kernel.link(self.graph, row)
            else:
                self.graph.set_aside(row)
            self.linked = row + 1

    def delete(self, id: int) -> bool:
        """Delete an id; returns True if it existed. Its row stays in the graph until a third of all rows are dead."""
        row = self._row_of.pop(id, None)
        if row is None:
            return False
        self._mark_dead(row)
        dead = self.graph.rows - len(self)
        if dead > max(FEW_DEAD, self.graph.rows // 3):
            last = min(self.graph.rows, self.bridged + BRIDGED_A_DELETE)
            self.kernel.bridge(self.graph, self.bridged, last)
            self.bridged = last
            if last == self.graph.rows:
                self.compact()
        return True

    def search(
        self, vector: np.ndarray, k: int = 10, *, ef: int | None = None, where: Where | None = None, exact: bool = False
    ) -> list[tuple[int, float]]:
        """The k nearest, or all if there are fewer, as (id, distance), nearest first; equal distances by id.

        Distances: 1 - cosine (1 to and from a zero vector), -dot, or squared Euclidean. `ef`: overrides ef_search.
        `where`: only these ids, or ids for which it returns true (called for each stored id). `exact`: compare each
        vector. Raises VectorError.
        """
        self._set_query(vector)
        masked = where is not None
        eligible = len(self) if where is None else self._mark(where)
        k = min(k, eligible)
        if k < 1:
            return []
        self.graph.reserve_results(k)
        ef = max(k, ef or self.settings.ef_search)
        found = 0
        if not exact and self.linked == self.graph.rows and eligible > max(self.settings.brute_force_below, ef):
            found = self.kernel.search(self.graph, k, ef, masked)
        if found < k:
            found = self.kernel.scan(self.graph, k, masked)
        return list(zip(self.graph.ids[:found].tolist(), self.graph.distances[:found].tolist(), strict=True))

    def compact(self) -> None:
        """Remove all dead rows from the graph and from memory. `delete` does it bit by bit once there are many."""
        if self.graph.rows > len(self):
            self.linked = compact(self.graph, self.linked, self.kernel)
            self.bridged = 0
            self.find_rows()

    def find_rows(self) -> None:
        """Rebuild the map from ids to rows from the graph."""
        living = np.flatnonzero(self.graph.alive[: self.graph.rows])
        ids = self.graph.column("id")[living]
        self._row_of = dict(zip(ids.tolist(), living.tolist(), strict=True))

    def _set_query(self, vector: np.ndarray) -> None:
        given = np.asarray(vector)
        dimension = self.settings.dimension
        if given.shape != (dimension,):
            raise VectorError(
                f"The vector has the shape {given.shape}: this index holds vectors of {dimension} numbers."
            )
        if given.dtype.kind not in "fiub":
            raise VectorError(f"The vector holds {given.dtype}: give it as numbers, best float32.")
        with np.errstate(over="ignore"):  # `prepare` detects it
            self.graph.query[:dimension] = given
        if not self.kernel.prepare(self.graph):
            raise VectorError(
                f"The vector has components that are not numbers (NaN), or larger than {LARGEST:g}: "
                "what made it went wrong."
            )

    def _draw_level(self) -> int:
        """Draw a level, geometrically: a row is at level l or above with probability m^-l, from seed and count."""
        level = 0
        while level < _MOST_LEVELS and _mix(self.settings.seed, self.inserted, level) % self.settings.m == 0:
            level += 1
        return level

    def _mark_dead(self, row: int) -> None:
        """Mark a row of the graph as dead. If other rows have its vector, the next of them takes its place."""
        alive = self.graph.alive
        heir = next((twin for twin in self.graph.twins(row)[1:] if alive[twin]), None)
        if heir is not None:
            id = self.graph.id_of(heir)
            rows, i = self.graph.at(row)
            rows.id[i] = id
            self._row_of[id] = row
            row = heir
        alive[row] = 0

    def _mark(self, where: Where) -> int:
        """Write the filter's mask; returns how many rows it leaves."""
        mask = self.graph.mask
        mask[: self.graph.rows] = 0
        if callable(where):
            rows = [row for id, row in self._row_of.items() if where(id)]
        else:
            rows = [self._row_of[id] for id in where if id in self._row_of]
        mask[rows] = 1
        return int(np.count_nonzero(mask[: self.graph.rows]))


def _mix(*numbers: int) -> int:
    """64 pseudorandom bits (the finalizer of splitmix64)."""
    mixed = 0
    for number in numbers:
        mixed = (mixed + number + 0x9E3779B97F4A7C15) & _64_BITS
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _64_BITS
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _64_BITS
        mixed ^= mixed >> 31
    return mixed
