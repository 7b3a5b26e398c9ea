"""Turns a model's graph into a flat list of kernels: what to run, over which buffers, with how many workgroups.

What one kernel does together is found by `fusion.py`: the linears of q, k and v are one matvec over neighbouring
weights; gate, up and SwiGLU another; a linear whose result is added to the residual adds it itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from py_core.backends.base import BackendError
from py_core.backends.fusion import GatedLinear, Head, QKVAttention, ResidualLinear, fuse
from py_core.backends.page_table import PAGE
from py_core.backends.sampling_state import RING
from py_core.backends.webgpu.cost import Cost, linear_cost
from py_core.backends.webgpu.host import Binding, Dispatch, Host
from py_core.backends.webgpu.kv_pages import KVPages
from py_core.backends.webgpu.shaders import Constant, binding_access, compose
from py_core.backends.webgpu.tuning import KernelShapes
from py_core.backends.webgpu.weights import Matrix, MatrixPart, WeightArena
from py_core.models import graph as ops
from py_core.models.config import ModelConfig, rope_table
from py_core.models.graph import Graph, Value

_GRID = 65535


@dataclass(frozen=True)
class Kernel:
    """One dispatch of a plan. `groups(m)` is the grid for a pass over m rows; bindings are asked for when recording.

    Kernels of one name are profiled together.
    """

    name: str
    pipeline: int
    bindings: Callable[[], tuple[Binding, ...]]
    groups: Callable[[int], tuple[int, int, int]]
    cost: Cost

    def dispatch(self, m: int) -> Dispatch:
        return Dispatch(self.pipeline, self.bindings(), self.groups(m))


@dataclass
class Plan:
    """`body` runs M rows through the blocks, `head` turns the last row into logits."""

    body: list[Kernel]
    head: list[Kernel]


@dataclass
class Buffers:
    """What the kernels share besides weights and pages."""

    state: Binding
    history: Binding
    logits: Binding


class KernelBuilder:
    """Composes and compiles kernels, each shader once."""

    def __init__(self, host: Host, shapes: KernelShapes) -> None:
        self._host, self.shapes = host, shapes
        self._pipelines: dict[str, int] = {}

    def pipeline(self, name: str, snippets: dict[str, str], **constants: Constant) -> int:
        wgsl = compose(name, {"MAX_ROWS": self.shapes.max_rows, **constants}, snippets)
        if wgsl not in self._pipelines:
            self._pipelines[wgsl] = self._host.pipeline(wgsl, binding_access(wgsl), name)
        return self._pipelines[wgsl]

    def matrix_kernels(
        self, matrix: Matrix, k: int, out_stride: int, offset: int, epilogue: int, rows: str
    ) -> list[tuple[int, MatrixPart, Callable[[int], tuple[int, int, int]]]]:
        """Pipelines and grids that multiply by a matrix, one for each of its parts.

        `rows` says how many rows of x there are: "one", "few" or "many".
        """
        shapes, found = self.shapes, []
        dequantize = {"dequantize": f"dequantize_{matrix.format.name.lower()}"}
        for part in matrix.parts:
            n = part.rows // 2 if epilogue == 2 else part.rows
            common = {"K": k, "N": n, "Y_STRIDE": out_stride, "Y_OFFSET": offset + part.first_row, "EPILOGUE": epilogue}
            if rows == "many" and shapes.tiled_matmul:
                pipeline = self.pipeline("matmul", dequantize, **common)
                found.append((pipeline, part, _grid(n, 32 if epilogue == 2 else 64, 32)))
                continue
            tile = 1 if rows == "one" else shapes.batch_tile
            pipeline = self.pipeline(
                "matvec",
                {**dequantize, "reduce": shapes.reduce},
                **common,
                M_TILE=tile,
                LANES=shapes.lanes,
                WORKGROUP=shapes.workgroup,
                ALL_ROWS=rows != "one",
            )
            found.append((pipeline, part, _grid(n, shapes.workgroup // shapes.lanes, tile)))
        return found


class Lowering:
    """One model on one host. `plan(rows)` makes the kernels for passes over "one", "few" or "many" rows."""

    def __init__(
        self, host: Host, config: ModelConfig, graph: Graph, arena: WeightArena, builder: KernelBuilder,
        buffers: Buffers, pages: KVPages, kv_format: str, context_length: int,
    ) -> None:  # fmt: skip
        self._host, self._config, self._arena = host, config, arena
        self._builder, self._buffers, self._pages, self._kv_format = builder, buffers, pages, kv_format
        self._operations = list(fuse(graph))
        self._scratch: dict[str, Binding] = {}
        table = rope_table(config, context_length)
        self._angles = Binding(host.create_buffer(table.nbytes, "rope angles"), 0, table.nbytes)
        host.write(self._angles.buffer, 0, table.tobytes())

    def plan(self, rows: str) -> Plan:
        body: list[Kernel] = []
        head: list[Kernel] = []
        place: dict[Value, Binding] = {}
        last: Value | None = None
        kernels = body
        for op in self._operations:
            match op:
                case ops.Embedding():
                    place[op.out] = self._scratch_of("residual", op.out.width)
                    kernels += self._embedding(op, place[op.out])
                case ops.LastToken():
                    last, kernels = op.out, head
                    place[op.out] = place[op.x]
                case ops.RMSNorm():
                    place[op.out] = self._scratch_of("normed", op.out.width)
                    kernels.append(self._rms_norm(op, place, op.x == last))
                case QKVAttention():
                    place[op.out] = self._scratch_of("attention", op.out.width)
                    kernels += self._attention(op, place, rows)
                case GatedLinear():
                    place[op.out] = self._scratch_of("ffn", op.out.width)
                    kernels += self._gated(op, place, rows)
                case ResidualLinear():
                    place[op.out] = place[op.residual]
                    weight = self._arena.place([op.linear.weight])
                    kernels += self._linear(weight, op.linear.x, place, place[op.out], op.out.width, 0, 1, rows)
                case Head():
                    weight = self._arena.place([op.linear.weight])
                    logits = self._buffers.logits
                    kernels += self._linear(weight, op.linear.x, place, logits, op.out.width, 0, 0, "one")
        return Plan(body, head)

    def sampler(self, name: str) -> Kernel:
        """argmax, sample or penalties over the logits."""
        vocab = self._config.vocab_size
        workgroup = 256
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
                {"dequantize": f"dequantize_{matrix.format.name.lower()}"},
                K=k, N=part.rows, FIRST_ROW=part.first_row, WORKGROUP=64,
            )  # fmt: skip
            bindings = (self._buffers.state, part.binding, out)
            cost = Cost(row_bytes=k // matrix.format.block_size * matrix.format.block_bytes + 4 * k)
            found.append(Kernel("embedding", pipeline, _fixed(bindings), _per_row(k // 8, 64), cost))
        return found

    def _rms_norm(self, op: ops.RMSNorm, place: dict[Value, Binding], last: bool) -> Kernel:
        weight = self._arena.place([op.weight], whole=True)
        if weight.format.name != "F32":
            raise BackendError(f"{op.weight} is in {weight.format.name}; the GPU kernels read norms in F32 only.")
        shapes = self._builder.shapes
        pipeline = self._builder.pipeline(
            "rms_norm", {"reduce": shapes.reduce},
            K=op.x.width, EPS=op.eps, LANES=shapes.lanes, WORKGROUP=shapes.lanes, LAST=last,
        )  # fmt: skip
        bindings = (self._buffers.state, weight.parts[0].binding, place[op.x], place[op.out])
        cost = Cost(fixed_bytes=4 * op.x.width, row_bytes=8 * op.x.width, row_flops=4 * op.x.width)
        return Kernel("rms_norm", pipeline, _fixed(bindings), lambda m: (1 if last else m, 1, 1), cost)

    def _attention(self, op: QKVAttention, place: dict[Value, Binding], rows: str) -> list[Kernel]:
        c, shapes, state = self._config, self._builder.shapes, self._buffers.state
        q, k, v = op.q, op.k, op.v
        width = q.out.width + k.out.width + v.out.width
        qkv = self._scratch_of("qkv", width)
        kernels = self._joint([q, k, v], qkv, width, place, rows)
        q_rotated = self._scratch_of("q", q.out.width)
        sizes = {
            "HEADS": c.num_attention_heads, "KV_HEADS": c.num_key_value_heads, "HEAD_DIM": c.head_dim,
            "PAGE": PAGE, "MAX_PAGES": self._pages.pages_per_slot,
        }  # fmt: skip
        append = self._builder.pipeline(
            "rope_append", {"kv": self._kv_format}, **sizes, WORKGROUP=64, INTERLEAVED=op.rope.interleaved
        )
        lanes, workgroup = shapes.attention_lanes, shapes.attention_workgroup
        merge = "merge_single" if lanes == 1 else "merge_workgroup"
        attend = self._builder.pipeline(
            "attention", {"kv": self._kv_format, "merge_lanes": merge}, **sizes, LANES=lanes, WORKGROUP=workgroup
        )
        table, pages, layer, out = self._pages.table_binding, self._pages, op.attention.layer, place[op.out]
        token_bytes = pages.page_bytes // PAGE
        kernels.append(
            Kernel(
                "rope_append", append,
                lambda: (state, qkv, self._angles, table, q_rotated, pages.binding(layer)), _per_row(width // 4, 64),
                Cost(row_bytes=4 * (width + q.out.width) + token_bytes, row_flops=3 * (q.out.width + k.out.width)),
            )
        )  # fmt: skip
        kernels.append(
            Kernel(
                "attention", attend, lambda: (state, q_rotated, table, pages.binding(layer), out),
                _per_row(c.num_attention_heads, workgroup // lanes),
                Cost(row_bytes=8 * q.out.width, token_bytes=token_bytes, token_flops=4 * q.out.width),
            )
        )  # fmt: skip
        return kernels

    def _gated(self, op: GatedLinear, place: dict[Value, Binding], rows: str) -> list[Kernel]:
        gate, up = op.gate, op.up
        n = op.out.width
        if self._arena.can_join([gate.weight, up.weight]):
            matrix = self._arena.place([gate.weight, up.weight], whole=True)
            return self._linear(matrix, gate.x, place, place[op.out], n, 0, 2, rows)
        pair = self._scratch_of("gate and up", 2 * n)
        kernels = self._joint([gate, up], pair, 2 * n, place, rows)
        pipeline = self._builder.pipeline("swiglu", {}, N=n, WORKGROUP=64)
        bindings = (self._buffers.state, pair, place[op.out])
        cost = Cost(row_bytes=12 * n, row_flops=4 * n)
        return [*kernels, Kernel("swiglu", pipeline, _fixed(bindings), _per_row(n, 64), cost)]

    def _joint(
        self, linears: list[ops.Linear], out: Binding, stride: int, place: dict[Value, Binding], rows: str
    ) -> list[Kernel]:
        """Linears of one value, side by side in one buffer: one dispatch where their formats agree."""
        names = [linear.weight for linear in linears]
        if self._arena.can_join(names):
            matrix = self._arena.place(names, whole=True)
            return self._linear(matrix, linears[0].x, place, out, stride, 0, 0, rows)
        kernels, offset = [], 0
        for linear in linears:
            matrix = self._arena.place([linear.weight])
            kernels += self._linear(matrix, linear.x, place, out, stride, offset, 0, rows)
            offset += linear.out.width
        return kernels

    def _linear(
        self, matrix: Matrix, x: Value, place: dict[Value, Binding], out: Binding,
        stride: int, offset: int, epilogue: int, rows: str,
    ) -> list[Kernel]:  # fmt: skip
        found = []
        name = f"linear {matrix.columns}x{matrix.rows} {matrix.format.name}{('', ' + residual', ' + SwiGLU')[epilogue]}"
        for pipeline, part, groups in self._builder.matrix_kernels(matrix, x.width, stride, offset, epilogue, rows):
            bindings = (self._buffers.state, part.binding, place[x], out)
            outputs = part.rows // 2 if epilogue == 2 else part.rows
            cost = linear_cost(matrix, part.rows, outputs if epilogue == 1 else 0, outputs)
            found.append(Kernel(name, pipeline, _fixed(bindings), groups, cost))
        return found

    def _scratch_of(self, role: str, width: int) -> Binding:
        """The buffer (max_rows, width) of a role: blocks run one after the other, so all of them share it."""
        key = f"{role} {width}"
        if key not in self._scratch:
            size = self._builder.shapes.max_rows * width * 4
            self._scratch[key] = Binding(self._host.create_buffer(size, key), 0, size)
        return self._scratch[key]


def _fixed(bindings: tuple[Binding, ...]) -> Callable[[], tuple[Binding, ...]]:
    return lambda: bindings


def _per_row(work: int, workgroup: int) -> Callable[[int], tuple[int, int, int]]:
    return lambda m: (-(-work // workgroup), m, 1)


def _grid(n: int, rows_each: int, m_each: int) -> Callable[[int], tuple[int, int, int]]:
    groups = -(-n // rows_each)
    fold = -(-groups // _GRID)
    return lambda m: (-(-groups // fold), fold, -(-m // m_each))
