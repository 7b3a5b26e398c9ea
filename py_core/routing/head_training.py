"""Trains the router's linear head further with what the user corrected, and with the shipped examples as rehearsal.

    rehearsed = await Rows.of(texts, vectors, head, step)
    corrected = await Rows.of(texts, vectors, head, step)
    head = await retrained(head, rehearsed, corrected, agents, weights, words=0.7, step=memory.background.step)

The change D of the head's weights is the least of

    sum over corrections w |x D - (y - x W)|^2  +  sum over examples |x D|^2  +  RIDGE |D|^2

(x: a request's input, W: the shipped head, y: 1 for the user's agent and 0 for the others, less their mean): what the
examples get stays, as far as the corrections allow. It is found by conjugate gradients, a column an agent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

import numpy as np

from py_core.routing.head import BUCKETS, Head, buckets

CORRECTION_WEIGHT = 2.0
"""What a correction counts beside a shipped example. docs/decisions.md says how it was found."""
RIDGE = 1.0
STEPS = 8
"""Of conjugate gradients: what is left of the residual is below a thousandth."""
ROWS_TOGETHER = 64

Step = Callable[[], AbstractAsyncContextManager[None]]
"""Around each piece of some milliseconds, so that others get their turn: Background.step."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The inputs of a head: `vectors` float32 (rows, dimensions), and of the words those that are there, as numbers
    `values` float32 (n,) in `columns` and `rows`, int64 (n,), ascending by row; `by_column` sorts them by column."""

    vectors: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    by_column: np.ndarray

    @classmethod
    async def of(cls, texts: Sequence[str], vectors: np.ndarray, head: Head, step: Step) -> Rows:
        """vectors: float32 (texts, dimensions)."""
        rows, columns, values = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
        for start in range(0, len(texts), ROWS_TOGETHER):
            async with step():
                for row, text in enumerate(texts[start : start + ROWS_TOGETHER], start):
                    found = buckets(text)
                    rarity = head.rarity[found]
                    length = float(np.sqrt(rarity @ rarity))
                    if length:
                        rows.append(np.full(len(found), row))
                        columns.append(found)
                        values.append(rarity / length)
        return cls._made(np.asarray(vectors, np.float32), rows, columns, values)

    @classmethod
    def _made(
        cls, vectors: np.ndarray, rows: Sequence[np.ndarray], columns: Sequence[np.ndarray],
        values: Sequence[np.ndarray],
    ) -> Rows:  # fmt: skip
        empty = np.empty(0, np.int64)
        of = np.concatenate([empty, *columns]).astype(np.int64)
        return cls(
            vectors, np.concatenate([empty, *rows]).astype(np.int64), of,
            np.concatenate([empty, *values]).astype(np.float32), np.argsort(of, kind="stable"),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.vectors)

    def joined(self, other: Rows) -> Rows:
        """These, and after them the others."""
        return self._made(
            np.concatenate([self.vectors, other.vectors]), [self.rows, other.rows + len(self)],
            [self.columns, other.columns], [self.values, other.values],
        )  # fmt: skip

    def only(self, chosen: np.ndarray) -> Rows:
        """Those of a mask (rows,)."""
        kept, numbers = chosen[self.rows], np.cumsum(chosen) - 1
        return self._made(
            self.vectors[chosen], [numbers[self.rows[kept]]], [self.columns[kept]], [self.values[kept]]
        )  # fmt: skip

    def times(self, words: np.ndarray, dense: np.ndarray) -> np.ndarray:
        """float32 (rows, agents), of weights (BUCKETS, agents) and (dimensions, agents)."""
        found = self.vectors @ dense
        _add(found, self.rows, words[self.columns] * self.values[:, None])
        return found

    def transposed_times(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(BUCKETS, agents) and (dimensions, agents), of float32 (rows, agents)."""
        words = np.zeros((BUCKETS, rows.shape[1]), np.float32)
        parts = rows[self.rows[self.by_column]] * self.values[self.by_column, None]
        _add(words, self.columns[self.by_column], parts)
        return words, self.vectors.T @ rows


def _add(target: np.ndarray, at: np.ndarray, parts: np.ndarray) -> None:
    """target[at] += parts, where equal places lie side by side."""
    if len(at):
        starts = np.flatnonzero(np.diff(at, prepend=-1))
        target[at[starts]] += np.add.reduceat(parts, starts, axis=0)


async def retrained(
    head: Head, rehearsed: Rows, corrected: Rows, agents: Sequence[str], weights: np.ndarray, *, words: float,
    step: Step,
) -> Head:  # fmt: skip
    """The head after the corrections: for `agents`, which the head must know, one a row of `corrected`.

    weights: (rows of corrected,), of each beside a shipped example. words: the words' part in the input, 0 to 1
    (RouterParameters.head_words).
    """
    count = len(head.agents)
    async with step():
        rows = rehearsed.joined(corrected)
        wanted = np.eye(count, dtype=np.float32)[[head.agents.index(agent) for agent in agents]] - 1 / count
        missing = np.zeros((len(rows), count), np.float32)
        missing[len(rehearsed) :] = wanted - corrected.times(head.words, head.dense)
        weight = np.concatenate([np.ones(len(rehearsed)), weights]).astype(np.float32)[:, None]
        # The ridge is that of the head's own input, whose two parts have these sizes.
        sizes = (np.float32(np.sqrt(words)), np.float32(np.sqrt(1 - words)))
        left = _scaled(rows.transposed_times(weight * missing), sizes)
        found = [np.zeros_like(part) for part in left]
        way = [part.copy() for part in left]
        size = _square(left)
    for _ in range(STEPS):
        async with step():
            reached = weight * rows.times(*_scaled(way, sizes))
        async with step():
            ahead = rows.transposed_times(reached)
            curved = [part + np.float32(RIDGE) * own for part, own in zip(_scaled(ahead, sizes), way, strict=True)]
            bend = sum((own * part).sum(0) for own, part in zip(way, curved, strict=True))
            length = np.where(size > 0, size / np.maximum(bend, 1e-30), 0).astype(np.float32)
            for part, own, curve, rest in zip(found, way, curved, left, strict=True):
                part += length * own
                rest -= length * curve
            before, size = size, _square(left)
            turn = np.where(before > 0, size / np.maximum(before, 1e-30), 0).astype(np.float32)
            way = [rest + turn * own for rest, own in zip(left, way, strict=True)]
    change = _scaled(found, sizes)
    return replace(head, words=head.words + change[0], dense=head.dense + change[1])


def _scaled(parts: Sequence[np.ndarray], sizes: Sequence[np.float32]) -> list[np.ndarray]:
    return [part * size for part, size in zip(parts, sizes, strict=True)]


def _square(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Of each column: float64 (agents,)."""
    return sum(((part * part).sum(0, dtype=np.float64) for part in parts), start=np.zeros(parts[0].shape[1]))
