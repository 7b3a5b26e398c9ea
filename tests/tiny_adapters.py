"""Sets of LoRA matrices for tiny models."""

from __future__ import annotations

import numpy as np

from py_core.adapters.lora import LoraAdapter, LoraPair
from py_core.models.graph import Graph


def drawn(graph: Graph, seed: int, rank: int = 8, only: str = "") -> LoraAdapter:
    """A set that shows: as large as a tenth of the weights."""
    draw = np.random.default_rng(seed)
    pairs = {}
    for name in sorted(graph.linear_weights):
        rows, columns = graph.weights[name]
        if only in name:
            a = draw.standard_normal((rank, columns)).astype(np.float32)
            b = draw.standard_normal((rows, rank)).astype(np.float32)
            pairs[name] = LoraPair(a, b, 0.3 / (rank * columns) ** 0.5)
    return LoraAdapter(f"drawn {seed}", pairs)
