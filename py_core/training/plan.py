"""Turns a graph into a training plan: its forward pass with LoRA in the linears, and the graph of its gradients.

The graph is cut into blocks. The forward pass keeps only each block's input. The backward pass recomputes a block's
values from it, then computes the block's gradients, the last block first (gradient checkpointing, arXiv 1604.06174).
The base's weights are frozen: the gradients are those of the pairs a and b of each trained linear, y = x W^T + bias +
scale (x a^T) b^T. `gradient_ops.py` defines what each operation computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from py_core.adapters.parameters import ParameterLayout
from py_core.backend_errors import BackendError
from py_core.models.graph import (
    GLU,
    Add,
    Attention,
    DeltaRule,
    Embedding,
    ExpertLinear,
    Graph,
    Half,
    Linear,
    Mix,
    Op,
    RMSNorm,
    Rope,
    Route,
    Scale,
    ShortConv,
    SoftCap,
    Value,
)  # fmt: skip
from py_core.training.gradient_ops import (
    AttentionGradient,
    ConvGradient,
    ForwardOp,
    GLUGradient,
    GradientOp,
    HeadLoss,
    LinearGradient,
    LoraDown,
    LoraDownGradient,
    LoraUp,
    LoraUpGradient,
    PackedAttention,
    PackedConv,
    RMSNormGradient,
    RopeGradient,
    SoftCapGradient,
    values_made,
    values_read,
)  # fmt: skip


@dataclass(frozen=True)
class GraphBlock:
    """A part of the graph between two values of the residual stream.

    `forward` computes `out` from `x`. `recompute` are its operations whose values `backward` reads. `backward` computes
    `dx` from `dout` and adds to the parameters' gradients. If nothing is trained in this block or before it, both lists
    are empty and dout and dx are None. If nothing is trained before it, dx is None.
    """

    x: Value
    out: Value
    forward: tuple[ForwardOp, ...]
    recompute: tuple[ForwardOp, ...]
    backward: tuple[GradientOp, ...]
    dout: Value | None
    dx: Value | None


@dataclass(frozen=True)
class TrainingPlan:
    """The path of a pack: embedding, blocks, `head`, `loss`, and back through `head_backward` and the blocks."""

    layout: ParameterLayout
    embedding: Embedding
    blocks: tuple[GraphBlock, ...]
    head: tuple[ForwardOp, ...]
    loss: HeadLoss
    head_backward: tuple[GradientOp, ...]


def training_plan(graph: Graph, layout: ParameterLayout) -> TrainingPlan:
    """The plan of a training pass. Raises ValueError for a graph whose blocks are joined by more than residuals,
    BackendError for a mixture of experts, and for Gemma 4."""
    embedding, *body = graph.body
    if not isinstance(embedding, Embedding):
        raise ValueError("The graph does not begin with an embedding.")
    builder = _Builder(graph, layout)
    forward, x = [], embedding.out
    for out, ops in _blocks(graph, body):
        forward.append((x, out, builder.forward(ops)))
        x = out
    ends = list(graph.head)
    cap = last.cap if isinstance(last := ends[-1], SoftCap) else 0.0
    logits = ends[-2] if cap else last
    if not isinstance(logits, Linear):
        raise ValueError("The graph does not end with a linear.")
    head = builder.forward(ends[: ends.index(logits)])
    loss = HeadLoss(builder.new(logits.x.width), logits.x, logits.weight, logits.bias, cap)
    head_backward, dout = builder.backward(head, logits.x, loss.dh, x)
    blocks = []
    for start, out, block in reversed(forward):
        found, dx = builder.backward(block, out, dout, start)
        blocks.append(GraphBlock(start, out, tuple(block), tuple(_needed(block, found)), tuple(found), dout, dx))
        dout = dx
    return TrainingPlan(layout, embedding, tuple(reversed(blocks)), tuple(head), loss, tuple(head_backward))


def _blocks(graph: Graph, body: Sequence[Op]) -> list[tuple[Value, list[Op]]]:
    """The body's operations up to each tap of the residual stream, and that value."""
    ends = {value for name, value in graph.taps.items() if name.startswith("residual.")}
    found: list[tuple[Value, list[Op]]] = []
    ops: list[Op] = []
    for op in body:
        ops.append(op)
        if op.out in ends:
            found.append((op.out, ops))
            ops = []
    if ops or not found:
        raise ValueError("The graph has operations behind its last block.")
    return found


class _Builder:
    def __init__(self, graph: Graph, layout: ParameterLayout) -> None:
        self._layout = layout
        self._next = 1 + max(op.out.index for op in graph.ops)
        self._trained: set[Value] = set()
        """Values that depend on a parameter: only these need a gradient."""
        self._us: dict[tuple[Value, str], Value] = {}

    def new(self, width: int) -> Value:
        self._next += 1
        return Value(self._next - 1, width)

    def forward(self, ops: Sequence[Op]) -> list[ForwardOp]:
        """The operations with LoRA in the trained linears, and attention within the pack."""
        found: list[ForwardOp] = []
        for op in ops:
            match op:
                case Linear() if op.weight in self._layout.slots:
                    found += self._adapted(op)
                    self._trained.add(op.out)
                case Attention():
                    found.append(PackedAttention(op.out, self.new(op.num_attention_heads), op))
                case ShortConv():
                    found.append(PackedConv(op.out, op))
                case Embedding() | Scale() | RMSNorm(weight=None):
                    raise BackendError(
                        "training.architecture",
                        "Sonata cannot train models of this kind yet. Choose another model for training.",
                    )
                case Route() | ExpertLinear() | Mix():
                    raise BackendError(
                        "training.experts",
                        "Sonata cannot train a mixture of experts yet. Choose another model for training.",
                    )
                case DeltaRule() | Half():
                    raise BackendError(
                        "training.delta-rule",
                        "Sonata cannot train a model with gated delta rules yet. Choose another model for training.",
                    )
                case _:
                    found.append(op)
            if any(value in self._trained for value in values_read(found[-1])):
                self._trained.update(values_made(found[-1]))
        return found

    def _adapted(self, op: Linear) -> list[ForwardOp]:
        plain, found = self.new(op.out.width), list[ForwardOp]()
        u = self._us.get((op.x, op.weight))
        if u is None:
            u = self._us[op.x, op.weight] = self.new(self._layout.rank)
            self._trained.add(u)
            found.append(LoraDown(u, op.x, op.weight))
        return [*found, replace(op, out=plain), LoraUp(op.out, plain, u, op.weight, op.first_row)]

    def backward(
        self, ops: Sequence[ForwardOp], out: Value, dout: Value | None, x: Value
    ) -> tuple[list[GradientOp], Value | None]:
        """Gradients of a part of the graph, given that of its `out`; and that of its `x`, None if not needed."""
        if dout is None or out not in self._trained:
            return [], None
        gradients = {out: dout}
        found: list[GradientOp] = []
        for op in reversed(ops):
            made = [gradients.get(value) for value in values_made(op)]
            if made[0] is not None:
                found += self._gradients(op, made[0], gradients)
        return found, gradients.get(x)

    def _gradients(self, op: ForwardOp, dy: Value, gradients: dict[Value, Value]) -> list[GradientOp]:
        """The operations for the gradients of `op`'s inputs, given that of its output."""

        def into(value: Value) -> tuple[Value, Value | None]:
            """A new value for the gradient of `value`, and its gradient so far."""
            before = gradients.get(value)
            gradients[value] = self.new(value.width)
            return gradients[value], before

        def only(value: Value) -> Value:
            """The same for a value that only this operation reads."""
            out, before = into(value)
            if before is not None:
                raise ValueError(f"A value that {type(op).__name__} reads has another reader: it has no gradient yet.")
            return out

        trained = self._trained
        match op:
            case LoraUp():
                # The base's linear reads the same dy.
                gradients[op.y] = dy
                out, plus = into(op.u)
                return [LoraUpGradient(out, dy, op.u, op.weight, op.first_row, plus)]
            case LoraDown():
                if op.x not in trained:
                    return [LoraDownGradient(None, dy, op.x, op.weight, None)]
                out, plus = into(op.x)
                return [LoraDownGradient(out, dy, op.x, op.weight, plus)]
            case Linear() if op.x in trained:
                out, plus = into(op.x)
                return [LinearGradient(out, dy, op.weight, op.first_row, plus)]
            case RMSNorm(weight=str() as weight) if op.x in trained:
                out, plus = into(op.x)
                return [RMSNormGradient(out, dy, op.x, weight, op.eps, op.num_heads, plus)]
            case Rope() if op.x in trained:
                out = only(op.x)
                return [RopeGradient(out, dy, op.num_heads, op.interleaved, op.rotation)]
            case SoftCap() if op.x in trained:
                out, plus = into(op.x)
                return [SoftCapGradient(out, dy, op.out, op.cap, plus)]
            case Add():
                found: list[GradientOp] = []
                for side in (op.a, op.b):
                    if side in trained and side in gradients:
                        out, plus = into(side)
                        assert plus is not None
                        found.append(Add(out, plus, dy))
                    elif side in trained:
                        gradients[side] = dy
                return found
            case GLU() if op.gate in trained or op.up in trained:
                return [GLUGradient(only(op.gate), only(op.up), dy, op.gate, op.up, op.activation)]
            case PackedAttention(attention=Attention(q=q, k=k, v=v)) if {q, k, v} & trained:
                return [AttentionGradient(only(q), only(k), only(v), dy, op)]
            case PackedConv(conv=conv) if conv.x in trained:
                return [ConvGradient(only(conv.x), dy, op)]
        return []


def _needed(ops: Sequence[ForwardOp], gradients: Sequence[GradientOp]) -> list[ForwardOp]:
    """The operations whose values the gradients read, directly or through others."""
    needed = {value for op in gradients for value in values_read(op)}
    found = []
    for op in reversed(ops):
        if needed & set(values_made(op)):
            needed.update(values_read(op))
            found.append(op)
    return found[::-1]
