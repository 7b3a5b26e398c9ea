"""What votes in the router: texts that belong to agents, with vectors, learned weights and an index of the nearest."""

from __future__ import annotations

import hashlib

import numpy as np

from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.hnsw.index import HnswIndex, HnswSettings
from py_core.memory.patterns import Pattern, Source

SCANNED = 8192
"""So many patterns are compared one by one: a fraction of a millisecond, exact, and no graph to build at the start."""


class PatternIndex:
    """Patterns by their ids, with an index of those that may vote."""

    def __init__(self, dimensions: int, kernel: HnswKernel | None) -> None:
        self._kernel = kernel
        self._settings = HnswSettings(dimensions, brute_force_below=SCANNED)
        self.index = HnswIndex(self._settings, kernel)
        self.of: dict[int, Pattern] = {}
        """By the numbers that they have in the index."""
        self._numbers: dict[str, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self.of)

    def __contains__(self, id: object) -> bool:
        return id in self._numbers

    def __getitem__(self, id: str) -> Pattern:
        return self.of[self._numbers[id]]

    def put(self, pattern: Pattern, active: bool) -> None:
        """Add it, or put it in place of the one with its id. One that is not active does not vote."""
        number = self._numbers.get(pattern.id, self._next)
        self._set_active(number, pattern, active)
        self._next = max(self._next, number + 1)
        self._numbers[pattern.id] = number
        self.of[number] = pattern

    def remove(self, id: str) -> bool:
        number = self._numbers.pop(id, None)
        if number is None:
            return False
        self.index.delete(number)
        del self.of[number]
        return True

    def reweigh(self, pattern: Pattern) -> Pattern:
        """In place of the one with its id, which has the same text, vector and agent. Raises KeyError."""
        self.of[self._numbers[pattern.id]] = pattern
        return pattern

    def activate(self, agents: frozenset[str]) -> None:
        """Only patterns of these agents vote."""
        for number, pattern in self.of.items():
            if (number in self.index) != (pattern.agent in agents):
                self._set_active(number, pattern, pattern.agent in agents)

    def nearest(self, vector: np.ndarray, k: int) -> list[tuple[Pattern, float]]:
        """(pattern, cosine), the most similar first."""
        return [(self.of[number], 1 - distance) for number, distance in self.index.search(vector, k)]

    def _set_active(self, number: int, pattern: Pattern, active: bool) -> None:
        if active:
            self.index.insert(number, pattern.vector)
        else:
            self.index.delete(number)


def pattern_id(text: str, source: Source, agent: str = "") -> str:
    """The same for the same text and source (of examples: and agent), so that a correction replaces the one before."""
    told = f"{_plain(text)}\0{'' if source == 'user' else agent}"
    return f"{source}-{hashlib.sha256(told.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def same_text(first: str, second: str) -> bool:
    """But for capitals and spaces."""
    return _plain(first) == _plain(second)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
