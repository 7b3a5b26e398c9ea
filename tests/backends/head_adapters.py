"""Adapters at the head's input for the kernels' tests: random ones, and their effect on rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from py_core.adapters.head import AnyHeadAdapter, HeadAdapter, NeighbourAdapter


def drawn_adapters(draw: np.random.Generator, h: np.ndarray, vocab_size: int) -> list[AnyHeadAdapter | None]:
    """None, and five of both kinds; the neighbours are near to some of the states h (M, width).

    No nearest neighbour is so far away as tau that rounding decides whether the gate opens.
    """
    m, width = h.shape
    adapters: list[AnyHeadAdapter | None] = [None]
    for _ in range(2):
        rank = int(draw.integers(1, 6))
        a, b = draw.standard_normal((rank, width)), draw.standard_normal((width, rank)) / (rank * width) ** 0.5
        adapters.append(HeadAdapter(a.astype(np.float32), b.astype(np.float32)))
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


def changed_rows(
    adapters: Sequence[AnyHeadAdapter | None], h: np.ndarray, logits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The states and the logits of rows that have an adapter each, or none."""
    h, before, logits = h.copy(), h, logits.copy()
    for row, adapter in enumerate(adapters):
        one = slice(row, row + 1)
        if isinstance(adapter, HeadAdapter):
            h[one] = adapter.changed(before[one])
        elif adapter:
            logits[one] = adapter.changed(before[one], logits[one])
    return h, logits
