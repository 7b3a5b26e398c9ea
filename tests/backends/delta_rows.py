"""Passes of a gated delta rule over two texts in random pages, and what they should give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from py_core.backends.numpy import rows as reference
from py_core.paging.page_table import PAGE, head_state

SLOTS, PAGES = 2, 3


@dataclass(frozen=True)
class DeltaRows:
    """The rows of each text: x (SLOTS, positions, (2 key_heads + heads) size), alpha and beta (SLOTS, positions,
    heads); rate and bias (heads,); the table of states (SLOTS, PAGES)."""

    key_heads: int
    x: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    rate: np.ndarray
    bias: np.ndarray
    table: np.ndarray

    @classmethod
    def drawn(cls, rng: np.random.Generator, key_heads: int, heads: int, size: int) -> DeltaRows:
        """Two pages and some rows of a third, remembered for some time."""

        def normal(*shape: int) -> np.ndarray:
            return rng.standard_normal(shape).astype(np.float32)

        length = 2 * PAGE + 5
        table = rng.permutation(SLOTS * PAGES).reshape(SLOTS, PAGES).astype(np.uint32)
        x, rate = normal(SLOTS, length, (2 * key_heads + heads) * size), -np.exp(normal(heads) - 2)
        alpha, beta = normal(2, SLOTS, length, heads) * rng.choice([1, 30]).astype(np.float32)
        return cls(key_heads, x, alpha, beta, rate, normal(heads), table)

    @property
    def heads(self) -> int:
        return len(self.rate)

    @property
    def size(self) -> int:
        return self.x.shape[2] // (2 * self.key_heads + self.heads)

    @property
    def states(self) -> np.ndarray:
        """The states before the passes: a number that is read too early is none."""
        return np.full((SLOTS * PAGES, self.heads, head_state(self.size)), np.nan, np.float32)

    def passes(self, rng: np.random.Generator, most: int) -> Iterator[list[tuple[int, int]]]:
        """The (position, slot) of each row, in passes of up to `most` rows; some rows run again, as after a guess."""
        done, length = [0] * SLOTS, self.x.shape[1]
        while min(done) < length:
            rows = list[tuple[int, int]]()
            for slot in rng.permutation(SLOTS):
                again = int(rng.integers(0, 4)) if done[slot] < length else 0
                first = max(done[slot] - again, 0)
                done[slot] = min(length, first + int(rng.integers(1, most // SLOTS + 1)))
                rows += [(position, int(slot)) for position in range(first, done[slot])]
            if rows:
                yield rows

    def of(self, values: np.ndarray, rows: list[tuple[int, int]]) -> np.ndarray:
        """The rows of a pass of x, alpha or beta."""
        return np.stack([values[slot, position] for position, slot in rows])

    def expected(self) -> np.ndarray:
        """The outputs of each text, float32 (SLOTS, positions, heads size)."""
        widths = (self.key_heads * self.size, self.heads * self.size, self.heads)
        none = [np.zeros((0, width)) for width in widths]
        found = [
            reference.delta_rule(*(each.astype(np.float64) for each in rows), self.key_heads, tuple(none))[0]
            for rows in (
                (self.x[slot], self.alpha[slot], self.beta[slot], self.rate, self.bias) for slot in range(SLOTS)
            )
        ]
        return np.stack(found).astype(np.float32)
