"""The router's patterns, with an index of those whose agents are active."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.hnsw.vector_index import SCANNED, VectorIndex
from py_core.routing.patterns import Pattern, Source


class PatternIndex:
    """Patterns by their ids. Only patterns of active agents vote; before `activate` there are none."""

    def __init__(self, dimensions: int, kernel: HnswKernel | None, scanned: int = SCANNED) -> None:
        """kernel: numpy's if None. scanned: up to this many patterns are compared one by one."""
        self.of: dict[str, Pattern] = {}
        """Patterns by their ids."""
        self.index = VectorIndex(dimensions, kernel, scanned)
        self._agents: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.of)

    def __contains__(self, id: object) -> bool:
        return id in self.of

    def __getitem__(self, id: str) -> Pattern:
        return self.of[id]

    def put(self, pattern: Pattern) -> None:
        """Add a pattern, or replace the one with its id."""
        self.of[pattern.id] = pattern
        self._index(pattern)

    def put_unindexed(self, patterns: Iterable[Pattern]) -> None:
        """Add many at once, before `replace_index`: until then they do not vote."""
        self.of.update((pattern.id, pattern) for pattern in patterns)

    def voting(self) -> dict[str, np.ndarray]:
        """The vectors of the patterns that may vote, by their ids."""
        return {id: pattern.vector for id, pattern in self.of.items() if pattern.agent in self._agents}

    def replace_index(self, index: VectorIndex) -> None:
        """Search with this index from now on; it must hold the `voting` vectors."""
        self.index = index

    def remove(self, id: str) -> bool:
        if self.of.pop(id, None) is None:
            return False
        self.index.delete(id)
        return True

    def reweigh(self, pattern: Pattern) -> Pattern:
        """Replace the pattern with the same id, text, vector and agent. Raises KeyError."""
        if pattern.id not in self.of:
            raise KeyError(pattern.id)
        self.of[pattern.id] = pattern
        return pattern

    def activate(self, agents: frozenset[str]) -> None:
        """Let only patterns of these agents vote."""
        self._agents = agents
        for pattern in self.of.values():
            if (pattern.id in self.index) != (pattern.agent in agents):
                self._index(pattern)

    def nearest(self, vector: np.ndarray, k: int) -> list[tuple[Pattern, float]]:
        """(pattern, cosine), the most similar first."""
        return [(self.of[id], similarity) for id, similarity in self.index.search(vector, k)]

    def _index(self, pattern: Pattern) -> None:
        if pattern.agent in self._agents:
            self.index.insert(pattern.id, pattern.vector)
        else:
            self.index.delete(pattern.id)


def pattern_id(text: str, source: Source, agent: str = "") -> str:
    """An id from text and source (for examples also the agent), so that a correction replaces the one before."""
    told = f"{_plain(text)}\0{'' if source == 'user' else agent}"
    return f"{source}-{hashlib.sha256(told.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def same_text(first: str, second: str) -> bool:
    """True if two texts are the same except for case and spaces."""
    return _plain(first) == _plain(second)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
