"""Turns a plan of gradients into kernels, with their buffers and numbers of workgroups.

A kernel's grid may be for more rows than a pack has: their workgroups end at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from py_core.adapters.parameters import ParameterLayout
from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host import Binding
from py_core.backends.webgpu.model_on_device import ModelOnDevice
from py_core.backends.webgpu.plan import Grid, Kernel, fixed, per_row
from py_core.backends.webgpu.shaders import Constant
from py_core.backends.webgpu.training.attention import PackedAttentionLowering
from py_core.backends.webgpu.training.linears import LinearFactor, TrainingLinears
from py_core.backends.webgpu.training.values import Step, TrainingValues
from py_core.models import graph as ops
from py_core.models.graph import RMSNorm, Rope, Value
from py_core.training import gradient_ops as gradients

_NORM_LANES = 64
_COLUMNS = 8
"""The columns of a workgroup of low_rank_gradient.wgsl: few, so that there are many workgroups."""
_ADDS = 8
"""Rows of an invocation of low_rank_up.wgsl."""


@dataclass(frozen=True)
class PackBuffers:
    """The buffers of a pack that kernels read (state.wgsl, pack.wgsl), and the vectors of a ParameterLayout."""

    state: Binding
    pack: Binding
    parameters: Binding
    gradient: Binding


class TrainingLowering:
    """The operations of one plan, except the loss."""

    def __init__(
        self, model: ModelOnDevice, layout: ParameterLayout, values: TrainingValues, buffers: PackBuffers
    ) -> None:
        self._model, self._layout, self._values, self._buffers = model, layout, values, buffers
        self._builder, self._state = model.builder, buffers.state
        self._linears = TrainingLinears(model.arena, model.vectors, model.graph, model.builder, values)
        self._attention = PackedAttentionLowering(model.builder, values, buffers.state, buffers.pack)

    def part(self, steps: Iterable[Step]) -> Iterator[tuple[Step, list[Kernel]]]:
        """Yield the kernels of each operation of a part of a pass."""
        self._linears.begin()
        for step in steps:
            yield step, self._kernels(step)

    def _kernels(self, step: Step) -> list[Kernel]:
        op = step.op

        def at(value: Value) -> Binding:
            return self._values.of(value, step.again)

        match op:
            case ops.Embedding():
                return self._embedding(op, at(op.out))
            case ops.Linear():
                return self._linears.forward(op, self._state, LinearFactor(at(op.x), (op.x, step.again)), at(op.out))
            case gradients.LoraDown():
                return [self._down(op.weight, op.x.width, at(op.x), at(op.out))]
            case gradients.LoraUp():
                return [self._up(op.weight, op.out.width, at(op.u), at(op.out), True, op.first_row)]
            case ops.RMSNorm():
                return [self._norm(op, at(op.x), at(op.out))]
            case ops.Rope():
                return [self._rope("rope", op, at(op.x), at(op.out))]
            case gradients.PackedAttention():
                return self._attention.forward(op, at)
            case gradients.PackedConv(conv=conv):
                return [self._conv("packed_conv", conv, at, [op.out], per_row(-(-conv.out.width // 4), 64))]
            case gradients.ConvGradient(forward=forward):
                conv = forward.conv
                grid: Grid = lambda m: (-(-conv.out.width // 256), 1, 1)  # noqa: E731
                return [self._conv("conv_gradient", conv, at, [op.dy, op.dx], grid)]
            case ops.GLU():
                constants = {"GELU": op.activation == "gelu", "SIGMOID": False, "UP_WIDTH": op.up.width, "FIRST": 0}
                return [self._elementwise("glu", op.out.width, [at(op.gate), at(op.up), at(op.out)], **constants)]
            case ops.Add():
                return [self._elementwise("add", op.out.width, [at(op.a), at(op.b), at(op.out)])]
            case ops.SoftCap():
                return [self._elementwise("soft_cap", op.out.width, [at(op.x), at(op.out)], CAP=op.cap)]
            case gradients.RopeGradient():
                rope = Rope(op.out, op.dy, op.num_heads, op.interleaved, op.rotation)
                return [self._rope("rope_gradient", rope, at(op.dy), at(op.out))]
            case gradients.AttentionGradient():
                return self._attention.gradient(op, at)
            case gradients.GLUGradient():
                bindings = [at(value) for value in (op.dy, op.gate, op.up, op.dgate, op.dup)]
                return [self._elementwise("glu_gradient", op.dy.width, bindings, GELU=op.activation == "gelu")]
        assert not isinstance(op, gradients.HeadLoss)
        return [*self._brought(op.plus, op.out, at), *self._adding(op, at)]

    def _adding(self, op: _Adding, at: Callable[[Value], Binding]) -> list[Kernel]:
        """Return the kernels of an operation whose result may be added to another value, which lies in its place."""
        add = op.plus is not None
        match op:
            case gradients.LinearGradient():
                return self._linears.gradient(op, self._state, at(op.dy), at(op.out), add)
            case gradients.LoraUpGradient():
                width = op.dy.width
                return [
                    self._down(op.weight, width, at(op.dy), at(op.out), op.first_row, add, b=True),
                    self._gradient(op.weight, width, at(op.dy), at(op.u), op.first_row, b=True),
                ]
            case gradients.LoraDownGradient():
                made = [self._gradient(op.weight, op.x.width, at(op.x), at(op.du))]
                if op.out is not None:
                    made.append(self._up(op.weight, op.x.width, at(op.du), at(op.out), add, b=False))
                return made
            case gradients.RMSNormGradient():
                norm = RMSNorm(op.out, op.x, op.weight, op.eps, op.num_heads)
                return [self._norm_gradient(norm, at(op.dy), at(op.x), at(op.out), add)]
            case gradients.SoftCapGradient():
                bindings = [at(op.dy), at(op.y), at(op.out)]
                return [self._elementwise("soft_cap_gradient", op.dy.width, bindings, CAP=op.cap, ADD=add)]

    def _brought(self, plus: Value | None, out: Value | None, at: Callable[[Value], Binding]) -> list[Kernel]:
        """Copy a value to where a result is added to it, if something else reads the value later."""
        if plus is None or out is None or out in self._values.updated:
            return []
        pipeline = self._builder.pipeline("copy_rows", {}, K=plus.width, WORKGROUP=64)
        grid = per_row(-(-plus.width // 4), 64)
        cost = Cost(row_bytes=8 * plus.width)
        return [Kernel("copy", pipeline, fixed((self._state, at(plus), at(out))), grid, cost)]

    def _embedding(self, op: ops.Embedding, out: Binding) -> list[Kernel]:
        matrix, first = self._model.arena.find(op.weight)
        found, k = [], op.out.width
        for part in matrix.parts:
            pipeline = self._builder.pipeline(
                "embedding", self._builder.reader(matrix.format), K=k, N=part.rows, BLOCKS=part.blocks,
                FIRST_ROW=first + part.first_row, SCALE=op.scale, WORKGROUP=64,
            )  # fmt: skip
            bindings = fixed((self._state, part.quants, part.scales, out))
            found.append(Kernel("embedding", pipeline, bindings, per_row(k // 8, 64), Cost(row_bytes=8 * k)))
        return found

    def _norm(self, op: RMSNorm, x: Binding, out: Binding) -> Kernel:
        width, heads, lanes = op.x.width, op.num_heads, _norm_lanes(op)
        pipeline = self._builder.pipeline(
            "rms_norm", {"reduce": "reduce_workgroup"}, K=width // heads, HEADS=heads, EPS=op.eps, ADD=False,
            WEIGHTED=True, LANES=lanes, WORKGROUP=lanes, LOGITS=False,
        )  # fmt: skip
        bindings = (self._state, self._model.vectors.norm(op), x, out)
        cost = Cost(row_bytes=8 * width, row_flops=4 * width)
        return Kernel("rms_norm", pipeline, fixed(bindings), lambda m: (m, heads, 1), cost)

    def _norm_gradient(self, op: RMSNorm, dy: Binding, x: Binding, out: Binding, add: bool) -> Kernel:
        width, heads, lanes = op.x.width, op.num_heads, _norm_lanes(op)
        pipeline = self._builder.pipeline(
            "rms_norm_gradient", {}, K=width // heads, HEADS=heads, EPS=op.eps, ADD=add, LANES=lanes, WORKGROUP=lanes
        )
        bindings = (self._state, self._model.vectors.norm(op), dy, x, out)
        cost = Cost(row_bytes=(16 if add else 12) * width, row_flops=8 * width)
        return Kernel("rms_norm_gradient", pipeline, fixed(bindings), lambda m: (m, heads, 1), cost)

    def _rope(self, name: str, op: Rope, x: Binding, out: Binding) -> Kernel:
        width = op.x.width
        pipeline = self._builder.pipeline(
            name, {}, HEADS=op.num_heads, HEAD_DIM=width // op.num_heads, WORKGROUP=64,
            PAIRS=op.rotation.dimensions // 2, INTERLEAVED=op.interleaved,
        )  # fmt: skip
        bindings = (self._state, x, self._model.angles(op), out)
        return Kernel(name, pipeline, fixed(bindings), per_row(width // 4, 64), Cost(row_bytes=8 * width))

    def _conv(
        self, name: str, op: ops.ShortConv, at: Callable[[Value], Binding], others: Sequence[Value], grid: Grid
    ) -> Kernel:
        width = op.out.width
        bindings = (self._buffers.pack, at(op.x), self._model.vectors.taps(op), *map(at, others))
        pipeline = self._builder.pipeline(name, {}, K=width, TAPS=op.taps, WORKGROUP=64)
        cost = Cost(row_bytes=4 * width * (4 if name == "packed_conv" else 8), row_flops=2 * width * (op.taps + 1))
        return Kernel(name, pipeline, fixed(bindings), grid, cost)

    def _elementwise(self, name: str, n: int, bindings: Sequence[Binding], **constants: Constant) -> Kernel:
        pipeline = self._builder.pipeline(name, {}, N=n, WORKGROUP=64, **constants)
        cost = Cost(row_bytes=4 * n * len(bindings), row_flops=n)
        return Kernel(name, pipeline, fixed((self._state, *bindings)), per_row(n, 64), cost)

    def _down(
        self, weight: str, n: int, x: Binding, u: Binding, first_row: int = 0, add: bool = False, b: bool = False
    ) -> Kernel:
        """Return the kernel from x to the pair's few columns: by a, or with `b` by rows of b, times the scale."""
        rank, scale = self._layout.rank, self._layout.scale if b else 1.0
        pipeline = self._builder.pipeline(
            "low_rank_down", {}, N=n, RANK=rank, B=b, FIRST_ROW=first_row, SCALE=float(scale), ADD=add
        )
        bindings = (self._state, self._matrix(self._buffers.parameters, weight, b), x, u)
        grid: Grid = lambda m: (-(-m // 4), 1, 1)  # noqa: E731
        return Kernel(f"low_rank_down {n}", pipeline, fixed(bindings), grid, self._thin(n))

    def _up(self, weight: str, n: int, u: Binding, y: Binding, add: bool, first_row: int = 0, b: bool = True) -> Kernel:
        """Return the kernel from the pair's few columns to y, by rows of b times the scale, or by a."""
        rank, scale = self._layout.rank, self._layout.scale if b else 1.0
        pipeline = self._builder.pipeline(
            "low_rank_up", {}, N=n, RANK=rank, B=b, FIRST_ROW=first_row, SCALE=float(scale), ADD=add, WORKGROUP=64
        )
        bindings = (self._state, self._matrix(self._buffers.parameters, weight, b), u, y)
        grid: Grid = lambda m: (-(-n // 64), -(-m // _ADDS), 1)  # noqa: E731
        return Kernel(f"low_rank_up {n}", pipeline, fixed(bindings), grid, self._thin(n))

    def _gradient(self, weight: str, n: int, x: Binding, u: Binding, first_row: int = 0, b: bool = False) -> Kernel:
        """Return the kernel that adds x.T u to the gradient of a, or times the scale to the gradient of b."""
        rank, scale = self._layout.rank, self._layout.scale if b else 1.0
        pipeline = self._builder.pipeline(
            "low_rank_gradient", {}, N=n, RANK=rank, B=b, FIRST_ROW=first_row, SCALE=float(scale), COLUMNS=_COLUMNS
        )
        bindings = (self._state, x, u, self._matrix(self._buffers.gradient, weight, b))
        return Kernel(
            f"low_rank_gradient {n}", pipeline, fixed(bindings), lambda m: (-(-n // _COLUMNS), 1, 1), self._thin(n)
        )

    def _thin(self, n: int) -> Cost:
        return Cost(row_bytes=4 * (n + self._layout.rank), row_flops=2 * n * self._layout.rank)

    def _matrix(self, vector: Binding, weight: str, b: bool) -> Binding:
        """Return the place of a matrix of a pair within a vector of the layout."""
        slot, rank = self._layout.slots[weight], self._layout.rank
        first, count = (slot.b, slot.rows) if b else (slot.a, slot.columns)
        return Binding(vector.buffer, vector.offset + 4 * first, 4 * rank * count)


_Adding = (
    gradients.LinearGradient | gradients.LoraUpGradient | gradients.LoraDownGradient | gradients.RMSNormGradient
    | gradients.SoftCapGradient
)  # fmt: skip


def _norm_lanes(op: RMSNorm) -> int:
    return _NORM_LANES if op.x.width // op.num_heads <= 4 * _NORM_LANES else 4 * _NORM_LANES
