"""Turns a model's graph into a flat list of kernels: what to run, over which buffers, with how many workgroups.

What one kernel does together is found by `fusion.py`: the linears of q, k and v are one matvec over neighbouring
weights; gate, up and SwiGLU another; a linear whose result is added to the residual adds it itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from py_core.backends.base import BackendError
from py_core.backends.fusion import Fused, GatedLinear, Head, QKVAttention, ResidualLinear, fuse
from py_core.backends.page_table import PAGE
from py_core.backends.sampling_state import RING
from py_core.backends.webgpu.attention import AttentionKernels
from py_core.backends.webgpu.cost import Cost, linear_cost
from py_core.backends.webgpu.host import Binding, Host
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.backends.webgpu.kv_pages import KVPages
from py_core.backends.webgpu.plan import Kernel, Plan, fixed, folded, per_row
from py_core.backends.webgpu.shaders import Constant
from py_core.backends.webgpu.weights import WeightArena, WeightMatrix
from py_core.models import graph as ops
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph, Value

QKV_BINDINGS = 9
"""Storage buffers of the kernel that makes queries, keys and values; WebGPU promises 8 only."""


@dataclass
class Buffers:
    """What the kernels share besides weights and pages."""

    state: Binding
    history: Binding
    logits: Binding


@dataclass
class PassContext:
    """How rows go through the model: "one", "few" or "many" at a time, these `tiled` where the adapter likes that."""

    rows: str
    tiled: bool
    single_row: bool
    """Whether the state never has more than one row."""
    place: dict[Value, Binding] = field(default_factory=dict)
    norms: dict[Value, ops.RMSNorm] = field(default_factory=dict)
    """Norms whose values are never stored: a kernel that reads such a value normalizes the norm's input itself."""
    residual: Value | None = None
    """In the head: the value that still has a row for each row of the state; only rows that need logits are read."""


class PlanLowering:
    """One model on one host. `plan(rows)` makes the kernels for passes over "one", "few" or "many" rows."""

    def __init__(
        self, host: Host, config: ModelConfig, graph: Graph, arena: WeightArena, builder: KernelBuilder,
        buffers: Buffers, pages: KVPages, context_length: int,
    ) -> None:  # fmt: skip
        self._host, self._config, self._arena = host, config, arena
        self._builder, self._buffers, self._pages = builder, buffers, pages
        self._sizes: dict[str, Constant] = {
            "HEADS": config.num_attention_heads, "KV_HEADS": config.num_key_value_heads, "HEAD_DIM": config.head_dim,
            "PAGE": PAGE, "MAX_PAGES": pages.pages_per_slot,
        }  # fmt: skip
        self._attention_kernels = AttentionKernels(
            host, config, builder.shapes, builder.pipeline, buffers.state, pages, self._sizes
        )
        self._graph = graph
        self._body, self._head = fuse(graph)
        self._scratch: dict[str, Binding] = {}
        table = config.rope.table(context_length)
        self._angles = Binding(host.create_buffer(table.nbytes, "rope angles"), 0, table.nbytes)
        host.write(self._angles.buffer, 0, table.tobytes())

    def plan(self, rows: str) -> Plan:
        """The lists for passes over "one", "few" or "many" rows; the head is for one row that needs logits."""
        context = PassContext(rows, rows == "many" and self._builder.shapes.tiled_matmul, single_row=rows == "one")
        return Plan(self._lower(self._body, context), self._logits("one", context))

    def head(self) -> list[Kernel]:
        """The head of a pass of which up to MAX_LOGIT_ROWS rows need logits."""
        context = PassContext("many", self._builder.shapes.tiled_matmul, single_row=False)
        self._lower(self._body, context)
        return self._logits("few", context)

    def tapped(self, names: Sequence[str]) -> tuple[list[Kernel], list[Binding]]:
        """The body for many rows, which keeps the values of these names besides: (max_rows, width) of each."""
        context = PassContext("many", self._builder.shapes.tiled_matmul, single_row=False)
        buffers = [self._scratch_of(f"tap {i}", self._graph.taps[name].width) for i, name in enumerate(names)]
        taps = {self._graph.taps[name]: buffer for name, buffer in zip(names, buffers, strict=True)}
        kernels = self._lower(self._body, context, taps)
        for op in self._head:
            if op.out in taps:
                kernels += self._tap(op, context, taps[op.out])
        return kernels, buffers

    def _logits(self, rows: str, body: PassContext) -> list[Kernel]:
        """The head over "one" or "few" of the rows of a pass."""
        reads = self._graph.head[0]
        assert isinstance(reads, ops.RMSNorm | ops.Linear)
        return self._lower(self._head, PassContext(rows, False, body.single_row, body.place, residual=reads.x))

    def _lower(
        self, operations: Sequence[Fused], context: PassContext, taps: Mapping[Value, Binding] | None = None
    ) -> list[Kernel]:
        """Kernels of the operations in order; values among the `taps` are copied there as soon as they are made."""
        kernels: list[Kernel] = []
        place = context.place
        for op in operations:
            match op:
                case ops.Embedding():
                    place[op.out] = self._scratch_of("residual", op.out.width)
                    kernels += self._embedding(op, place[op.out])
                case ops.RMSNorm():
                    kernels += self._rms_norm(op, context)
                case QKVAttention():
                    place[op.out] = self._scratch_of("attention", op.out.width)
                    kernels += self._attention(op, context)
                case GatedLinear():
                    place[op.out] = self._scratch_of("ffn", op.out.width)
                    kernels += self._gated(op, context)
                case ResidualLinear():
                    place[op.out] = place[op.residual]
                    weight = self._arena.place([op.linear.weight])
                    kernels += self._linear(weight, op.linear.x, context, place[op.out], op.out.width, epilogue=1)
                case Head():
                    weight = self._arena.place([op.linear.weight])
                    kernels += self._linear(weight, op.linear.x, context, self._buffers.logits, op.out.width)
            if taps and op.out in taps:
                kernels += self._tap(op, context, taps[op.out])
        return kernels

    def _tap(self, op: Fused, context: PassContext, to: Binding) -> list[Kernel]:
        """Every row of a value to a buffer of its own, before another value takes its place. A norm is made there."""
        if isinstance(op, ops.RMSNorm):
            return [self._norm_kernel(op, context.place[op.x], to, logits=False)]
        width = op.out.width
        pipeline = self._builder.pipeline("copy_rows", {}, K=width, WORKGROUP=64)
        bindings = (self._buffers.state, context.place[op.out], to)
        return [Kernel("tap", pipeline, fixed(bindings), per_row(-(-width // 4), 64), Cost(row_bytes=8 * width))]

    def sampler(self, name: str) -> Kernel:
        """argmax, sample or penalties, over the logits of each row."""
        vocab = self._config.vocab_size
        # One workgroup reads all the logits: the more invocations, the more of them are on their way at once.
        wide = name == "argmax" and not self._host.adapter.software
        workgroup = min(1024, self._host.adapter.max_workgroup_size) if wide else 256
        pipeline = self._builder.pipeline(name, {}, VOCAB=vocab, RING=RING, WORKGROUP=workgroup)
        b = self._buffers
        cost = Cost(fixed_bytes=4 * vocab)
        return Kernel(name, pipeline, lambda: (b.state, b.logits, b.history), lambda m: (m, 1, 1), cost)

    def _embedding(self, op: ops.Embedding, out: Binding) -> list[Kernel]:
        matrix, k = self._arena.place([op.weight]), op.out.width
        found = []
        for part in matrix.parts:
            pipeline = self._builder.pipeline(
                "embedding",
                self._builder.reader(matrix.format),
                K=k, N=part.rows, BLOCKS=part.blocks, FIRST_ROW=part.first_row, WORKGROUP=64,
            )  # fmt: skip
            bindings = (self._buffers.state, part.quants, part.scales, out)
            cost = Cost(row_bytes=k // matrix.format.block_size * matrix.format.block_bytes + 4 * k)
            found.append(Kernel("embedding", pipeline, fixed(bindings), per_row(k // 8, 64), cost))
        return found

    def _rms_norm(self, op: ops.RMSNorm, context: PassContext) -> list[Kernel]:
        """A kernel of its own, or none where the linears that read the norm can make it."""
        if self._builder.shapes.stage_columns and not context.tiled:
            context.norms[op.out] = op
            context.place[op.out] = context.place[op.x]
            return []
        context.place[op.out] = self._scratch_of("normed", op.out.width)
        return [self._norm_kernel(op, context.place[op.x], context.place[op.out], logits=op.x == context.residual)]

    def _norm_kernel(self, op: ops.RMSNorm, x: Binding, out: Binding, logits: bool) -> Kernel:
        """With `logits` only the rows of x that need logits are normalized, to the first rows of `out`."""
        shapes, width = self._builder.shapes, op.x.width
        pipeline = self._builder.pipeline(
            "rms_norm", {"reduce": shapes.reduce},
            K=width, EPS=op.eps, LANES=shapes.lanes, WORKGROUP=shapes.lanes, LOGITS=logits,
        )  # fmt: skip
        bindings = (self._buffers.state, self._norm_weight(op), x, out)
        cost = Cost(fixed_bytes=4 * width, row_bytes=8 * width, row_flops=4 * width)
        return Kernel("rms_norm", pipeline, fixed(bindings), lambda m: (m, 1, 1), cost)

    def _norm_weight(self, op: ops.RMSNorm) -> Binding:
        weight = self._arena.place([op.weight], whole=True)
        if weight.format.name != "F32":
            raise BackendError(f"{op.weight} is in {weight.format.name}; the GPU kernels read norms in F32 only.")
        return weight.parts[0].quants

    def _attention(self, op: QKVAttention, context: PassContext) -> list[Kernel]:
        q = self._scratch_of("q", op.q.out.width)
        qkv = self._qkv_apart if context.tiled or self._host.adapter.max_storage_buffers < QKV_BINDINGS else self._qkv
        attend = self._attention_kernels.kernels(q, context.place[op.out], op.attention.layer, context.rows)
        return [*qkv(op, context, q), *attend]

    def _qkv(self, op: QKVAttention, context: PassContext, q: Binding) -> list[Kernel]:
        """The linears, the rotation and the pages in one kernel, or one for each run of neighbours of one format."""
        c, pages, layer = self._config, self._pages, op.attention.layer
        names = [op.q.weight, op.k.weight, op.v.weight]
        groups = next(
            groups
            for groups in ([names], [names[:2], names[2:]], [[name] for name in names])
            if all(len(group) == 1 or self._arena.can_join(group) for group in groups)
        )
        norm, x, weight = self._input(op.x, context)
        kernels, first_head = [], 0
        for group in groups:
            matrix = self._arena.place(group, whole=True)
            (part,) = matrix.parts
            name = f"qkv {matrix.columns}x{matrix.rows} {matrix.format.name}"
            shape = self._builder.shape(name, matrix.columns, context.rows)
            pipeline, grid = self._builder.matvec(
                "qkv", matrix, part, shape, matrix.rows // 2, 2, context.rows, context.single_row, norm,
                N=matrix.rows, FIRST_HEAD=first_head, INTERLEAVED=_interleaved(op), **self._sizes,
            )  # fmt: skip
            before = (self._buffers.state, part.quants, part.scales, x, weight, self._angles, pages.table_binding, q)
            cost = linear_cost(matrix, matrix.rows, 0, matrix.rows)
            kernels.append(Kernel(name, pipeline, self._with_pages(before, layer), grid, cost))
            first_head += matrix.rows // c.head_dim
        return kernels

    def _qkv_apart(self, op: QKVAttention, context: PassContext, q: Binding) -> list[Kernel]:
        width = op.q.out.width + op.k.out.width + op.v.out.width
        qkv = self._scratch_of("qkv", width)
        append = self._builder.pipeline("rope_append", {}, **self._sizes, WORKGROUP=64, INTERLEAVED=_interleaved(op))
        before = (self._buffers.state, qkv, self._angles, self._pages.table_binding, q)
        cost = Cost(
            row_bytes=4 * (width + op.q.out.width) + self._pages.page_bytes // PAGE,
            row_flops=3 * (op.q.out.width + op.k.out.width),
        )
        return [
            *self._joint([op.q, op.k, op.v], qkv, width, context),
            Kernel("rope_append", append, self._with_pages(before, op.attention.layer), per_row(width // 4, 64), cost),
        ]

    def _with_pages(self, before: tuple[Binding, ...], layer: int) -> Callable[[], tuple[Binding, ...]]:
        """Bindings, and then a layer's pages, which move when their pool grows."""
        return lambda: (*before, self._pages.binding(layer))

    def _gated(self, op: GatedLinear, context: PassContext) -> list[Kernel]:
        gate, up = op.gate, op.up
        n, out = op.out.width, context.place[op.out]
        if self._arena.can_join([gate.weight, up.weight]):
            matrix = self._arena.place([gate.weight, up.weight], whole=True)
            return self._linear(matrix, gate.x, context, out, n, epilogue=2)
        pair = self._scratch_of("gate and up", 2 * n)
        kernels = self._joint([gate, up], pair, 2 * n, context)
        pipeline = self._builder.pipeline("swiglu", {}, N=n, WORKGROUP=64)
        bindings = (self._buffers.state, pair, out)
        cost = Cost(row_bytes=12 * n, row_flops=4 * n)
        return [*kernels, Kernel("swiglu", pipeline, fixed(bindings), per_row(n, 64), cost)]

    def _joint(self, linears: list[ops.Linear], out: Binding, stride: int, context: PassContext) -> list[Kernel]:
        """Linears of one value, side by side in one buffer: one dispatch where their formats agree."""
        names = [linear.weight for linear in linears]
        if self._arena.can_join(names):
            return self._linear(self._arena.place(names, whole=True), linears[0].x, context, out, stride)
        kernels, offset = [], 0
        for linear in linears:
            kernels += self._linear(self._arena.place([linear.weight]), linear.x, context, out, stride, offset)
            offset += linear.out.width
        return kernels

    def _linear(
        self, matrix: WeightMatrix, x: Value, context: PassContext, out: Binding, stride: int, offset: int = 0,
        epilogue: int = 0,
    ) -> list[Kernel]:  # fmt: skip
        """A matrix's parts, each a kernel. epilogue: as in matvec.wgsl."""
        norm, place, weight = self._input(x, context)
        logits = context.residual is not None and context.residual in (x, norm.x if norm else x)
        name = f"linear {matrix.columns}x{matrix.rows} {matrix.format.name}{('', ' + residual', ' + SwiGLU')[epilogue]}"
        found = []
        for part in matrix.parts:
            n = part.rows // 2 if epilogue == 2 else part.rows
            common = {"N": n, "Y_STRIDE": stride, "Y_OFFSET": offset + part.first_row, "EPILOGUE": epilogue}
            cost = linear_cost(matrix, part.rows, n if epilogue == 1 else 0, n)
            before = (self._buffers.state, part.quants, part.scales, place)
            if context.tiled:
                reader = self._builder.reader(matrix.format)
                wide, slices = self._builder.tiles(part.rows)
                pipeline = self._builder.pipeline(
                    "matmul", reader, K=x.width, BLOCKS=part.blocks, SLICES=slices, WIDE=wide, **common
                )
                grid = folded(n, (16 if epilogue == 2 else 32) * wide, 32)
                found.append(Kernel(name, pipeline, fixed((*before, out)), grid, cost))
                continue
            shape = self._builder.shape(name, matrix.columns, context.rows)
            pipeline, grid = self._builder.matvec(
                "matvec", matrix, part, shape, -(-n // shape.rows), shape.rows * (2 if epilogue == 2 else 1),
                context.rows, context.single_row, norm, LOGITS=logits, **common,
            )  # fmt: skip
            found.append(Kernel(name, pipeline, fixed((*before, weight, out)), grid, cost))
        return found

    def _input(self, x: Value, context: PassContext) -> tuple[ops.RMSNorm | None, Binding, Binding]:
        """The norm that a linear makes of its input, if any; where that lies; the norm's weights, or any binding."""
        norm, place = context.norms.get(x), context.place[x]
        if norm is None:
            return None, place, place
        return norm, place, self._norm_weight(norm)

    def _scratch_of(self, role: str, width: int) -> Binding:
        """The buffer (max_rows, width) of a role: blocks run one after the other, so all of them share it."""
        key = f"{role} {width}"
        if key not in self._scratch:
            size = self._builder.shapes.max_rows * width * 4
            self._scratch[key] = Binding(self._host.create_buffer(size, key), 0, size)
        return self._scratch[key]


def _interleaved(op: QKVAttention) -> bool:
    assert op.rope is not None
    return op.rope.interleaved
