"""Turns a model's graph into a flat list of kernels: what to run, over which buffers, with how many workgroups.

What one kernel does together is found by `fusion.py`: the linears of q, k and v are one matvec over neighbouring
weights; gate, up and SwiGLU another; a linear whose result is added to the residual adds it itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from py_core.backends.base import BackendError
from py_core.backends.fusion import GatedLinear, Head, QKVAttention, ResidualLinear, fuse
from py_core.backends.page_table import PAGE
from py_core.backends.sampling_state import RING
from py_core.backends.webgpu.attention import AttentionKernels
from py_core.backends.webgpu.cost import Cost, linear_cost
from py_core.backends.webgpu.host import Binding, Host
from py_core.backends.webgpu.kv_pages import KVPages
from py_core.backends.webgpu.layout import LAYOUTS
from py_core.backends.webgpu.plan import Grid, Kernel, Plan
from py_core.backends.webgpu.shaders import Constant, binding_access, compose
from py_core.backends.webgpu.tuning import KernelShapes, MatvecShape
from py_core.backends.webgpu.weights import MatrixPart, WeightArena, WeightMatrix
from py_core.formats.quantization import BlockFormat
from py_core.models import graph as ops
from py_core.models.config import ModelConfig, rope_table
from py_core.models.graph import Graph, Value

_GRID = 65535
_STAGED_BLOCK = {"x_staged": 144, "x_digits": 112}
"""Bytes of 32 values of x in workgroup memory, by snippet."""
_BLOCKS_AHEAD = 8
"""Blocks of weights that an invocation holds."""
_WIDE_ROWS = 2048
"""Rows of W from which on a matmul has enough wide tiles for a GPU."""
_SLICES = 4
_TILE_BYTES = 4096
"""Of workgroup memory, for 32 x 32 values."""
QKV_BINDINGS = 9
"""Storage buffers of the kernel that makes queries, keys and values; WebGPU promises 8 only."""


@dataclass
class Buffers:
    """What the kernels share besides weights and pages."""

    state: Binding
    history: Binding
    logits: Binding


@dataclass
class Pass:
    """How rows go through the model: "one", "few" or "many" at a time, these `tiled` where the adapter likes that."""

    rows: str
    tiled: bool
    place: dict[Value, Binding] = field(default_factory=dict)
    norms: dict[Value, ops.RMSNorm] = field(default_factory=dict)
    """Values that are not there: whoever reads one normalizes what lies in its place."""
    last: Value | None = None
    alone: bool = False
    """Whether a state never has more than one row here."""


class KernelBuilder:
    """Composes and compiles kernels, each shader once."""

    def __init__(self, host: Host, shapes: KernelShapes) -> None:
        self._host, self.shapes = host, shapes
        self._pipelines: dict[object, int] = {}
        self.shaped: dict[str, int] = {}
        """Columns of the kernels that have a shape to choose, by name."""
        self.chosen: dict[str, MatvecShape] = {}
        """Of kernels that were measured, by name; for one row of x."""

    def pipeline(self, name: str, snippets: dict[str, str], **constants: Constant) -> int:
        # Each layer asks again: composing the text to find out that it is there would take longer than lowering.
        key = (name, tuple(snippets.items()), tuple(constants.items()))
        if key not in self._pipelines:
            wgsl = compose(name, {"MAX_ROWS": self.shapes.max_rows, **constants}, snippets)
            self._pipelines[key] = self._host.pipeline(wgsl, binding_access(wgsl), name)
        return self._pipelines[key]

    def reader(self, form: BlockFormat) -> dict[str, str]:
        """The snippets that read a format."""
        return {"dequantize": f"dequantize_{form.name.lower()}", "halves": self.shapes.halves}

    def shape(self, kernel: str, k: int, rows: str) -> MatvecShape:
        """The shape of a matvec over rows of k columns: each lane takes whole blocks of 32."""
        usual = self.shapes.matvec
        shape = self.chosen.get(kernel, usual) if rows == "one" else usual
        lanes = shape.lanes
        while lanes > 1 and lanes > k // 32:
            lanes //= 2
        self.shaped[kernel] = k
        return replace(shape, lanes=lanes)

    def tiles(self, rows: int) -> tuple[int, int]:
        """WIDE and SLICES of a matmul over so many rows of W. Few rows are few tiles: narrow ones, for more of them."""
        memory = self._host.adapter.max_workgroup_storage
        if rows >= _WIDE_ROWS and memory >= 3 * _SLICES * _TILE_BYTES:
            return 2, _SLICES
        return 1, min(_SLICES, memory // (2 * _TILE_BYTES))

    def matvec(
        self, shader: str, matrix: WeightMatrix, part: MatrixPart, shape: MatvecShape, items: int, rows: int,
        step: Pass, norm: ops.RMSNorm | None, **constants: Constant,
    ) -> tuple[int, Grid]:  # fmt: skip
        """A kernel whose lanes share the `rows` rows of W of an item, and its grid, for a pass that is not tiled."""
        tile = 1 if step.rows == "one" else self.shapes.batch_tile
        integers = self.shapes.integer_dot and step.rows == "one" and LAYOUTS[matrix.format.name].quantized
        reduce = self.shapes.reduce if shape.lanes > 1 or integers else "reduce_single"
        columns, chunk, turns = "x_direct", shape.lanes, 1
        if self.shapes.stage_columns:
            columns = "x_digits" if integers else "x_staged"
            # Besides x: sums of squares, what lanes exchange, and what teams add up.
            sums = 4 * tile + (16 if reduce == "reduce_workgroup" else 0)
            totals = 4 * tile * shape.turns * rows * (shape.workgroup // shape.lanes)
            memory = self._host.adapter.max_workgroup_storage - sums * shape.workgroup - totals - 32
            room = memory // (tile * _STAGED_BLOCK[columns])
            chunk = chunk_blocks(matrix.columns, shape.team, rows, room)
            # Columns that are brought piece by piece would have to be brought again for each turn.
            turns = shape.turns if chunk == matrix.columns // 32 else 1
        pipeline = self.pipeline(
            shader, {**self.reader(matrix.format), "reduce": reduce, "columns": columns},
            K=matrix.columns, BLOCKS=part.blocks, NORM=norm is not None, EPS=norm.eps if norm else 0.0,
            LANES=shape.lanes, PARTS=shape.parts, TURNS=turns, ROWS=rows, M_TILE=tile, CHUNK=chunk,
            WORKGROUP=shape.workgroup, ONE=step.alone, **constants,
        )  # fmt: skip
        return pipeline, _grid(items, shape.workgroup // shape.team * turns, tile)


def chunk_blocks(k: int, team: int, rows: int, room: int) -> int:
    """Blocks of x that a matvec keeps in workgroup memory at a time, where there is room for so many.

    A lane asks for its part of them in `rows` rows of W together: as many blocks as there are registers for.
    """
    chunk = team * max(1, _BLOCKS_AHEAD // rows)
    return max(1, min(k // 32, chunk, room // team * team or room))


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
        self._operations = list(fuse(graph))
        self._scratch: dict[str, Binding] = {}
        table = rope_table(config, context_length)
        self._angles = Binding(host.create_buffer(table.nbytes, "rope angles"), 0, table.nbytes)
        host.write(self._angles.buffer, 0, table.tobytes())

    def plan(self, rows: str) -> Plan:
        plan = Plan([], [])
        step = Pass(rows, tiled=rows == "many" and self._builder.shapes.tiled_matmul, alone=rows == "one")
        kernels, place = plan.body, step.place
        for op in self._operations:
            match op:
                case ops.Embedding():
                    place[op.out] = self._scratch_of("residual", op.out.width)
                    kernels += self._embedding(op, place[op.out])
                case ops.LastToken():
                    # From here on it is one row, whatever the pass.
                    kernels, place[op.out] = plan.head, place[op.x]
                    step = Pass("one", False, place, last=op.out, alone=step.alone)
                case ops.RMSNorm():
                    kernels += self._rms_norm(op, step)
                case QKVAttention():
                    place[op.out] = self._scratch_of("attention", op.out.width)
                    kernels += self._attention(op, step)
                case GatedLinear():
                    place[op.out] = self._scratch_of("ffn", op.out.width)
                    kernels += self._gated(op, step)
                case ResidualLinear():
                    place[op.out] = place[op.residual]
                    weight = self._arena.place([op.linear.weight])
                    kernels += self._linear(weight, op.linear.x, step, place[op.out], op.out.width, epilogue=1)
                case Head():
                    weight = self._arena.place([op.linear.weight])
                    kernels += self._linear(weight, op.linear.x, step, self._buffers.logits, op.out.width)
        return plan

    def sampler(self, name: str) -> Kernel:
        """argmax, sample or penalties over the logits."""
        vocab = self._config.vocab_size
        # One workgroup reads all the logits: the more invocations, the more of them are on their way at once.
        wide = name == "argmax" and not self._host.adapter.software
        workgroup = min(1024, self._host.adapter.max_workgroup_size) if wide else 256
        pipeline = self._builder.pipeline(name, {}, VOCAB=vocab, RING=RING, WORKGROUP=workgroup)
        b = self._buffers
        cost = Cost(fixed_bytes=b.logits.size)
        return Kernel(name, pipeline, lambda: (b.state, b.logits, b.history), lambda m: (1, 1, 1), cost)

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
            found.append(Kernel("embedding", pipeline, _fixed(bindings), _per_row(k // 8, 64), cost))
        return found

    def _rms_norm(self, op: ops.RMSNorm, step: Pass) -> list[Kernel]:
        """A kernel of its own, or none where the linears that read the norm can make it."""
        weight = self._arena.place([op.weight], whole=True)
        if weight.format.name != "F32":
            raise BackendError(f"{op.weight} is in {weight.format.name}; the GPU kernels read norms in F32 only.")
        shapes, last = self._builder.shapes, op.x == step.last
        if shapes.stage_columns and not step.tiled:
            step.norms[op.out] = op
            step.place[op.out] = step.place[op.x]
            return []
        step.place[op.out] = self._scratch_of("normed", op.out.width)
        pipeline = self._builder.pipeline(
            "rms_norm", {"reduce": shapes.reduce},
            K=op.x.width, EPS=op.eps, LANES=shapes.lanes, WORKGROUP=shapes.lanes, LAST=last,
        )  # fmt: skip
        bindings = (self._buffers.state, weight.parts[0].quants, step.place[op.x], step.place[op.out])
        cost = Cost(fixed_bytes=4 * op.x.width, row_bytes=8 * op.x.width, row_flops=4 * op.x.width)
        return [Kernel("rms_norm", pipeline, _fixed(bindings), lambda m: (1 if last else m, 1, 1), cost)]

    def _attention(self, op: QKVAttention, step: Pass) -> list[Kernel]:
        q = self._scratch_of("q", op.q.out.width)
        qkv = self._qkv_apart if step.tiled or self._host.adapter.max_storage_buffers < QKV_BINDINGS else self._qkv
        attend = self._attention_kernels.kernels(q, step.place[op.out], op.attention.layer, step.rows)
        return [*qkv(op, step, q), *attend]

    def _qkv(self, op: QKVAttention, step: Pass, q: Binding) -> list[Kernel]:
        """The linears, the rotation and the pages in one kernel, or one for each run of neighbours of one format."""
        c, pages, layer = self._config, self._pages, op.attention.layer
        names = [op.q.weight, op.k.weight, op.v.weight]
        groups = next(
            groups
            for groups in ([names], [names[:2], names[2:]], [[name] for name in names])
            if all(len(group) == 1 or self._arena.can_join(group) for group in groups)
        )
        norm, x, weight = self._input(op.x, step)
        kernels, first_head = [], 0
        for group in groups:
            matrix = self._arena.place(group, whole=True)
            (part,) = matrix.parts
            name = f"qkv {matrix.columns}x{matrix.rows} {matrix.format.name}"
            shape = self._builder.shape(name, matrix.columns, step.rows)
            pipeline, grid = self._builder.matvec(
                "qkv", matrix, part, shape, matrix.rows // 2, 2, step, norm,
                N=matrix.rows, FIRST_HEAD=first_head, INTERLEAVED=op.rope.interleaved, **self._sizes,
            )  # fmt: skip
            before = (self._buffers.state, part.quants, part.scales, x, weight, self._angles, pages.table_binding, q)
            cost = linear_cost(matrix, matrix.rows, 0, matrix.rows)
            kernels.append(Kernel(name, pipeline, self._with_pages(before, layer), grid, cost))
            first_head += matrix.rows // c.head_dim
        return kernels

    def _qkv_apart(self, op: QKVAttention, step: Pass, q: Binding) -> list[Kernel]:
        width = op.q.out.width + op.k.out.width + op.v.out.width
        qkv = self._scratch_of("qkv", width)
        append = self._builder.pipeline("rope_append", {}, **self._sizes, WORKGROUP=64, INTERLEAVED=op.rope.interleaved)
        before = (self._buffers.state, qkv, self._angles, self._pages.table_binding, q)
        cost = Cost(
            row_bytes=4 * (width + op.q.out.width) + self._pages.page_bytes // PAGE,
            row_flops=3 * (op.q.out.width + op.k.out.width),
        )
        return [
            *self._joint([op.q, op.k, op.v], qkv, width, step),
            Kernel("rope_append", append, self._with_pages(before, op.attention.layer), _per_row(width // 4, 64), cost),
        ]

    def _with_pages(self, before: tuple[Binding, ...], layer: int) -> Callable[[], tuple[Binding, ...]]:
        """Bindings, and then a layer's pages, which move when their pool grows."""
        return lambda: (*before, self._pages.binding(layer))

    def _gated(self, op: GatedLinear, step: Pass) -> list[Kernel]:
        gate, up = op.gate, op.up
        n, out = op.out.width, step.place[op.out]
        if self._arena.can_join([gate.weight, up.weight]):
            matrix = self._arena.place([gate.weight, up.weight], whole=True)
            return self._linear(matrix, gate.x, step, out, n, epilogue=2)
        pair = self._scratch_of("gate and up", 2 * n)
        kernels = self._joint([gate, up], pair, 2 * n, step)
        pipeline = self._builder.pipeline("swiglu", {}, N=n, WORKGROUP=64)
        bindings = (self._buffers.state, pair, out)
        cost = Cost(row_bytes=12 * n, row_flops=4 * n)
        return [*kernels, Kernel("swiglu", pipeline, _fixed(bindings), _per_row(n, 64), cost)]

    def _joint(self, linears: list[ops.Linear], out: Binding, stride: int, step: Pass) -> list[Kernel]:
        """Linears of one value, side by side in one buffer: one dispatch where their formats agree."""
        names = [linear.weight for linear in linears]
        if self._arena.can_join(names):
            return self._linear(self._arena.place(names, whole=True), linears[0].x, step, out, stride)
        kernels, offset = [], 0
        for linear in linears:
            kernels += self._linear(self._arena.place([linear.weight]), linear.x, step, out, stride, offset)
            offset += linear.out.width
        return kernels

    def _linear(
        self, matrix: WeightMatrix, x: Value, step: Pass, out: Binding, stride: int, offset: int = 0, epilogue: int = 0,
    ) -> list[Kernel]:  # fmt: skip
        """A matrix's parts, each a kernel. epilogue: as in matvec.wgsl."""
        norm, place, weight = self._input(x, step)
        last = step.last is not None and step.last in (x, norm.x if norm else x)
        name = f"linear {matrix.columns}x{matrix.rows} {matrix.format.name}{('', ' + residual', ' + SwiGLU')[epilogue]}"
        found = []
        for part in matrix.parts:
            n = part.rows // 2 if epilogue == 2 else part.rows
            common = {"N": n, "Y_STRIDE": stride, "Y_OFFSET": offset + part.first_row, "EPILOGUE": epilogue}
            cost = linear_cost(matrix, part.rows, n if epilogue == 1 else 0, n)
            before = (self._buffers.state, part.quants, part.scales, place)
            if step.tiled:
                reader = self._builder.reader(matrix.format)
                wide, slices = self._builder.tiles(part.rows)
                pipeline = self._builder.pipeline(
                    "matmul", reader, K=x.width, BLOCKS=part.blocks, SLICES=slices, WIDE=wide, **common
                )
                grid = _grid(n, (16 if epilogue == 2 else 32) * wide, 32)
                found.append(Kernel(name, pipeline, _fixed((*before, out)), grid, cost))
                continue
            shape = self._builder.shape(name, matrix.columns, step.rows)
            pipeline, grid = self._builder.matvec(
                "matvec", matrix, part, shape, -(-n // shape.rows), shape.rows * (2 if epilogue == 2 else 1), step,
                norm, LAST=last, **common,
            )  # fmt: skip
            found.append(Kernel(name, pipeline, _fixed((*before, weight, out)), grid, cost))
        return found

    def _input(self, x: Value, step: Pass) -> tuple[ops.RMSNorm | None, Binding, Binding]:
        """The norm that a linear makes of its input, if any; where that lies; the norm's weights, or any binding."""
        norm, place = step.norms.get(x), step.place[x]
        if norm is None:
            return None, place, place
        return norm, place, self._arena.place([norm.weight], whole=True).parts[0].quants

    def _scratch_of(self, role: str, width: int) -> Binding:
        """The buffer (max_rows, width) of a role: blocks run one after the other, so all of them share it."""
        key = f"{role} {width}"
        if key not in self._scratch:
            size = self._builder.shapes.max_rows * width * 4
            self._scratch[key] = Binding(self._host.create_buffer(size, key), 0, size)
        return self._scratch[key]


def _fixed(bindings: tuple[Binding, ...]) -> Callable[[], tuple[Binding, ...]]:
    return lambda: bindings


def _per_row(work: int, workgroup: int) -> Grid:
    return lambda m: (-(-work // workgroup), m, 1)


def _grid(n: int, rows_each: int, m_each: int) -> Grid:
    groups = -(-n // rows_each)
    fold = -(-groups // _GRID)
    return lambda m: (-(-groups // fold), fold, -(-m // m_each))
