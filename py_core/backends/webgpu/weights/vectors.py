"""Norms' weights and linears' biases on the GPU.

A norm's weights and the biases of the linears that read the norm follow each other, so that a kernel that makes both
binds one buffer: it has few to spare.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from py_core.backends.fusion import Fused, linears_of
from py_core.backends.webgpu.host import Binding
from py_core.backends.webgpu.weights.arena import WeightArena
from py_core.models.graph import Graph, Linear, RMSNorm, Scale, ShortConv


class Vectors:
    """The vectors of a model. Its `operations` say which linears one kernel may make together."""

    def __init__(self, arena: WeightArena, graph: Graph, operations: Iterable[Fused]) -> None:
        self._arena = arena
        self._ranges: dict[Hashable, list[tuple[str | None, int, int]]] = {}
        self._biases: dict[Linear, tuple[Hashable, int]] = {}
        self._placed: dict[Hashable, Binding] = {}
        norms = {op.out: op for op in graph.ops if isinstance(op, RMSNorm)}
        for scale in graph.ops:
            if isinstance(scale, Scale):
                self._ranges[scale.weight] = [(scale.weight, 0, 1)]
        for norm in norms.values():
            if norm.weight:
                self._ranges[norm.weight] = [(norm.weight, 0, norm.x.width // norm.num_heads)]
        for conv in graph.convolutions.values():
            self._ranges[conv.weight] = [(conv.weight, 0, conv.out.width * conv.taps)]
        for rule in graph.delta_rules.values():
            self._ranges[rule.rate] = [(rule.rate, 0, rule.heads), (rule.bias, 0, rule.heads)]
        for op in operations:
            linears = linears_of(op)
            if any(linear.bias for linear in linears):
                source = norms.get(linears[0].x)
                self._add_biases(linears, source.weight if source and source.num_heads == 1 else linears[0])

    def norm(self, op: RMSNorm) -> Binding:
        """Return a norm's weights and the biases behind them. Raises BackendError for a format that kernels do not
        read."""
        assert op.weight
        return self.named(op.weight)

    def taps(self, op: ShortConv) -> Binding:
        """Return a convolution's weights, (width, taps). Raises BackendError for a format that kernels do not read."""
        return self.named(op.weight)

    def named(self, weight: str) -> Binding:
        """Return what `norm` returns, by the name of the norm's weights; for a delta rule's rates, these and its
        biases; or the number that multiplies a layer."""
        return self._range(weight)

    def bias(self, linear: Linear) -> tuple[Binding, int] | None:
        """Return the place of a linear's biases: a range, and the number of the first one in it; None if it has none.

        The range begins with the weights of the norm that the linear reads, if any. The biases of linears that one
        kernel may make follow each other; if only some of them have biases, the others' are zeros.
        """
        if linear not in self._biases:
            return None
        key, first = self._biases[linear]
        return self._range(key), first

    def _add_biases(self, linears: list[Linear], key: Hashable) -> None:
        pieces = self._ranges.setdefault(key, [])
        for linear in linears:
            self._biases[linear] = key, sum(count for _, _, count in pieces)
            pieces.append((linear.bias, linear.first_row, linear.out.width))

    def _range(self, key: Hashable) -> Binding:
        if key not in self._placed:
            self._placed[key] = self._arena.place_vectors(self._ranges[key])
        return self._placed[key]
