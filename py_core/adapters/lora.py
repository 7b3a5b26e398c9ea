"""LoRA: small matrices that change the output of a model's linears, without touching its weights (arXiv 2106.09685)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from py_core.display import one_line, shown
from py_core.messages import UserError
from py_core.models.graph import Graph

MAX_RANK = 16
"""The largest rank that the kernels have room for."""

BASE_TITLE = "base_title"
"""The key in an adapter's metadata for the title of its model."""


class AdapterError(UserError, ValueError):
    """An adapter is damaged, or not for this model; the message says what to do."""


@dataclass(frozen=True, eq=False)
class LoraPair:
    """The change of one tensor's linear: y += scale * (x @ a.T) @ b.T, with a (rank, in) and b (out, rank), float32.

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
        """The change of the weights: (out, in)."""
        return np.float32(self.scale) * (self.b @ self.a)


@dataclass(frozen=True)
class LoraAdapter:
    """A set of pairs by the name of their tensor ("blk.0.attn_q.weight"), in the model file's row order.

    base_sha256: of the model file that it was made for; "" if unknown.
    metadata: other texts in the file.
    """

    name: str
    pairs: Mapping[str, LoraPair]
    base_sha256: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """The largest rank of its pairs."""
        return max((pair.rank for pair in self.pairs.values()), default=0)


def check_base(adapter: LoraAdapter, sha256: str) -> None:
    """Raises AdapterError if the adapter was made for another model file than the one with this sha256.

    An adapter without a base_sha256 passes; `check_adapter` tests whether it fits.
    """
    if adapter.base_sha256 and adapter.base_sha256 != sha256:
        title = adapter.metadata.get(BASE_TITLE, "")
        raise AdapterError(
            "adapter.other-model",
            "The adapter {name} was made for another model: for {title} with the sha256 {theirs}..., and "
            "this one has {ours}. Choose that model, or another adapter.",
            name=shown(adapter.name),
            title=one_line(title) or "a file",
            theirs=adapter.base_sha256[:12],
            ours=sha256[:12] or "a file whose sha256 is not known",
        )


def check_adapter(adapter: LoraAdapter, graph: Graph) -> None:
    """Raises AdapterError if the pairs do not fit the matrices of the model's linears."""
    linears = graph.linear_weights
    if not adapter.pairs:
        raise AdapterError(
            "adapter.changes-nothing",
            "The adapter {name} changes nothing: it has no matrices. Choose another file.",
            name=shown(adapter.name),
        )
    for name, pair in adapter.pairs.items():
        if name not in linears:
            raise AdapterError(
                "adapter.no-linear-named",
                "The adapter {name} changes {tensor}, which is not a linear of this model. It was made for "
                "another model: choose that one, or another adapter.",
                name=shown(adapter.name),
                tensor=shown(name),
            )
        rows, columns = graph.weights[name]
        if pair.a.shape != (pair.rank, columns) or pair.b.shape != (rows, pair.rank):
            raise AdapterError(
                "adapter.other-shapes-named",
                "The adapter {name} has matrices of {a} and {b} for {tensor}, which is "
                "({rows}, {columns}). It was made for another model: choose that one, or "
                "another adapter.",
                name=shown(adapter.name),
                a=pair.a.shape,
                b=pair.b.shape,
                tensor=shown(name),
                rows=rows,
                columns=columns,
            )
        if not 1 <= pair.rank <= MAX_RANK:
            raise AdapterError(
                "adapter.rank-named",
                "The adapter {name} has rank {rank} for {tensor}; it may have 1 to {most}. `sonata adapters "
                "import --rank {most}` makes it smaller.",
                name=shown(adapter.name),
                rank=pair.rank,
                tensor=shown(name),
                most=MAX_RANK,
            )
