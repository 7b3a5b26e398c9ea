"""Turns a model's graph into a flat list of kernels: what to run, over which buffers, with how many workgroups.

Operations that one kernel does together are found by looking at who reads a value: the linears of q, k and v are one
matvec over neighbouring weights; gate, up and SwiGLU another; a linear whose result is added to the residual adds it
itself. What cannot be lowered raises NotImplementedError with the operation's name: a gap here, not a user's error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from py_core.backends.webgpu.host import AdapterInfo, Binding, Dispatch, Host
from py_core.backends.webgpu.kv_pages import PAGE, KVPages
from py_core.backends.webgpu.shaders import Constant, binding_access, compose
from py_core.backends.webgpu.tuning import KernelShapes
from py_core.backends.webgpu.weights import Matrix, MatrixPart, WeightArena
from py_core.models import graph as ops
from py_core.models.config import ModelConfig, rope_table
from py_core.models.graph import Graph, Value

RING = 1024
"""Tokens a sequence's history ring holds on the GPU: at least the penalty window and what is in flight."""

STATE_HEADER = 48
"""Bytes before the rows in the state buffer (snippets/state.wgsl); a row is 16."""

_GRID = 65535


@dataclass(frozen=True)
class Kernel:
    """One dispatch of a plan. `groups(m)` is the grid for a pass over m rows; bindings are asked for when recording."""

    name: str
    pipeline: int
    bindings: Callable[[], tuple[Binding, ...]]
    groups: Callable[[int], tuple[int, int, int]]


@dataclass
class Plan:
    """`body` runs M rows through the blocks, `head` turns the last row into logits."""

    body: list[Kernel]
    head: list[Kernel]

    def dispatches(self, kernels: list[Kernel], m: int) -> list[Dispatch]:
        return [Dispatch(kernel.pipeline, kernel.bindings(), kernel.groups(m)) for kernel in kernels]


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
        self._host, self._config, self._graph, self._arena = host, config, graph, arena
        self._builder, self._buffers, self._pages, self._kv_format = builder, buffers, pages, kv_format
        self._scratch: dict[str, Binding] = {}
        self._producer = {op.out: op for op in graph.ops}
        self._readers: dict[Value, list[ops.Op]] = {}
        for op in graph.ops:
            for value in vars(op).values():
                if isinstance(value, Value) and value != op.out:
                    self._readers.setdefault(value, []).append(op)
        table = rope_table(config, context_length)
        self._angles = Binding(host.create_buffer(table.nbytes, "rope angles"), 0, table.nbytes)
        host.write(self._angles.buffer, 0, table.tobytes())

    def plan(self, rows: str) -> Plan:
        body: list[Kernel] = []
        head: list[Kernel] = []
        place: dict[Value, Binding] = {}
        last: Value | None = None
        kernels = body
        for op in self._graph.ops:
            match op:
                case ops.Embedding():
                    place[op.out] = self._scratch_for("residual", op.out)
                    kernels += self._embedding(op, place[op.out])
                case ops.LastToken():
                    last, kernels = op.out, head
                    place[op.out] = place[op.x]
                case ops.RMSNorm():
                    place[op.out] = self._scratch_for("normed", op.out)
                    kernels.append(self._rms_norm(op, place, op.x == last))
                case ops.Attention():
                    kernels += self._attention(op, place, rows)
                case ops.SwiGLU():
                    kernels += self._swiglu(op, place, rows)
                case ops.Add():
                    kernels += self._residual(op, place, rows)
                case ops.Linear() if op.out == self._graph.output:
                    weight = self._arena.place([op.weight])
                    kernels += self._linear(weight, op.x, place, self._buffers.logits, op.out.width, 0, 0, "one")
                case ops.Linear() | ops.Rope():
                    self._check_fused(op)
        return Plan(body, head)

    def sampler(self, name: str) -> Kernel:
        """argmax, sample or penalties over the logits."""
        vocab = self._config.vocab_size
        workgroup = 256
        pipeline = self._builder.pipeline(name, {}, VOCAB=vocab, RING=RING, WORKGROUP=workgroup)
        b = self._buffers
        return Kernel(name, pipeline, lambda: (b.state, b.logits, b.history), lambda m: (1, 1, 1))

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
            found.append(Kernel("embedding", pipeline, _fixed(bindings), _per_row(k // 8, 64)))
        return found

    def _rms_norm(self, op: ops.RMSNorm, place: dict[Value, Binding], last: bool) -> Kernel:
        weight = self._arena.place([op.weight], whole=True)
        if weight.format.name != "F32":
            raise NotImplementedError(f"rms_norm with {weight.format.name} weights ({op.weight})")
        shapes = self._builder.shapes
        pipeline = self._builder.pipeline(
            "rms_norm", {"reduce": shapes.reduce},
            K=op.x.width, EPS=op.eps, LANES=shapes.lanes, WORKGROUP=shapes.lanes, LAST=last,
        )  # fmt: skip
        bindings = (self._buffers.state, weight.parts[0].binding, place[op.x], place[op.out])
        return Kernel("rms_norm", pipeline, _fixed(bindings), lambda m: (1 if last else m, 1, 1))

    def _attention(self, op: ops.Attention, place: dict[Value, Binding], rows: str) -> list[Kernel]:
        c, shapes, state = self._config, self._builder.shapes, self._buffers.state
        rope_q, rope_k, v = self._producer[op.q], self._producer[op.k], self._producer[op.v]
        if not (isinstance(rope_q, ops.Rope) and isinstance(rope_k, ops.Rope) and isinstance(v, ops.Linear)):
            raise NotImplementedError("attention whose q and k are not rotated linears")
        q, k = self._producer[rope_q.x], self._producer[rope_k.x]
        if not (isinstance(q, ops.Linear) and isinstance(k, ops.Linear) and q.x == k.x == v.x):
            raise NotImplementedError("attention whose q, k and v do not come from one value")
        width = q.out.width + k.out.width + v.out.width
        qkv = self._scratch_of("qkv", width)
        kernels = self._joint([q, k, v], qkv, width, place, rows)
        q_rotated = self._scratch_of("q", q.out.width)
        place[op.out] = self._scratch_of("attention", op.out.width)
        sizes = {
            "HEADS": c.num_attention_heads, "KV_HEADS": c.num_key_value_heads, "HEAD_DIM": c.head_dim,
            "PAGE": PAGE, "MAX_PAGES": self._pages.pages_per_slot,
        }  # fmt: skip
        append = self._builder.pipeline(
            "rope_append", {"kv": self._kv_format}, **sizes, WORKGROUP=64, INTERLEAVED=rope_q.interleaved
        )
        lanes, workgroup = shapes.attention_lanes, shapes.attention_workgroup
        merge = "merge_single" if lanes == 1 else "merge_workgroup"
        attend = self._builder.pipeline(
            "attention", {"kv": self._kv_format, "merge_lanes": merge}, **sizes, LANES=lanes, WORKGROUP=workgroup
        )
        table, pages, layer, out = self._pages.table_binding, self._pages, op.layer, place[op.out]
        kernels.append(
            Kernel(
                "rope_append", append,
                lambda: (state, qkv, self._angles, table, q_rotated, pages.binding(layer)), _per_row(width // 4, 64),
            )
        )  # fmt: skip
        kernels.append(
            Kernel(
                "attention", attend, lambda: (state, q_rotated, table, pages.binding(layer), out),
                _per_row(c.num_attention_heads, workgroup // lanes),
            )
        )  # fmt: skip
        return kernels

    def _swiglu(self, op: ops.SwiGLU, place: dict[Value, Binding], rows: str) -> list[Kernel]:
        gate, up = self._producer[op.gate], self._producer[op.up]
        if not (isinstance(gate, ops.Linear) and isinstance(up, ops.Linear) and gate.x == up.x):
            raise NotImplementedError("swiglu whose gate and up do not come from one value")
        place[op.out] = self._scratch_of("ffn", op.out.width)
        n = op.out.width
        if self._arena.can_join([gate.weight, up.weight]):
            matrix = self._arena.place([gate.weight, up.weight], whole=True)
            return self._linear(matrix, gate.x, place, place[op.out], n, 0, 2, rows)
        pair = self._scratch_of("gate and up", 2 * n)
        kernels = self._joint([gate, up], pair, 2 * n, place, rows)
        pipeline = self._builder.pipeline("swiglu", {}, N=n, WORKGROUP=64)
        bindings = (self._buffers.state, pair, place[op.out])
        return [*kernels, Kernel("swiglu", pipeline, _fixed(bindings), _per_row(n, 64))]

    def _residual(self, op: ops.Add, place: dict[Value, Binding], rows: str) -> list[Kernel]:
        linear = self._producer[op.b]
        if not isinstance(linear, ops.Linear) or self._readers[op.a][-1] is not op:
            raise NotImplementedError("an addition that is not residual + linear")
        place[op.out] = place[op.a]
        weight = self._arena.place([linear.weight])
        return self._linear(weight, linear.x, place, place[op.out], op.out.width, 0, 1, rows)

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
        for pipeline, part, groups in self._builder.matrix_kernels(matrix, x.width, stride, offset, epilogue, rows):
            bindings = (self._buffers.state, part.binding, place[x], out)
            found.append(Kernel("linear", pipeline, _fixed(bindings), groups))
        return found

    def _check_fused(self, op: ops.Linear | ops.Rope) -> None:
        """Linears and rotations run with the operation that reads them; there must be exactly one, of a known kind."""
        readers = self._readers.get(op.out, [])
        if len(readers) != 1 or not isinstance(readers[0], (ops.Rope, ops.Attention, ops.SwiGLU, ops.Add)):
            raise NotImplementedError(f"a {type(op).__name__} read by {[type(reader).__name__ for reader in readers]}")

    def _scratch_for(self, role: str, value: Value) -> Binding:
        return self._scratch_of(role, value.width)

    def _scratch_of(self, role: str, width: int) -> Binding:
        """The buffer (max_rows, width) of a role: blocks run one after the other, so all of them share it."""
        key = f"{role} {width}"
        if key not in self._scratch:
            size = self._builder.shapes.max_rows * width * 4
            self._scratch[key] = Binding(self._host.create_buffer(size, key), 0, size)
        return self._scratch[key]


def state_bytes(
    rows: list[tuple[int, int, int]], *, seed: int = 0, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0,
    min_p: float = 0.0, repetition_penalty: float = 1.0, presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0, penalty_window: int = 0,
) -> bytes:  # fmt: skip
    """The state buffer's start (snippets/state.wgsl) for rows of (token, position, slot)."""
    header = np.zeros(STATE_HEADER // 4, np.uint32)
    reals = header.view(np.float32)
    header[[0, 1, 3, 9]] = len(rows), seed, top_k, penalty_window
    reals[[2, 4, 5, 6, 7, 8]] = temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty
    table = np.zeros((len(rows), 4), np.uint32)
    table[:, :3] = rows
    return header.tobytes() + table.tobytes()


def _fixed(bindings: tuple[Binding, ...]) -> Callable[[], tuple[Binding, ...]]:
    return lambda: bindings


def _per_row(work: int, workgroup: int) -> Callable[[int], tuple[int, int, int]]:
    return lambda m: (-(-work // workgroup), m, 1)


def _grid(n: int, rows_each: int, m_each: int) -> Callable[[int], tuple[int, int, int]]:
    groups = -(-n // rows_each)
    fold = -(-groups // _GRID)
    return lambda m: (-(-groups // fold), fold, -(-m // m_each))


__all__ = ["RING", "STATE_HEADER", "AdapterInfo", "Buffers", "KernelBuilder", "Lowering", "Plan", "state_bytes"]
