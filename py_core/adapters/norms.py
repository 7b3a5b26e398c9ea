"""The strength of an adapter: the Frobenius norm of its change of the weights."""

from __future__ import annotations

import re

import numpy as np

from py_core.adapters.lora import LoraAdapter

_LAYER = re.compile(r"blk\.(\d+)\.")


def pair_norm(a: np.ndarray, b: np.ndarray, scale: float = 1.0) -> float:
    """The norm of scale * b @ a, without forming it. a: (rank, in), b: (out, rank)."""
    squares = float(((b.T @ b) * (a @ a.T)).sum(dtype=np.float64))
    return abs(scale) * max(squares, 0.0) ** 0.5


def layer_norms(adapter: LoraAdapter) -> list[tuple[int, float]]:
    """(layer, norm of its change there) in the order of the layers; layers without a change are left out."""
    squares = dict[int, float]()
    for name, pair in adapter.pairs.items():
        if (found := _LAYER.match(name)) is not None:
            layer = int(found[1])
            squares[layer] = squares.get(layer, 0.0) + pair_norm(pair.a, pair.b, pair.scale) ** 2
    return [(layer, square**0.5) for layer, square in sorted(squares.items())]
