"""The kernels of attention: from the linears of q, k and v, fused or not, over the pages, to its output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from py_core.backends.fusion import QKVAttention
from py_core.backends.webgpu.attention import AttentionKernels
from py_core.backends.webgpu.cost import Cost, linear_cost
from py_core.backends.webgpu.host import Binding, Host, covering
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.backends.webgpu.kv_pages import KVPages
from py_core.backends.webgpu.lora import LoraPart, NextOf
from py_core.backends.webgpu.lowering.linear import LinearInput, LinearLowering, lora_name
from py_core.backends.webgpu.plan import Grid, Kernel, fixed, folded, per_row
from py_core.backends.webgpu.shaders import Constant
from py_core.backends.webgpu.values import PassContext, Values
from py_core.backends.webgpu.weights.arena import MatrixPart, WeightMatrix
from py_core.backends.webgpu.weights.vectors import Vectors
from py_core.models import graph as ops
from py_core.models.config import ModelConfig
from py_core.models.rotation import Rotation
from py_core.paging.page_table import PAGE, head_room


@dataclass(frozen=True)
class _Heads:
    """The constants of layers with the same heads, and the kernels over their pages. A head has `size` values, in pages
    `room`."""

    size: int
    room: int
    sizes: dict[str, Constant]
    over_pages: AttentionKernels

    @property
    def is_padded(self) -> bool:
        return self.room != self.size

    @property
    def without_queries(self) -> dict[str, Constant]:
        return {name: size for name, size in self.sizes.items() if name != "HEADS"}


QKV_BINDINGS = 9
"""Storage buffers of the kernel that makes queries, keys and values; WebGPU promises 8 only."""


@dataclass(frozen=True)
class _MatrixRows:
    """Neighbouring rows of one matrix, of q, k and v: the inputs of their kernel, and its constants."""

    matrix: WeightMatrix
    given: LinearInput
    rows: int
    constants: dict[str, Constant]
    lora: LoraPart | None

    @property
    def part(self) -> MatrixPart:
        (part,) = self.matrix.parts
        return part


class AttentionLowering:
    """The attention of one model; `state` is the state's buffer."""

    def __init__(
        self, host: Host, config: ModelConfig, builder: KernelBuilder, linears: LinearLowering, values: Values,
        vectors: Vectors, pages: KVPages, state: Binding,
    ) -> None:  # fmt: skip
        self._host, self._config, self._builder, self._state = host, config, builder, state
        self._linears, self._values, self._vectors, self._pages = linears, values, vectors, pages
        self._heads: dict[tuple[int, int, int], _Heads] = {}
        self._angles: dict[Rotation, Binding] = {}

    def _heads_of(self, op: ops.Attention) -> _Heads:
        key = (op.num_attention_heads, op.num_key_value_heads, op.head_dim)
        if key not in self._heads:
            heads, kv_heads, size = key
            room = head_room(size)
            sizes: dict[str, Constant] = {
                "HEADS": heads, "KV_HEADS": kv_heads, "HEAD_DIM": room, "PAGE": PAGE,
                "MAX_PAGES": self._pages.pages_per_slot,
            }  # fmt: skip
            config = replace(self._config, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=room)
            builder = self._builder
            kernels = AttentionKernels(
                self._host, config, builder.shapes, builder.pipeline, self._state, self._pages, sizes
            )
            self._heads[key] = _Heads(size, room, sizes, kernels)
        return self._heads[key]

    def fused(self, op: QKVAttention, context: PassContext) -> list[Kernel]:
        """Return the kernels of linears, norms of heads, rotation, appending to the pages, and attention."""
        heads = self._heads_of(op.attention)
        q = self._values.scratch("q", op.attention.num_attention_heads * heads.room)
        bindings = QKV_BINDINGS + (context.rank > 0)
        fits = self._host.adapter.max_storage_buffers >= bindings and not heads.is_padded
        one_kernel = fits and not context.tiled and not op.q_norm
        made = self._qkv(op, context, q) if one_kernel else self._qkv_apart(op, context, q)
        return [*made, *self._attention(op.attention, q, self._linears.next_of(op.out, context), context)]

    def _attention(self, op: ops.Attention, q: Binding, next_of: NextOf | None, context: PassContext) -> list[Kernel]:
        """Return the kernels from queries, with heads as pages have them, to attention's output."""
        count, out, heads = op.num_attention_heads, self._values.of(op.out), self._heads_of(op)
        if not heads.is_padded:
            phase = context.persistent.workgroup if context.persistent else 0
            return heads.over_pages.kernels(op, q, out, context.rows, next_of, phase)
        wide = self._values.scratch("wide heads", count * heads.room)
        return [
            *heads.over_pages.kernels(op, q, wide, context.rows),
            *self._without_zeros(wide, out, count, heads.size),
        ]

    def _resized(self, x: Binding, y: Binding, heads: int, before: int, after: int) -> Kernel:
        """Return a kernel for rows of heads of `before` values, which get zeros at their ends or lose them."""
        pipeline = self._builder.pipeline("resize_heads", {}, HEADS=heads, FROM=before, TO=after, WORKGROUP=64)
        cost = Cost(row_bytes=4 * heads * (before + after))
        return Kernel("resize_heads", pipeline, fixed((self._state, x, y)), per_row(heads * after, 64), cost)

    def _with_zeros(self, name: str, x: Binding, heads: int, size: int) -> tuple[Binding, list[Kernel]]:
        """Return the same values with heads, of `size` values, as pages have them."""
        room = head_room(size)
        if room == size:
            return x, []
        wide = self._values.scratch(name, heads * room)
        return wide, [self._resized(x, wide, heads, size, room)]

    def _without_zeros(self, x: Binding, out: Binding, heads: int, size: int) -> list[Kernel]:
        room = head_room(size)
        return [self._resized(x, out, heads, room, size)] if room != size else []

    def attention(self, op: ops.Attention, context: PassContext) -> list[Kernel]:
        """Return the kernels of appending to the pages and of attention, for finished queries and keys."""
        heads = self._heads_of(op)
        width = op.num_key_value_heads * heads.room
        q, wider_q = self._with_zeros("wide q", self._values.of(op.q), op.num_attention_heads, heads.size)
        if not op.appends:
            return [*wider_q, *self._attention(op, q, None, context)]
        k, wider_k = self._with_zeros("wide k", self._values.of(op.k), op.num_key_value_heads, heads.size)
        v, wider_v = self._with_zeros("wide v", self._values.of(op.v), op.num_key_value_heads, heads.size)
        pipeline = self._builder.pipeline("append", {}, **heads.without_queries, WORKGROUP=64)
        before = (self._state, k, v, self._pages.table(op.layer))
        append = Kernel(
            "append", pipeline, self._with_pages(before, op.layer), per_row(width // 4, 64), Cost(row_bytes=16 * width)
        )
        return [*wider_k, *wider_v, *wider_q, append, *self._attention(op, q, None, context)]

    def rope(self, op: ops.Rope) -> list[Kernel]:
        size = op.x.width // op.num_heads
        room, out = head_room(size), self._values.of(op.out)
        width = op.num_heads * room
        x, wider = self._with_zeros("wide x", self._values.of(op.x), op.num_heads, size)
        y = self._values.scratch("wide y", width) if room != size else out
        pipeline = self._builder.pipeline("rope", {}, HEADS=op.num_heads, HEAD_DIM=room, WORKGROUP=64, **_rotation(op))
        cost = Cost(row_bytes=8 * width, row_flops=3 * width)
        kernel = Kernel("rope", pipeline, fixed((self._state, x, self.angles_of(op), y)), per_row(width // 4, 64), cost)
        return [*wider, kernel, *self._without_zeros(y, out, op.num_heads, size)]

    def _qkv(self, op: QKVAttention, context: PassContext, q: Binding) -> list[Kernel]:
        """Make the linears, the rotation and the pages in one kernel, or in more if their weights have several formats
        and cannot be bound together."""
        runs, downs, first_head, heads = [], [], 0, self._heads_of(op.attention)
        for run in self._linears.runs([op.q, op.k, op.v]):
            rows = sum(linear.out.width for linear in run)
            matrix, given = self._linears.matrix(run, whole=True), self._linears.input(run, context)
            constants = {
                "N": rows, "FIRST_ROW": run[0].first_row if rows < matrix.rows else 0, "FIRST_HEAD": first_head,
                **given.constants(), **_rotation(op.rope), **heads.sizes,
            }  # fmt: skip
            lora, down = self._linears.lora(_name(matrix, rows), run, context, QKV_BINDINGS)
            downs += down
            runs.append(_MatrixRows(matrix, given, rows, constants, lora))
            first_head += rows // heads.size
        # Two kernels in one gave wrong sums of several rows in integers on lavapipe, which adds up by subgroups.
        alike = context.rows == "one" or not any(self._builder.integers(run.matrix) for run in runs)
        if len(runs) == 2 and alike and not context.persistent and runs[0].given.vectors == runs[1].given.vectors:
            weights = [binding for run in runs for binding in (run.part.quants, run.part.scales)]
            both = covering(weights)
            if both and both.size <= self._host.adapter.max_binding_size:
                return [*downs, *self._qkv_pair(op, context, runs, both, q)]
        return [*downs, *(kernel for run in runs for kernel in self._qkv_run(op, context, run, q))]

    def _qkv_run(self, op: QKVAttention, context: PassContext, run: _MatrixRows, q: Binding) -> list[Kernel]:
        name = _name(run.matrix, run.rows)
        shape = self._linears.shape(name, run.matrix, run.given, context, run.rows // 2)
        read, made = self._linears.read(name, shape, op.q.x, run.given, context)
        run = replace(run, given=read)
        if context.persistent:
            phase = self._builder.phase(
                "qkv", run.matrix, run.part, shape, run.rows // 2, 2, run.given.norm, **run.constants
            )
            kernel = self._qkv_kernel(name, op, 0, folded(1, 1, 1), [run], run.part.quants, run.part.scales, q)
            return [*made, replace(kernel, phase=phase)]
        pipeline, grid, _ = self._builder.matvec(
            "qkv", run.matrix, run.part, shape, run.rows // 2, 2, context.rows, context.single_row, run.given.norm,
            run.lora, None, **run.constants,
        )  # fmt: skip
        return [*made, self._qkv_kernel(name, op, pipeline, grid, [run], run.part.quants, run.part.scales, q)]

    def _qkv_pair(
        self, op: QKVAttention, context: PassContext, runs: Sequence[_MatrixRows], both: Binding, q: Binding
    ) -> list[Kernel]:
        """Make one kernel for two formats: the first workgroups multiply the first run's rows, the others the
        second's."""
        columns, formats = runs[0].matrix.columns, "+".join(run.matrix.format.name for run in runs)
        name = f"qkv {columns}x{sum(run.rows for run in runs)} {formats}"
        shape = self._linears.shape(name, runs[0].matrix, runs[0].given, context, runs[0].rows // 2)
        read, made = self._linears.read(name, shape, op.q.x, runs[0].given, context)
        runs = [replace(run, given=replace(run.given, x=read.x, norm=read.norm)) for run in runs]
        parts, groups, tile = [], [], 1
        for run in runs:
            part, each, tile = self._builder.matvec_part(
                run.matrix, run.part, shape, 2, context.rows, context.single_row, run.given.norm, 2, run.lora, False,
                **run.constants, QUANTS_AT=(run.part.quants.offset - both.offset) // 16,
                SCALES_AT=(run.part.scales.offset - both.offset) // 4,
            )  # fmt: skip
            parts.append(part)
            groups.append(-(-run.rows // 2 // each))
        pipeline = self._builder.pair("qkv", parts, groups[0])
        grid: Grid = lambda m: (sum(groups), 1, -(-m // tile))  # noqa: E731
        return [*made, self._qkv_kernel(name, op, pipeline, grid, runs, both, both, q)]

    def _qkv_kernel(
        self, name: str, op: QKVAttention, pipeline: int, grid: Grid, runs: Sequence[_MatrixRows], quants: Binding,
        scales: Binding, q: Binding,
    ) -> Kernel:  # fmt: skip
        given, layer = runs[0].given, op.attention.layer
        before = (
            self._state, quants, scales, given.x, given.vectors, self.angles_of(op.rope), self._pages.table(layer), q,
        )  # fmt: skip
        costs = [linear_cost(run.matrix, run.rows, 0, run.rows, run.given.bias_at is not None) for run in runs]
        cost = Cost(
            fixed_bytes=sum(one.fixed_bytes for one in costs),
            row_bytes=sum(one.row_bytes for one in costs) - 4 * runs[0].matrix.columns * (len(runs) - 1),
            row_flops=sum(one.row_flops for one in costs),
        )
        lora = runs[0].lora
        return Kernel(lora_name(name, lora), pipeline, self._with_pages(before, layer, lora), grid, cost)

    def _qkv_apart(self, op: QKVAttention, context: PassContext, q: Binding) -> list[Kernel]:
        """Make the linears by kernels of their own, then a kernel for the norms of heads, the rotation and the
        pages."""
        linears = [op.q, op.k, op.v]
        width, shape = sum(linear.out.width for linear in linears), self._heads_of(op.attention)
        heads = width // shape.size
        made = self._values.scratch("qkv", width)
        qkv, wider = self._with_zeros("wide qkv", made, heads, shape.size)
        norms = (self._state, self._state)
        if op.q_norm and op.k_norm:
            norms = (self._vectors.norm(op.q_norm), self._vectors.norm(op.k_norm))
        pipeline = self._builder.pipeline(
            "rope_append", {}, **shape.sizes, HEAD_SIZE=shape.size, WORKGROUP=64,
            HEAD_NORM=op.q_norm is not None, V_NORM=op.v_norm is not None,
            EPS=op.q_norm.eps if op.q_norm else 0.0, **_rotation(op.rope),
        )  # fmt: skip
        layer = op.attention.layer
        before = (self._state, qkv, self.angles_of(op.rope), self._pages.table(layer), *norms, q)
        cost = Cost(
            row_bytes=4 * (width + op.q.out.width) + 8 * op.attention.num_key_value_heads * shape.room,
            row_flops=(3 if op.rope else 0) * (op.q.out.width + op.k.out.width)
            + (4 if op.q_norm else 0) * (op.q.out.width + op.k.out.width),
        )
        return [
            *self._linears.side_by_side(linears, made, context),
            *wider,
            Kernel(
                "rope_append", pipeline, self._with_pages(before, layer), per_row(heads * shape.room // 4, 64), cost
            ),
        ]

    def _with_pages(
        self, before: tuple[Binding, ...], layer: int, lora: LoraPart | None = None
    ) -> Callable[[], tuple[Binding, ...]]:
        """Return bindings, then a layer's pages, which move when their pool grows, and the sets of LoRA matrices."""
        return lambda: (*before, self._pages.binding(layer), *([lora.sets.binding()] if lora else []))

    def angles_of(self, rope: ops.Rope | None) -> Binding:
        """Return the (cos, sin) of every position's angles, or any buffer if nothing rotates."""
        if rope is None:
            return self._state
        if rope.rotation not in self._angles:
            table = rope.rotation.table(self._config.context_length)
            made = Binding(self._host.create_buffer(table.nbytes, "rope angles"), 0, table.nbytes)
            self._host.write(made.buffer, 0, table.tobytes())
            self._angles[rope.rotation] = made
        return self._angles[rope.rotation]


def _name(matrix: WeightMatrix, rows: int) -> str:
    return f"qkv {matrix.columns}x{rows} {matrix.format.name}"


def _rotation(rope: ops.Rope | None) -> dict[str, Constant]:
    if rope is None:
        return {"PAIRS": 0, "INTERLEAVED": False}
    return {"PAIRS": rope.rotation.dimensions // 2, "INTERLEAVED": rope.interleaved}
