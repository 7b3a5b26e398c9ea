"""Turns a model's graph into programs of the WASM kernels: operations with the addresses they work on.

A program is the same for one row or many: the state block says how many there are. Weights are placed as the kernels
want them (repacked at load), and those of one value side by side: they are one matrix.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from py_core.backends.base import MAX_LOGIT_ROWS, MAX_TAPS, BackendError
from py_core.backends.fusion import Fused, GatedLinear, Head, QKVAttention, ResidualLinear, fuse
from py_core.backends.page_table import PAGE
from py_core.backends.sampling_state import RING, ROW_BYTES, STATE_HEADER
from py_core.backends.wasm.host import RepackJob
from py_core.backends.wasm.layout import (
    BAND_ROWS,
    EXTENT,
    GROUP_ROWS,
    MATRIX_KINDS,
    MOST_GROUP,
    MOST_HEAD_DIM,
    OP_BYTES,
    PART,
    Arena,
    Barrier,
    MatrixKind,
    Mode,
    Op,
    OpKind,
    activation_bytes,
    head_page_bytes,
    matrix_bytes,
    program_bytes,
)  # fmt: skip
from py_core.formats.gguf import TensorInfo
from py_core.models import graph as ops
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph, RMSNorm, Value

PIECE = 4 << 20
"""Bytes of a repack job, at most (but at least four rows)."""


@dataclass(frozen=True)
class PackedMatrix:
    address: int
    kind: MatrixKind

    @property
    def is_float(self) -> bool:
        return self.kind >= MatrixKind.FLOAT32


class ProgramLowering:
    """One model in the kernels' memory. Programs and constants are in `arena.writes`, weights in `jobs`."""

    def __init__(
        self, config: ModelConfig, graph: Graph, tensors: Mapping[str, TensorInfo], mode: Mode, workers: int,
        max_rows: int, context_length: int, slots: int,
    ) -> None:  # fmt: skip
        group = config.num_attention_heads // config.num_key_value_heads
        if config.head_dim > MOST_HEAD_DIM or group > MOST_GROUP:
            raise BackendError(
                f"This model has {group} heads of {config.head_dim} for each of keys and values; the WASM kernels take "
                f"up to {MOST_GROUP}, of up to {MOST_HEAD_DIM}. Choose another backend or model."
            )
        self._config, self._tensors, self._mode = config, tensors, mode
        self._graph = graph
        self._body, self._head = fuse(graph)
        self.arena = Arena()
        self.jobs: list[RepackJob] = []
        self._matrices: dict[tuple[str, ...], PackedMatrix] = {}
        self._max_rows = max_rows
        take, widest = self.arena.take, max(op.out.width for op in graph.ops[:-1])
        self.state = take(STATE_HEADER + ROW_BYTES * max_rows)
        self.history = take(slots * RING * 4)
        self.logits = take(MAX_LOGIT_ROWS * config.vocab_size * 4 + 16)
        self._weights_of_tokens = take(config.vocab_size * 4 + 16)
        self._angles = self.arena.put(config.rope.table(context_length).tobytes())
        self.pages_per_slot = -(-context_length // PAGE)
        self.page_table = take(slots * self.pages_per_slot * 4)
        self._one_bytes = activation_bytes(widest, 1) + 64
        self._one = take(self._one_bytes * workers)
        self._many = take(activation_bytes(widest, max_rows))
        self._rows = take(widest * 4 * workers)
        parts = -(-context_length // PART)
        self._parts = take(parts * config.num_attention_heads * (config.head_dim + 2) * 4)
        self._buffers: dict[str, int] = {}
        self.layer_bytes = EXTENT * config.num_key_value_heads * head_page_bytes(config.head_dim, self._mode)
        self.extent_bytes = self.layer_bytes * config.num_hidden_layers
        place: dict[Value, int] = {}
        body = self._lower(self._body, place)
        head = [Op(OpKind.LOGIT_ROWS), *self._lower(self._head, place)]
        tap_bytes = max_rows * 4 * max((value.width for value in graph.taps.values()), default=0)
        self._taps = [take(tap_bytes) for _ in range(MAX_TAPS)]
        self.tapped_program = take(len(program_bytes(body, 0)) + MAX_TAPS * OP_BYTES)
        """Where a program of `tapped` is written before it runs."""
        self.programs: dict[str, int] = {}
        samplers = {
            "argmax": [self._sampler(OpKind.ARGMAX)],
            "sample": [self._sampler(OpKind.SAMPLE)],
            "penalties argmax": [self._sampler(OpKind.PENALTIES), self._sampler(OpKind.ARGMAX)],
            "penalties sample": [self._sampler(OpKind.PENALTIES), self._sampler(OpKind.SAMPLE)],
        }
        programs = {"body": body, "body head": [*body, *head], **samplers}
        programs |= {f"step {name}": [*body, *head, *sampler] for name, sampler in samplers.items()}
        # Pages come last in memory, so that their pool can grow: all else has its size by now.
        sizes = sum(-(-len(program_bytes(program, 0)) // 64) * 64 for program in programs.values())
        self.pages = self.arena.end + sizes
        for name, program in programs.items():
            self.programs[name] = self.arena.put(program_bytes([self._with_pages(op) for op in program], self.state))
        assert self.arena.end == self.pages

    def tapped(self, names: Sequence[str]) -> tuple[bytes, list[tuple[int, int]]]:
        """The body as a program that keeps the values of these names besides, and where: address and width of each."""
        values = [self._graph.taps[name] for name in names]
        taps = dict(zip(values, self._taps, strict=False))
        place: dict[Value, int] = {}
        program = self._lower(self._body, place, taps)
        program += [self._tap(op, place, taps[op.out]) for op in self._head if op.out in taps]
        code = program_bytes([self._with_pages(op) for op in program], self.state)
        return code, [(taps[value], value.width) for value in values]

    def _lower(
        self, operations: Sequence[Fused], place: dict[Value, int], taps: Mapping[Value, int] | None = None
    ) -> list[Op]:
        """Operations of the kernels, in order. `place` has the address of each value that they read or make.

        Values among the `taps` are copied there as soon as they are made.
        """
        norms: dict[Value, RMSNorm] = {}
        out: list[Op] = []
        for op in operations:
            match op:
                case ops.Embedding():
                    place[op.out] = self._buffer("residual", op.out.width)
                    table = self._matrix([op.weight])
                    out.append(Op(OpKind.EMBED, (table.address, place[op.out])))
                case ops.RMSNorm():
                    # Runs with the quantization for the linears that read it.
                    norms[op.out] = op
                    place[op.out] = place[op.x]
                case QKVAttention():
                    out += self._attention(op, place, norms)
                case GatedLinear():
                    out += self._gated(op, place, norms)
                case ResidualLinear():
                    place[op.out] = place[op.residual]
                    matrix = self._matrix([op.linear.weight])
                    out += self._linears(
                        [(matrix, 0)], op.linear.x, place, norms, place[op.out], op.out.width, epilogue=1
                    )
                case Head():
                    out += self._logits(op, place, norms)
            if taps and op.out in taps:
                out.append(self._tap(op, place, taps[op.out]))
        return out

    def _logits(self, op: Head, place: dict[Value, int], norms: dict[Value, RMSNorm]) -> list[Op]:
        x, first = op.linear.x, self._graph.head[0]
        # Only the head's first operation reads what has a row for each of the state's.
        every_row = first in (op.linear, norms.get(x))
        matrix = self._matrix([op.linear.weight])
        return self._linears([(matrix, 0)], x, place, norms, self.logits, op.out.width, every_row=every_row)

    def _tap(self, op: Fused, place: dict[Value, int], to: int) -> Op:
        """Every row of a value to a place of its own, before another value takes its place. A norm is made there."""
        norm = op if isinstance(op, RMSNorm) else None
        x = norm.x if norm else op.out
        return self._prepare(place[x], x.width, norm, (to, 0, to, self._max_rows), Mode.FLOAT, barrier=Barrier.ALWAYS)

    def _attention(self, op: QKVAttention, place: dict[Value, int], norms: dict[Value, RMSNorm]) -> list[Op]:
        c = self._config
        linears = [op.q, op.k, op.v]
        width = sum(linear.out.width for linear in linears)
        qkv, q = self._buffer("qkv", width), self._buffer("q", op.q.out.width)
        place[op.out] = self._buffer("attention", op.out.width)
        # The layer's number stands for its part of a page until it is known where the pages lie.
        cache = (
            c.num_attention_heads, c.num_key_value_heads, c.head_dim, self.pages_per_slot, self.page_table,
            op.attention.layer, self.extent_bytes, int(self._mode),
        )  # fmt: skip
        rope = (qkv, self._angles, q, int(_interleaved(op)))
        return [
            *self._joint([linear.weight for linear in linears], op.x, place, norms, qkv, width),
            Op(OpKind.ROPE_APPEND, (*rope, *cache)),
            Op(OpKind.ATTENTION, (q, place[op.out], self._parts, 0, *cache)),
        ]

    def _gated(self, op: GatedLinear, place: dict[Value, int], norms: dict[Value, RMSNorm]) -> list[Op]:
        n = op.out.width
        place[op.out] = self._buffer("ffn", n)
        names = [op.gate.weight, op.up.weight]
        if n % BAND_ROWS == 0 and self._can_join(names):
            matrix = self._matrix(names)
            return self._linears([(matrix, 0)], op.x, place, norms, place[op.out], n, epilogue=2)
        pair = self._buffer("gate and up", 2 * n)
        found = self._joint(names, op.x, place, norms, pair, 2 * n)
        return [*found, Op(OpKind.SWIGLU, (pair, place[op.out], n))]

    def _joint(
        self,
        names: Sequence[str],
        x: Value,
        place: dict[Value, int],
        norms: dict[Value, RMSNorm],
        out: int,
        stride: int,
    ) -> list[Op]:
        """Linears of one value side by side in one buffer, as one matrix where their layouts agree."""
        if self._can_join(names):
            return self._linears([(self._matrix(names), 0)], x, place, norms, out, stride)
        parts, offset = [], 0
        for name in names:
            parts.append((self._matrix([name]), offset))
            offset += self._tensors[name].shape[0]
        return self._linears(parts, x, place, norms, out, stride)

    def _linears(
        self, parts: Sequence[tuple[PackedMatrix, int]], x: Value, place: dict[Value, int], norms: dict[Value, RMSNorm],
        out: int, stride: int, epilogue: int = 0, every_row: bool = False,
    ) -> list[Op]:  # fmt: skip
        """Matrices over one value, each at its offset in the output's rows."""
        found: list[Op] = []
        prepared = None
        activations = (self._one, self._one_bytes, self._many, self._max_rows)
        for matrix, offset in parts:
            mode = Mode.FLOAT if matrix.is_float else self._mode
            if mode != prepared:
                found.append(self._prepare(place[x], x.width, norms.get(x), activations, mode, every_row))
                prepared = mode
            arguments = (matrix.address, out, stride, offset, epilogue, *activations, mode)
            found.append(Op(OpKind.LINEAR, arguments))
        return found

    def _prepare(
        self, x: int, width: int, norm: RMSNorm | None, activations: tuple[int, int, int, int], mode: Mode,
        every_row: bool = False, barrier: Barrier = Barrier.MANY_ROWS,
    ) -> Op:  # fmt: skip
        """Normalizes rows of x, if there is a norm, and quantizes them for a linear.

        `every_row`: x has all of the state's rows, also where only those that need logits are wanted.
        """
        weight = self._vector(norm.weight) if norm else 0
        (eps,) = struct.unpack("<I", struct.pack("<f", norm.eps if norm else 0.0))
        arguments = (x, width, weight, eps, *activations, mode, self._rows, int(every_row))
        return Op(OpKind.QUANTIZE, arguments, barrier)

    def _sampler(self, kind: OpKind) -> Op:
        arguments = (self.logits, self.history, self._config.vocab_size, RING, self._weights_of_tokens)
        return Op(kind, arguments, Barrier.NEVER)

    def _with_pages(self, op: Op) -> Op:
        """Puts the address of a layer's part of extent 0 in the place of its number."""
        if op.kind not in (OpKind.ROPE_APPEND, OpKind.ATTENTION):
            return op
        arguments = list(op.arguments)
        arguments[9] = self.pages + arguments[9] * self.layer_bytes
        return Op(op.kind, tuple(arguments), op.barrier)

    def _can_join(self, names: Sequence[str]) -> bool:
        infos = [self._tensors[name] for name in names]
        same = len({MATRIX_KINDS[info.format.name] for info in infos}) == 1
        return same and all(info.shape[0] % GROUP_ROWS == 0 for info in infos)

    def _matrix(self, names: Sequence[str]) -> PackedMatrix:
        """The named tensors as one matrix, to be repacked."""
        key = tuple(names)
        if key not in self._matrices:
            infos = [self._tensors[name] for name in names]
            columns, rows = infos[0].shape[1], sum(info.shape[0] for info in infos)
            if columns % 32:
                raise BackendError(f"{names[0]} is {columns} wide; the WASM kernels read multiples of 32 only.")
            data = self.arena.take(matrix_bytes(infos[0].format, rows, columns))
            first = 0
            for info in infos:
                self._repack(info, data, first)
                first += info.shape[0]
            kind = MATRIX_KINDS[infos[0].format.name]
            self._matrices[key] = PackedMatrix(self.arena.put(struct.pack("<4I", kind, rows, columns, data)), kind)
        return self._matrices[key]

    def _repack(self, info: TensorInfo, target: int, first: int) -> None:
        rows, columns = info.shape
        row_bytes = info.nbytes // rows
        step = max(GROUP_ROWS, PIECE // row_bytes // GROUP_ROWS * GROUP_ROWS)
        for row in range(0, rows, step):
            count = min(step, rows - row)
            self.jobs.append(
                RepackJob(
                    info.offset + row * row_bytes, count * row_bytes, info.format.ggml_type, target, first + row, count,
                    columns,
                )
            )  # fmt: skip

    def _vector(self, name: str) -> int:
        """A norm's weights. They go the way of a matrix of one column: four rows of a group lie as they were."""
        key = (name,)
        if key not in self._matrices:
            info = self._tensors[name]
            if info.format.name != "F32":
                raise BackendError(f"{name} is in {info.format.name}; the WASM kernels read norms in F32 only.")
            (size,) = info.shape
            data = self.arena.take(size * 4 + 16)
            self.jobs.append(RepackJob(info.offset, info.nbytes, info.format.ggml_type, data, 0, size, 1))
            self._matrices[key] = PackedMatrix(data, MatrixKind.FLOAT32)
        return self._matrices[key].address

    def _buffer(self, role: str, width: int) -> int:
        """(max_rows, width) floats of a role: blocks run one after the other, so all of them share it."""
        key = f"{role} {width}"
        if key not in self._buffers:
            self._buffers[key] = self.arena.take(self._max_rows * width * 4)
        return self._buffers[key]


def _interleaved(op: QKVAttention) -> bool:
    assert op.rope is not None
    return op.rope.interleaved
