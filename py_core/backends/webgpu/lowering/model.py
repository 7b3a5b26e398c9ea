"""Turns a model's graph into a flat list of kernels, with their buffers and numbers of workgroups.

`fusion.py` finds the operations of one kernel: the linears of q, k and v are one matvec over neighbouring weights;
gate, up and their product are another; a linear whose result is added to the residual adds it itself. Each other
operation has a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from py_core.backend_errors import BackendError
from py_core.backends.fusion import Fused, FusedHead, GatedLinear, QKVAttention, ResidualLinear, fuse, linears_of
from py_core.backends.sampling_state import BIAS_BYTES, RING
from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host import Binding, Host
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.backends.webgpu.kernel_shapes import FEW_ROWS, PersistentShape
from py_core.backends.webgpu.kv_pages import KVPages
from py_core.backends.webgpu.lora import LoraSets
from py_core.backends.webgpu.lowering.attention import AttentionLowering
from py_core.backends.webgpu.lowering.head import HeadLowering
from py_core.backends.webgpu.lowering.linear import Epilogue, LinearLowering
from py_core.backends.webgpu.lowering.persistent import persistent
from py_core.backends.webgpu.plan import Kernel, Plan, fixed, per_row
from py_core.backends.webgpu.shaders import Constant
from py_core.backends.webgpu.values import PassContext, Values
from py_core.backends.webgpu.weights.arena import WeightArena
from py_core.backends.webgpu.weights.layout import blocks_of
from py_core.backends.webgpu.weights.vectors import Vectors
from py_core.models import graph as ops
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.paging.page_table import PAGE, kept_rows
from py_core.sampling import MOST_BIASES, mask_words


@dataclass
class Buffers:
    """The buffers that kernels share, besides weights and pages."""

    state: Binding
    history: Binding
    logits: Binding
    grammars: Binding
    biases: Binding


class PlanLowering:
    """One model on one host. `plan(rows)` makes the kernels for passes over "one", "few", "some" or "many" rows. "Few"
    rows are of any sequences, "some" and "many" of one, at consecutive positions. `passes` are the available ones."""

    def __init__(
        self, host: Host, config: ModelConfig, graph: Graph, arena: WeightArena, builder: KernelBuilder,
        buffers: Buffers, pages: KVPages, logit_bytes: int,
    ) -> None:  # fmt: skip
        self._host, self._config, self._arena = host, config, arena
        self._builder, self._buffers, self._state = builder, buffers, buffers.state
        self._graph, self._pages = graph, pages
        self._body, self._head = fuse(graph)
        self._norms = {op.out: op for op in self._body if isinstance(op, ops.RMSNorm)}
        self._vectors = Vectors(arena, graph, [*self._body, *self._head])
        self._values = Values(host, self._body, self._head, builder.shapes.max_rows, buffers.logits)
        self._linears = LinearLowering(builder, arena, graph, self._values, self._vectors, self._state)
        self._attention = AttentionLowering(
            host, config, builder, self._linears, self._values, self._vectors, pages, self._state
        )
        self.heads = HeadLowering(
            host, graph, self._head, builder, self._values, self._vectors, self._state, buffers.logits, self._lower,
            lambda values, state: LinearLowering(builder, arena, graph, values, self._vectors, state), logit_bytes,
        )  # fmt: skip

        # Matvecs of many rows are only fast in integers.
        linears = [linear for op in self._body for linear in linears_of(op)]
        integers = all(arena.is_quantized(linear.weight) for linear in linears)
        self.some_rows = builder.shapes.some_rows if integers else FEW_ROWS
        """The most rows of a pass over "some" rows."""
        self.passes = ("one", "few", "some", "many") if self.some_rows > FEW_ROWS else ("one", "few", "many")

    @property
    def vectors(self) -> Vectors:
        """The norms' weights and the linears' biases."""
        return self._vectors

    @property
    def residual(self) -> Binding:
        """The residual stream of each row after the last block, which the head reads."""
        return self._values.of(self._graph.head_residual)

    @property
    def vocab_size(self) -> int:
        return self._config.vocab_size

    def angles(self, rope: ops.Rope) -> Binding:
        """The (cos, sin) of every position's angles."""
        return self._attention.angles_of(rope)

    def plan(self, rows: str, rank: int = 0) -> Plan:
        """Return the lists for passes over "one", "few", "some" or "many" rows. The head is for one row that needs
        logits.

        They run with a set of LoRA matrices of this rank class, or without one (0).
        """
        tiled = rows == "many" and self._builder.shapes.tiled_matmul
        readers = self._readers() if rank and rows == "one" and self._builder.shapes.stage_columns else {}
        context = PassContext(rows, tiled, single_row=rows == "one", rank=rank, readers=readers)
        return Plan(self._lower(self._body, context), self._logits("one", single_row=rows == "one"))

    def persistent(self, shape: PersistentShape) -> tuple[Plan, tuple[Binding, Binding]]:
        """Return the lists for passes over one row with persistent kernels, and their own buffers: the first word of
        the first one is not 0 once one of them gave up. Raises Unsuited."""
        context = PassContext("one", False, single_row=True, persistent=shape)
        body, own = persistent(self._host, self._lower(self._body, context), shape)
        return Plan(body, self._logits("one", single_row=True)), own

    def head(self) -> list[Kernel]:
        """Return the head of a pass of which up to MAX_LOGIT_ROWS rows need logits."""
        return self._logits("few", single_row=False)

    def measured(self, rows: str) -> list[Kernel]:
        """Return the kernels of passes over "one", "few" or "many" rows, with the head of the same number."""
        plan = self.plan(rows)
        return [*plan.body, *self.head()] if rows == "few" else plan.step

    def loras(self, rank: int) -> LoraSets:
        """Return the sets of LoRA matrices of a rank class, which `plan` reads."""
        found = self._linears.loras
        if rank not in found:
            operations = [(linears, self._folded(linears[0])) for op in self._body if (linears := linears_of(op))]
            found[rank] = LoraSets(self._host, operations, self._builder.shapes.max_rows, rank)
        return found[rank]

    def _norm_of(self, linear: ops.Linear) -> ops.RMSNorm | None:
        """Return the norm that a linear's kernel makes itself, in a pass without tiles."""
        made = self._builder.shapes.stage_columns and linear.x in self._values.made_by_readers
        return self._norms[linear.x] if made else None

    def _folded(self, linear: ops.Linear) -> Binding | None:
        norm = self._norm_of(linear)
        return self._vectors.norm(norm) if norm else None

    def _readers(self) -> dict[ops.Value, ops.Linear]:
        """Return for each value the first linear of the first operation that reads it, or its norm, by linears."""
        found: dict[ops.Value, ops.Linear] = {}
        for op in self._body:
            if linears := linears_of(op):
                norm = self._norm_of(linears[0])
                found.setdefault(norm.x if norm else linears[0].x, linears[0])
        return found

    def tapped(self, names: Sequence[str], rank: int = 0) -> tuple[list[Kernel], list[Binding]]:
        """Return the body for many rows, and the buffers of the named values: (max_rows, width) each."""
        context = PassContext("many", self._builder.shapes.tiled_matmul, single_row=False, rank=rank)
        buffers = [self._values.scratch(f"tap {i}", self._graph.taps[name].width) for i, name in enumerate(names)]
        taps = {self._graph.taps[name]: buffer for name, buffer in zip(names, buffers, strict=True)}
        kernels = self._lower(self._body, context, taps)
        for op in self._head:
            if op.out in taps:
                kernels += self._tap(op, taps[op.out])
        return kernels, buffers

    def sampler(self, name: str) -> Kernel:
        """Return the kernel of argmax, sample or penalties, over the logits of each row."""
        vocab = self._config.vocab_size
        # One workgroup reads all the logits: the more invocations, the more loads are in flight at once.
        wide = name == "argmax" and not self._host.adapter.software
        workgroup = min(1024, self._host.adapter.max_workgroup_size) if wide else 256
        pipeline = self._builder.pipeline(name, {}, VOCAB=vocab, RING=RING, WORKGROUP=workgroup)
        b = self._buffers
        cost = Cost(fixed_bytes=4 * vocab)
        return Kernel(name, pipeline, lambda: (b.state, b.logits, b.history), lambda m: (m, 1, 1), cost)

    def masks(self) -> Kernel:
        """Return the kernel that leaves each row the tokens that its grammar allows."""
        words, b = mask_words(self._config.vocab_size), self._buffers
        pipeline = self._builder.pipeline("masks", {}, VOCAB=self._config.vocab_size, WORDS=words, WORKGROUP=256)
        cost = Cost(row_bytes=4 * words)
        reads = fixed((b.state, b.logits, b.grammars))
        return Kernel("masks", pipeline, reads, lambda m: (-(-words // 8), m, 1), cost)

    def biases(self) -> Kernel:
        """Return the kernel that adds the biases of each row."""
        vocab, b, workgroup = self._config.vocab_size, self._buffers, 64
        pipeline = self._builder.pipeline("biases", {}, VOCAB=vocab, MOST=MOST_BIASES, WORKGROUP=workgroup)
        reads, cost = fixed((b.state, b.logits, b.biases)), Cost(row_bytes=BIAS_BYTES)
        return Kernel("biases", pipeline, reads, lambda m: (MOST_BIASES // workgroup, m, 1), cost)

    def follow(self) -> Kernel:
        """Return the kernel that takes each row to the next state of its grammar."""
        words, b = mask_words(self._config.vocab_size), self._buffers
        pipeline = self._builder.pipeline("follow", {}, WORDS=words, RING=RING, WORKGROUP=64)
        return Kernel("follow", pipeline, fixed((b.state, b.grammars, b.history)), lambda m: (m, 1, 1), Cost())

    def _logits(self, rows: str, single_row: bool) -> list[Kernel]:
        """Return the head over "one" or "few" of the rows of a pass."""
        reads = self._graph.head[0]
        assert isinstance(reads, ops.RMSNorm | ops.Linear)
        return self._lower(self._head, PassContext(rows, False, single_row, residual=reads.x))

    def _lower(
        self, operations: Sequence[Fused], context: PassContext, taps: Mapping[ops.Value, Binding] | None = None
    ) -> list[Kernel]:
        """Return the kernels of the operations in order. Values among the `taps` are copied there as soon as they are
        made."""
        kernels: list[Kernel] = []
        for op in operations:
            kernels += self._kernels(op, context)
            if taps and op.out in taps:
                kernels += self._tap(op, taps[op.out])
        return kernels

    def _kernels(self, op: Fused, context: PassContext) -> list[Kernel]:
        values, linears = self._values, self._linears
        match op:
            case ops.Embedding():
                return self._embedding(op)
            case ops.RMSNorm():
                return self._rms_norm(op, context)
            case QKVAttention():
                return self._attention.fused(op, context)
            case GatedLinear():
                return self._gated(op, context)
            case ResidualLinear(norm=None):
                return linears.kernels([op.linear], values.of(op.out), context, Epilogue.ADD, makes=op.out)
            case ResidualLinear(norm=ops.RMSNorm() as norm):
                branch = values.scratch("branch", op.out.width)
                then = self._norm_kernel(norm, branch, values.of(op.out), add=True)
                return [*linears.kernels([op.linear], branch, context), then]
            case FusedHead():
                cap = op.soft_cap.cap if op.soft_cap else 0.0
                return linears.kernels([op.linear], values.of(op.out), context, cap=cap)
            case ops.Linear():
                return linears.kernels([op], values.of(op.out), context)
            case ops.Rope():
                return self._attention.rope(op)
            case ops.Attention():
                return self._attention.attention(op, context)
            case ops.ShortConv():
                return [self._short_conv(op)]
            case ops.DeltaRule():
                return [self._delta_rule(op)]
            case ops.Half():
                return [self._elementwise("half", op, [values.of(op.x)], SIZE=op.size, SECOND=op.second)]
            case ops.Route():
                return [self._route(op)]
            case ops.ExpertLinear():
                return [linears.experts(op)]
            case ops.Mix():
                return [self._mix(op)]
            case ops.GLU():
                places = (values.of(op.gate), values.of(op.up), values.of(op.out))
                return [self._glu(op.activation, op.out.width, *places, op.up.width, op.first)]
            case ops.Scale():
                return [self._elementwise("scale", op, [values.of(op.x), self._vectors.named(op.weight)])]
            case ops.Add():
                return [self._elementwise("add", op, [values.of(op.a), values.of(op.b)])]
            case ops.SoftCap():
                return [self._elementwise("soft_cap", op, [values.of(op.x)], CAP=op.cap)]
        raise AssertionError(f"no kernel makes {op}")

    def _short_conv(self, op: ops.ShortConv) -> Kernel:
        width, pages = op.out.width, self._pages
        pipeline = self._builder.pipeline(
            "short_conv", {}, K=width, TAPS=op.taps, GATED=op.gated, ROWS=kept_rows(self._graph), PAGE=PAGE,
            MAX_PAGES=pages.pages_per_slot, WORKGROUP=64,
        )  # fmt: skip
        before, out = (self._state, self._values.of(op.x), self._vectors.taps(op)), self._values.of(op.out)

        def bindings() -> tuple[Binding, ...]:
            return *before, *pages.rows(op.layer), out  # the pages move when their pool grows

        parts = 5 if op.gated else 3
        cost = Cost(fixed_bytes=4 * width * op.taps, row_bytes=4 * width * parts, row_flops=2 * width * (op.taps + 1))
        return Kernel("short_conv", pipeline, bindings, lambda m: (-(-width // 256), 1, 1), cost)

    def _delta_rule(self, op: ops.DeltaRule) -> Kernel:
        size, heads, pages, values = op.size, op.heads, self._pages, self._values
        if size > self._host.adapter.max_workgroup_size:
            raise BackendError(
                "gpu.delta-heads",
                "This model has delta rules of {size} values a head; this GPU runs up to {most}. Choose another "
                "backend or model.",
                size=size,
                most=self._host.adapter.max_workgroup_size,
            )
        pipeline = self._builder.pipeline(
            "delta_rule", {}, KEY_HEADS=op.key_heads, HEADS=heads, SIZE=size, PAGE=PAGE, MAX_PAGES=pages.pages_per_slot
        )
        inputs = (self._state, values.of(op.x), values.of(op.alpha), values.of(op.beta))
        before, out = (*inputs, self._vectors.named(op.rate)), values.of(op.out)

        def bindings() -> tuple[Binding, ...]:
            return *before, *pages.states_of(op.layer), out

        # With half of a page's rows before a row.
        row = heads * (size * size + PAGE * size)
        cost = Cost(row_bytes=4 * (row + op.x.width + op.out.width), row_flops=4 * row)
        return Kernel("delta_rule", pipeline, bindings, lambda m: (heads, 1, 1), cost)

    def _route(self, op: ops.Route) -> Kernel:
        experts = op.x.width
        constants = {"EXPERTS": experts, "USED": op.used, "NORMALIZED": op.normalized}
        pipeline = self._builder.pipeline("route", {}, WORKGROUP=64, **constants)
        cost = Cost(row_bytes=4 * (experts + op.out.width), row_flops=4 * experts)
        bindings = (self._state, self._values.of(op.x), self._values.of(op.out))
        return Kernel("route", pipeline, fixed(bindings), lambda m: (m, 1, 1), cost)

    def _mix(self, op: ops.Mix) -> Kernel:
        n = op.out.width
        pipeline = self._builder.pipeline("mix", {}, N=n, USED=op.used, WORKGROUP=64)
        cost = Cost(row_bytes=4 * n * (op.used + 1), row_flops=2 * n * op.used)
        bindings = (self._state, self._values.of(op.x), self._values.of(op.route), self._values.of(op.out))
        return Kernel("mix", pipeline, fixed(bindings), per_row(n, 64), cost)

    def _tap(self, op: Fused, to: Binding) -> list[Kernel]:
        """Copy every row of a value to a buffer of its own, before another value takes its place. A norm is made
        there."""
        if isinstance(op, ops.RMSNorm):
            return [self._norm_kernel(op, self._values.of(op.x), to)]
        width = op.out.width
        pipeline = self._builder.pipeline("copy_rows", {}, K=width, WORKGROUP=64)
        bindings = (self._state, self._values.of(op.out), to)
        return [Kernel("tap", pipeline, fixed(bindings), per_row(-(-width // 4), 64), Cost(row_bytes=8 * width))]

    def _embedding(self, op: ops.Embedding) -> list[Kernel]:
        matrix, k, out = self._arena.place([op.weight]), op.out.width, self._values.of(op.out)
        found = []
        for part in matrix.parts:
            pipeline = self._builder.pipeline(
                "embedding",
                self._builder.reader(matrix.format),
                K=k, N=part.rows, BLOCKS=part.blocks, FIRST_ROW=part.first_row, SCALE=op.scale, WORKGROUP=64,
            )  # fmt: skip
            bindings = (self._state, part.quants, part.scales, out)
            cost = Cost(row_bytes=k // matrix.format.block_size * matrix.format.block_bytes + 4 * k)
            found.append(Kernel("embedding", pipeline, fixed(bindings), per_row(4 * blocks_of(k), 64), cost))
        return found

    def _rms_norm(self, op: ops.RMSNorm, context: PassContext) -> list[Kernel]:
        """Return a kernel of the norm, or none if the linears that read the norm can make it."""
        if self._builder.shapes.stage_columns and not context.tiled and op.out in self._values.made_by_readers:
            context.norms[op.out] = op
            return []
        values = self._values
        return [self._norm_kernel(op, values.of(op.x), values.of(op.out), logits=op.x == context.residual)]

    def _norm_kernel(
        self, op: ops.RMSNorm, x: Binding, out: Binding, logits: bool = False, add: bool = False
    ) -> Kernel:
        """With `logits`, only the rows of x that need logits are normalized, to the first rows of `out`. With `add`,
        the norm is added to `out`."""
        shapes, width, heads = self._builder.shapes, op.x.width, op.num_heads
        reduce, lanes = shapes.reduce, shapes.lanes
        if lanes > 1 and heads == 1:
            # Few lanes would often wait for memory.
            reduce, lanes = "reduce_workgroup", 256
        pipeline = self._builder.pipeline(
            "rms_norm", {"reduce": reduce}, K=width // heads, HEADS=heads, EPS=op.eps, ADD=add,
            LANES=lanes, WORKGROUP=lanes, LOGITS=logits, WEIGHTED=op.weight is not None,
        )  # fmt: skip
        bindings = (self._state, self._vectors.norm(op) if op.weight else x, x, out)
        cost = Cost(
            fixed_bytes=4 * width // heads, row_bytes=(12 if add else 8) * width, row_flops=(5 if add else 4) * width
        )
        return Kernel("rms_norm", pipeline, fixed(bindings), lambda m: (m, heads, 1), cost)

    def _gated(self, op: GatedLinear, context: PassContext) -> list[Kernel]:
        out, n = self._values.of(op.out), op.out.width
        runs = self._linears.runs([op.gate, op.up])
        if len(runs) == 1:
            return self._linears.kernels(runs[0], out, context, Epilogue.GATE, op.activation, makes=op.out)
        gate, up = self._values.scratch("gate", n), self._values.scratch("up", n)
        return [
            *self._linears.kernels([op.gate], gate, context),
            *self._linears.kernels([op.up], up, context),
            self._glu(op.activation, n, gate, up, out, n),
        ]

    def _glu(
        self,
        activation: ops.Activation,
        n: int,
        gate: Binding,
        up: Binding,
        out: Binding,
        up_width: int,
        first: int = 0,
    ) -> Kernel:
        """Rows of `up` have `up_width` values, of which those from `first` on are read."""
        constants = {"GELU": activation == "gelu", "SIGMOID": activation == "sigmoid"}
        pipeline = self._builder.pipeline("glu", {}, N=n, UP_WIDTH=up_width, FIRST=first, WORKGROUP=64, **constants)
        cost = Cost(row_bytes=12 * n, row_flops=4 * n)
        return Kernel("glu", pipeline, fixed((self._state, gate, up, out)), per_row(n, 64), cost)

    def _elementwise(
        self, name: str, op: ops.Add | ops.SoftCap | ops.Half | ops.Scale, inputs: list[Binding], **constants: Constant
    ) -> Kernel:
        n = op.out.width
        pipeline = self._builder.pipeline(name, {}, N=n, WORKGROUP=64, **constants)
        cost = Cost(row_bytes=4 * n * (len(inputs) + 1), row_flops=n)
        bindings = (self._state, *inputs, self._values.of(op.out))
        return Kernel(name, pipeline, fixed(bindings), per_row(n, 64), cost)
