"""LoRA: small matrices that change what a model's linears give, without touching its weights (arXiv 2106.09685)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from py_core.models.graph import Graph
from py_core.showing import one_line, shown

MAX_RANK = 16
"""The largest that the kernels have room for."""

BASE_TITLE = "base_title"
"""In an adapter's metadata: what its model is called."""


class AdapterError(ValueError):
    """An adapter is damaged, or not for this model; the message says what to do."""


@dataclass(frozen=True, eq=False)
class LoraPair:
    """What one tensor's linear adds: y += scale * (x @ a.T) @ b.T, with a (rank, in) and b (out, rank), float32.

    PEFT's scale is alpha / rank.
    """

    a: np.ndarray
    b: np.ndarray
    scale: float

    @property
    def rank(self) -> int:
        return len(self.a)

    @property
    def delta(self) -> np.ndarray:
        """What it adds to the weights: (out, in)."""
        return np.float32(self.scale) * (self.b @ self.a)


@dataclass(frozen=True)
class LoraAdapter:
    """A set of pairs by the name of the tensor that they belong to ("blk.0.attn_q.weight"), in this file's row order.

    base_sha256: of the model file that it was made for; "" where a file does not say.
    metadata: texts that the file carries besides.
    """

    name: str
    pairs: Mapping[str, LoraPair]
    base_sha256: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """The largest of its pairs."""
        return max((pair.rank for pair in self.pairs.values()), default=0)


def check_base(adapter: LoraAdapter, sha256: str) -> None:
    """Raises AdapterError for an adapter that was made for another model file than the one with this sha256.

    An adapter that does not tell its model passes; `check_adapter` sees whether it fits.
    """
    if adapter.base_sha256 and adapter.base_sha256 != sha256:
        title = adapter.metadata.get(BASE_TITLE, "")
        raise AdapterError(
            f"The adapter {shown(adapter.name)} was made for another model than this one: for "
            f"{one_line(title) or 'a file'} with the sha256 {adapter.base_sha256[:12]}..., and this is "
            f"{sha256[:12] or 'a file whose sha256 is not known'}. Choose that model, or another adapter."
        )


def check_adapter(adapter: LoraAdapter, graph: Graph) -> None:
    """Raises AdapterError where the pairs do not fit the matrices of a model's linears."""
    linears = graph.linear_weights
    if not adapter.pairs:
        raise AdapterError(
            f"The adapter {shown(adapter.name)} changes nothing: it has no matrices. Choose another file."
        )
    for name, pair in adapter.pairs.items():
        if name not in linears:
            raise AdapterError(
                f"The adapter {shown(adapter.name)} changes {shown(name)}, which this model does not have as a linear. "
                "It was made for another model: choose that one, or another adapter."
            )
        rows, columns = graph.weights[name]
        if pair.a.shape != (pair.rank, columns) or pair.b.shape != (rows, pair.rank):
            raise AdapterError(
                f"The adapter {shown(adapter.name)} has matrices of {pair.a.shape} and {pair.b.shape} for "
                f"{shown(name)}, which is ({rows}, {columns}). It was made for another model: choose that one, or "
                "another adapter."
            )
        if not 1 <= pair.rank <= MAX_RANK:
            raise AdapterError(
                f"The adapter {shown(adapter.name)} has rank {pair.rank} for {shown(name)}; ranks of 1 to {MAX_RANK} "
                f"can be used. `sonata adapters import --rank {MAX_RANK}` makes a smaller one of it."
            )
