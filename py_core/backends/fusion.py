"""Finds in a graph what one kernel does together: the same view for every backend that lowers to kernels.

A linear or a rotation never stands alone: it belongs to the attention, the gated feed-forward or the residual that
reads it. What does not fit raises NotImplementedError with the operation's name: a gap in Sonata, not a user's error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from py_core.models.graph import (
    Add,
    Attention,
    Embedding,
    Graph,
    Linear,
    Op,
    RMSNorm,
    Rope,
    SwiGLU,
    Value,
)  # fmt: skip


@dataclass(frozen=True)
class QKVAttention:
    """Three linears of one value, rotation of q and k, and attention."""

    out: Value
    x: Value
    q: Linear
    k: Linear
    v: Linear
    rope: Rope
    attention: Attention


@dataclass(frozen=True)
class GatedLinear:
    """silu(gate) * up, for two linears of one value."""

    out: Value
    x: Value
    gate: Linear
    up: Linear


@dataclass(frozen=True)
class ResidualLinear:
    """residual + linear; the residual is not read any more, so it is updated in place."""

    out: Value
    residual: Value
    linear: Linear


@dataclass(frozen=True)
class Head:
    """The linear that makes the logits."""

    out: Value
    linear: Linear


Fused = Embedding | RMSNorm | QKVAttention | GatedLinear | ResidualLinear | Head


def fuse(graph: Graph) -> tuple[list[Fused], list[Fused]]:
    """The graph's body and its head (see `Graph`): operations in order, as few as possible."""
    body = {op.out for op in graph.body}
    fused = list(_fused(graph))
    return [op for op in fused if op.out in body], [op for op in fused if op.out not in body]


def _fused(graph: Graph) -> Iterator[Fused]:
    producer = {op.out: op for op in graph.ops}
    readers: dict[Value, list[Op]] = {}
    for op in graph.ops:
        for value in vars(op).values():
            if isinstance(value, Value) and value != op.out:
                readers.setdefault(value, []).append(op)
    for op in graph.ops:
        match op:
            case Embedding() | RMSNorm():
                yield op
            case Attention():
                yield _attention(op, producer)
            case SwiGLU():
                gate, up = producer[op.gate], producer[op.up]
                if not (isinstance(gate, Linear) and isinstance(up, Linear) and gate.x == up.x):
                    raise NotImplementedError("swiglu whose gate and up do not come from one value")
                yield GatedLinear(op.out, gate.x, gate, up)
            case Add():
                linear = producer[op.b]
                if not isinstance(linear, Linear) or readers[op.a][-1] is not op:
                    raise NotImplementedError("an addition that is not residual + linear")
                yield ResidualLinear(op.out, op.a, linear)
            case Linear() if op.out == graph.output:
                yield Head(op.out, op)
            case Linear() | Rope():
                found = readers.get(op.out, [])
                if len(found) != 1 or not isinstance(found[0], Rope | Attention | SwiGLU | Add):
                    names = [type(reader).__name__ for reader in found]
                    raise NotImplementedError(f"a {type(op).__name__} read by {names}")


def _attention(op: Attention, producer: dict[Value, Op]) -> QKVAttention:
    rope_q, rope_k, v = producer[op.q], producer[op.k], producer[op.v]
    if not (isinstance(rope_q, Rope) and isinstance(rope_k, Rope) and isinstance(v, Linear)):
        raise NotImplementedError("attention whose q and k are not rotated linears")
    q, k = producer[rope_q.x], producer[rope_k.x]
    if not (isinstance(q, Linear) and isinstance(k, Linear) and q.x == k.x == v.x):
        raise NotImplementedError("attention whose q, k and v do not come from one value")
    if rope_q.interleaved != rope_k.interleaved:
        raise NotImplementedError("attention whose q and k are rotated in different ways")
    return QKVAttention(op.out, v.x, q, k, v, rope_q, op)
