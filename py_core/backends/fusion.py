"""Finds the operations of a graph that one kernel does together. All backends that lower to kernels use this view.

A pattern is fused if no other operation reads the values inside it. An operation that fits no pattern stays alone, and
backends have a kernel for each operation: a new architecture runs at once and is fused later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

from py_core.models.graph import (
    GLU,
    Activation,
    Add,
    Attention,
    Embedding,
    Graph,
    Linear,
    Op,
    RMSNorm,
    Rope,
    Scale,
    SoftCap,
    Value,
)  # fmt: skip


@dataclass(frozen=True)
class QKVAttention:
    """Three linears of one value, norms of each head of q and k if any, their rotation if any, and attention.

    The norm of v, if any, is of each head, too, and has no weights. There is none without norms of q and k.
    """

    out: Value
    x: Value
    q: Linear
    k: Linear
    v: Linear
    q_norm: RMSNorm | None
    k_norm: RMSNorm | None
    v_norm: RMSNorm | None
    rope: Rope | None
    attention: Attention


@dataclass(frozen=True)
class GatedLinear:
    """activation(gate) * up, for two linears of one value."""

    out: Value
    x: Value
    gate: Linear
    up: Linear
    activation: Activation


@dataclass(frozen=True)
class ResidualLinear:
    """residual + norm(linear); the residual is not read any more, so it is updated in place."""

    out: Value
    residual: Value
    linear: Linear
    norm: RMSNorm | None


@dataclass(frozen=True)
class FusedHead:
    """The linear that makes the logits, and their soft-cap if any."""

    out: Value
    linear: Linear
    soft_cap: SoftCap | None


_BLOCK = re.compile(r"blk\.(\d+)\.")

T = TypeVar("T", bound=Op)

Fused = QKVAttention | GatedLinear | ResidualLinear | FusedHead | Op


def fuse(graph: Graph) -> tuple[list[Fused], list[Fused]]:
    """Return the graph's body and its head (see `Graph`): operations in order, as few as possible."""
    body = {op.out for op in graph.body}
    fused = _Fusion(graph).operations()
    return [op for op in fused if op.out in body], [op for op in fused if op.out not in body]


def fused_layers(graph: Graph) -> list[bool]:
    """Return for each layer if all its operations are part of a pattern. If not, it still runs, with more kernels."""
    found: dict[int, bool] = {}
    convolved = {op.x for op in graph.convolutions.values()}
    layer = 0
    body, _ = fuse(graph)
    for op in body:
        # An operation without weights belongs to the layer of those before it.
        names = [name for linear in linears_of(op) for name in (linear.weight, linear.bias)]
        for name in (*names, getattr(op, "weight", None)):
            if name and (match := _BLOCK.match(name)):
                layer = int(match[1])
        alone = isinstance(op, Linear | Rope | Attention | GLU | Add | SoftCap | Scale) and op.out not in convolved
        alone |= isinstance(op, RMSNorm) and op.num_heads > 1
        if not isinstance(op, Embedding):
            found[layer] = found.get(layer, True) and not alone
    return [found[layer] for layer in sorted(found)]


def inputs_of(op: Fused) -> list[Value]:
    """Return the values that an operation of a graph reads. Keys and values that it does not append lie in pages."""
    if isinstance(op, Attention) and not op.appends:
        return [op.q]
    return [value for value in vars(op).values() if isinstance(value, Value) and value != op.out]


def linears_of(op: Fused) -> list[Linear]:
    """Return the linears that an operation makes, in the order in which their rows would be in one matrix."""
    match op:
        case QKVAttention():
            return [op.q, op.k, op.v]
        case GatedLinear():
            return [op.gate, op.up]
        case ResidualLinear() | FusedHead():
            return [op.linear]
        case Linear():
            return [op]
    return []


class _Fusion:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._producer = {op.out: op for op in graph.ops}
        self._readers: dict[Value, list[Op]] = {}
        for op in graph.ops:
            for value in inputs_of(op):
                self._readers.setdefault(value, []).append(op)
        self._tapped = set(graph.taps.values())
        self._swallowed: set[Value] = set()

    def operations(self) -> list[Fused]:
        found = [self._fused(op) for op in self._graph.ops]
        return [op for op in found if op.out not in self._swallowed]

    def _fused(self, op: Op) -> Fused:
        match op:
            case Attention():
                return self._attention(op) or op
            case GLU() if op.activation != "sigmoid":
                gate, up = self._inner(op.gate, Linear), self._inner(op.up, Linear)
                if gate is None or up is None or gate.x != up.x:
                    return op
                self._swallowed |= {gate.out, up.out}
                return GatedLinear(op.out, gate.x, gate, up, op.activation)
            case Add():
                norm = self._inner(op.b, RMSNorm)
                linear = self._inner(norm.x if norm else op.b, Linear)
                if linear is None or linear.x == op.a or self._readers[op.a][-1] is not op:
                    return op
                if norm and norm.num_heads > 1:
                    return op
                self._swallowed |= {linear.out, op.b}
                return ResidualLinear(op.out, op.a, linear, norm)
            case Linear() if op.out == self._graph.output:
                return FusedHead(op.out, op, None)
            case SoftCap() if op.out == self._graph.output:
                linear = self._inner(op.x, Linear)
                if linear is None:
                    return op
                self._swallowed.add(linear.out)
                return FusedHead(op.out, linear, op)
        return op

    def _attention(self, op: Attention) -> QKVAttention | None:
        if not op.appends:
            return None
        v_norm = self._inner(op.v, RMSNorm)
        v = self._inner(v_norm.x if v_norm else op.v, Linear)
        q, q_norm, q_rope = self._rotated(op.q)
        k, k_norm, k_rope = self._rotated(op.k)
        if q is None or k is None or v is None or not q.x == k.x == v.x:
            return None
        if q_norm and k_norm and not _per_head(op, q_norm, k_norm):
            return None
        if (q_norm is None) != (k_norm is None) or (q_rope is None) != (k_rope is None):
            return None
        if v_norm and not (k_norm and _like(v_norm, k_norm)):
            return None
        if q_rope and k_rope and (q_rope.interleaved, q_rope.rotation) != (k_rope.interleaved, k_rope.rotation):
            return None
        swallowed = (q, k, v, q_norm, k_norm, v_norm, q_rope, k_rope)
        self._swallowed |= {inner.out for inner in swallowed if inner is not None}
        return QKVAttention(op.out, v.x, q, k, v, q_norm, k_norm, v_norm, q_rope, op)

    def _rotated(self, value: Value) -> tuple[Linear | None, RMSNorm | None, Rope | None]:
        """Return the parts of rope(norm(linear)), of which the first two may be missing."""
        rope = self._inner(value, Rope)
        norm = self._inner(rope.x if rope else value, RMSNorm)
        return self._inner(norm.x if norm else rope.x if rope else value, Linear), norm, rope

    def _inner(self, value: Value, kind: type[T]) -> T | None:
        """Return the operation that makes a value, if it is of this kind and only one operation reads the value."""
        op = self._producer[value]
        alone = len(self._readers.get(value, [])) == 1 and value not in self._tapped and value != self._graph.output
        return op if isinstance(op, kind) and alone else None


def _like(v_norm: RMSNorm, k_norm: RMSNorm) -> bool:
    """True if a norm of v has no weights, and otherwise is that of k."""
    return v_norm.weight is None and (v_norm.num_heads, v_norm.eps) == (k_norm.num_heads, k_norm.eps)


def _per_head(op: Attention, q_norm: RMSNorm, k_norm: RMSNorm) -> bool:
    """True if the norms of q and k apply to each head by itself, and are alike."""
    heads = (q_norm.num_heads, k_norm.num_heads)
    return heads == (op.num_attention_heads, op.num_key_value_heads) and q_norm.eps == k_norm.eps
