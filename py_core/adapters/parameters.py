"""All matrices of a LoRA set in one vector: parameters, gradients and the optimizer's moments share this layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from py_core.adapters.lora import MAX_RANK, AdapterError, LoraAdapter, LoraPair
from py_core.models.graph import Graph

ALIGNMENT = 64
"""In floats. Each matrix begins at a multiple of it, as WebGPU requires of a binding. The padding is 0."""


@dataclass(frozen=True)
class Slot:
    """The place of a tensor's pair: a (rank, columns) from float `a` on, b (rows, rank) from float `b` on."""

    a: int
    b: int
    rows: int
    columns: int


@dataclass(frozen=True)
class ParameterLayout:
    """The trained tensors in the graph's order, `size` floats altogether. One rank and one scale for every pair."""

    rank: int
    scale: float
    slots: Mapping[str, Slot]
    size: int

    def flatten(self, adapter: LoraAdapter) -> np.ndarray:
        """The vector of a set, float32 (size,). Smaller ranks are padded with zeros, other scales are folded into b.

        Raises AdapterError if the set has pairs of other tensors, or of a larger rank.
        """
        flat = np.zeros(self.size, np.float32)
        for name, pair in adapter.pairs.items():
            if name not in self.slots or pair.rank > self.rank:
                raise AdapterError(
                    "adapter.not-trained",
                    "The adapter {name} has a pair of rank {rank} for {tensor}, which this training at rank {wanted} "
                    "does not change. Train with the adapter's linears and rank.",
                    name=adapter.name,
                    rank=pair.rank,
                    tensor=name,
                    wanted=self.rank,
                )
            a, b = self.views(flat)[name]
            a[: pair.rank] = pair.a
            b[:, : pair.rank] = pair.b * np.float32(pair.scale / self.scale)
        return flat

    def fresh(self, seed: int) -> np.ndarray:
        """The vector of a set that changes nothing yet: each a is random, initialized as in PEFT, and each b is 0."""
        flat, draw = np.zeros(self.size, np.float32), np.random.default_rng(seed)
        for a, _ in self.views(flat).values():
            a[:] = draw.uniform(-1, 1, a.shape) / a.shape[1] ** 0.5
        return flat

    def adapter(self, flat: np.ndarray, name: str, base_sha256: str = "") -> LoraAdapter:
        """The set that a vector holds, as copies."""
        pairs = {tensor: LoraPair(a.copy(), b.copy(), self.scale) for tensor, (a, b) in self.views(flat).items()}
        return LoraAdapter(name, pairs, base_sha256)

    def views(self, flat: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """a (rank, columns) and b (rows, rank) of each tensor, without a copy."""
        return {
            name: (
                flat[slot.a : slot.a + self.rank * slot.columns].reshape(self.rank, slot.columns),
                flat[slot.b : slot.b + self.rank * slot.rows].reshape(slot.rows, self.rank),
            )
            for name, slot in self.slots.items()
        }


def parameter_layout(graph: Graph, rank: int, scale: float, tensors: Collection[str] | None = None) -> ParameterLayout:
    """The layout of pairs for `tensors`, or for every linear of the blocks if it is None.

    Raises ValueError for a rank outside of 1 .. MAX_RANK, or a tensor that is not a linear of the blocks.
    """
    if not 1 <= rank <= MAX_RANK:
        raise ValueError(f"The rank is {rank}, but must be 1 to {MAX_RANK}.")
    linears = graph.linear_weights
    if tensors is not None and (unknown := sorted(set(tensors) - linears)):
        raise ValueError(f"{unknown[0]!r} is no linear of this model's blocks.")
    slots, end = {}, 0
    for name, shape in graph.weights.items():
        if name in (linears if tensors is None else tensors):
            rows, columns = shape
            b = end + _aligned(rank * columns)
            slots[name] = Slot(end, b, rows, columns)
            end = b + _aligned(rank * rows)
    return ParameterLayout(rank, scale, slots, end)


def _aligned(floats: int) -> int:
    return -(-floats // ALIGNMENT) * ALIGNMENT
