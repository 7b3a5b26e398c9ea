"""Adapters at the head's input for the kernels' tests: random ones, and their effect on rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from py_core.adapters.head import NeighbourAdapter


def drawn_adapters(draw: np.random.Generator, h: np.ndarray, vocab_size: int) -> list[NeighbourAdapter | None]:
    """None, and three whose neighbours are near to some of the states h (M, width).

    No nearest neighbour is so far away as tau that rounding decides whether the gate opens.
    """
    m, width = h.shape
    adapters: list[NeighbourAdapter | None] = [None]
    for tau in (-1.0, 0.5, 0.9):
        n = int(draw.integers(1, 9))
        near = h[draw.integers(0, m, n)] + draw.choice([0.1, 2], (n, 1)) * draw.standard_normal((n, width))
        states = near.astype(np.float32)
        cosines = h @ (states / np.linalg.norm(states, axis=1, keepdims=True)).T / np.linalg.norm(h, axis=1)[:, None]
        if np.abs(cosines.max(axis=1) - tau).min() < 1e-3:
            tau = -1.0
        lambda_, temperature = draw.uniform(0.1, 0.99), 10 ** draw.uniform(-2, 0)
        tokens = draw.integers(0, min(vocab_size, 5) if draw.random() < 0.5 else vocab_size, n)
        adapters.append(NeighbourAdapter(states, tokens, lambda_, tau, temperature))
    return adapters


def changed_rows(adapters: Sequence[NeighbourAdapter | None], h: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """The logits of rows that have an adapter each, or none."""
    logits = logits.copy()
    for row, adapter in enumerate(adapters):
        one = slice(row, row + 1)
        if adapter:
            logits[one] = adapter.changed(h[one], logits[one])
    return logits
