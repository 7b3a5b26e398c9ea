"""The HNSW index as the memory's search wants it: by the ids of records, with similarities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.hnsw.index import HnswIndex, HnswSettings

SCANNED = 20_000
"""So many vectors are compared one by one, in a few milliseconds: a graph of them would take seconds to build, and a
search in the memory is typed by a person."""


class HnswVectorIndex:
    """See py_core.memory.vectors.VectorIndex."""

    def __init__(self, dimensions: int, kernel: HnswKernel | None = None) -> None:
        """kernel: numpy's if none."""
        self._index = HnswIndex(HnswSettings(dimensions, brute_force_below=SCANNED), kernel)
        self._numbers: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        self._next = 0

    def insert(self, id: str, vector: np.ndarray) -> None:
        number = self._numbers.get(id, self._next)
        self._index.insert(number, vector)
        if number == self._next:
            self._numbers[id], self._ids[number] = number, id
            self._next += 1

    def delete(self, id: str) -> None:
        number = self._numbers.pop(id, None)
        if number is not None:
            del self._ids[number]
            self._index.delete(number)

    def search(
        self, vector: np.ndarray, k: int, filter: Callable[[str], bool] | None = None
    ) -> list[tuple[str, float]]:
        where = None if filter is None else lambda number: filter(self._ids[number])
        return [(self._ids[number], 1 - distance) for number, distance in self._index.search(vector, k, where=where)]
