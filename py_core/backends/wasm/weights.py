"""A model's weights in the kernels' memory: the place of each matrix, and the rows of the file that go there."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from py_core.backend_errors import BackendError
from py_core.backends.wasm.host import RepackJob
from py_core.backends.wasm.layout import GROUP_ROWS, MATRIX_KINDS, Arena, MatrixKind, matrix_bytes
from py_core.formats.gguf import TensorInfo
from py_core.models.graph import Linear, RMSNorm

PIECE = 4 << 20
"""The most bytes of a repack job (but at least four rows)."""


@dataclass(frozen=True)
class TensorRows:
    """Some rows of a tensor. The matrices of experts are one below the other."""

    name: str
    first: int
    count: int


@dataclass(frozen=True)
class PackedMatrix:
    address: int
    kind: MatrixKind
    rows: int
    data: int

    @property
    def is_float(self) -> bool:
        return self.kind >= MatrixKind.FLOAT32


def rows_of(linears: Iterable[Linear]) -> list[TensorRows]:
    """Return the rows that linears read, in order. Consecutive rows of a tensor are taken together."""
    found: list[TensorRows] = []
    for linear in linears:
        rows = TensorRows(linear.weight, linear.first_row, linear.out.width)
        if found and found[-1].name == rows.name and found[-1].first + found[-1].count == rows.first:
            rows = TensorRows(rows.name, found[-1].first, found.pop().count + rows.count)
        found.append(rows)
    return found


class PackedWeights:
    """Places weights in the arena as they are asked for; `jobs` bring them there."""

    def __init__(self, tensors: Mapping[str, TensorInfo], arena: Arena) -> None:
        self.jobs: list[RepackJob] = []
        self.regions: list[tuple[int, int]] = []
        """The address and the bytes of what the jobs bring."""
        self._tensors, self._arena = tensors, arena
        self._matrices: dict[tuple[TensorRows, ...], PackedMatrix] = {}
        self._vectors: dict[tuple[TensorRows | int, ...], int] = {}
        self._ones: dict[int, int] = {}

    def can_join(self, parts: Sequence[TensorRows]) -> bool:
        """True if these parts can be one matrix, one below the other."""
        same = len({MATRIX_KINDS[self._tensors[part.name].format.name] for part in parts}) == 1
        return len(parts) == 1 or (same and all(part.count % GROUP_ROWS == 0 for part in parts))

    def matrix(self, parts: Sequence[TensorRows]) -> PackedMatrix:
        """Return these rows as one matrix, to be repacked. Raises BackendError for a width that the kernels do not
        read."""
        info = self._tensors[parts[0].name]
        if info.shape[-1] % 4:
            raise BackendError(
                "wasm.columns",
                "{name} is {columns} wide; the WASM kernels read multiples of 4 only.",
                name=info.name,
                columns=info.shape[-1],
            )
        return self._packed(parts)

    def taps(self, name: str) -> int:
        """Return the address of a convolution's weights: floats, [4 channels][tap][channel]."""
        self._check_float(name)
        return self._packed([TensorRows(name, 0, self._tensors[name].shape[0])]).data

    def _packed(self, parts: Sequence[TensorRows]) -> PackedMatrix:
        key = tuple(parts)
        if key not in self._matrices:
            info = self._tensors[parts[0].name]
            columns, rows = info.shape[-1], sum(part.count for part in parts)
            nbytes = matrix_bytes(info.format, rows, columns)
            data = self._take(nbytes)
            first = 0
            for part in parts:
                self._repack(part, data, first)
                first += part.count
            kind = MATRIX_KINDS[info.format.name]
            address = self._arena.put(struct.pack("<4I", kind, rows, columns, data))
            self._matrices[key] = PackedMatrix(address, kind, rows, data)
        return self._matrices[key]

    def band(self, part: TensorRows, first: int, count: int) -> PackedMatrix:
        """Return `count` rows of a matrix from `first` on as a matrix of their own, both whole bands except at the
        end."""
        whole = self.matrix([part])
        key = (part, TensorRows(part.name, part.first + first, count))
        if key not in self._matrices:
            info = self._tensors[part.name]
            columns = info.shape[-1]
            data = whole.data + matrix_bytes(info.format, first, columns)
            address = self._arena.put(struct.pack("<4I", whole.kind, count, columns, data))
            self._matrices[key] = PackedMatrix(address, whole.kind, count, data)
        return self._matrices[key]

    def find(self, rows: TensorRows) -> tuple[PackedMatrix, int]:
        """Return the matrix that has these rows among its own, and the row at which they begin in it."""
        for parts, matrix in self._matrices.items():
            first = _row_in(parts, rows)
            if first is not None:
                return matrix, first
        raise KeyError(f"{rows} is in no matrix")

    def find_bias(self, rows: TensorRows) -> int:
        """Return the address of these numbers of a bias among the placed ones."""
        for parts, address in self._vectors.items():
            first = _row_in(parts, rows)
            if first is not None:
                return address + 4 * first
        raise KeyError(f"{rows} is in no bias")

    def vector(self, name: str) -> int:
        """Return the address of a vector: the weights of a norm, or the number of a layer."""
        return self._vector([TensorRows(name, 0, self._tensors[name].shape[0])])

    def norm(self, op: RMSNorm) -> int:
        """Return the address of a norm's weights, which are ones if it has none."""
        if op.weight:
            return self.vector(op.weight)
        size = op.x.width // op.num_heads
        if size not in self._ones:
            self._ones[size] = self._arena.put(struct.pack(f"<{size}f", *[1.0] * size))
        return self._ones[size]

    def biases(self, linears: Sequence[Linear]) -> int:
        """Return the address of the biases of linears, one after the other, zeros for linears without; 0 if none has
        any."""
        if all(linear.bias is None for linear in linears):
            return 0
        return self._vector([
            TensorRows(linear.bias, linear.first_row, linear.out.width) if linear.bias else linear.out.width
            for linear in linears
        ])  # fmt: skip

    def _vector(self, parts: Sequence[TensorRows | int]) -> int:
        """Return the address of vectors of tensors, or zeros (an int is their number). They are handled as a matrix of
        one column: the rows keep their order."""
        key = tuple(parts)
        if key not in self._vectors:
            size = sum(part if isinstance(part, int) else part.count for part in parts)
            # Kernels read whole vectors of the rows that fill up the last band.
            data = self._take(size * 4 + 64)
            first = 0
            for part in parts:
                if isinstance(part, int):
                    first += part
                    continue
                self._check_float(part.name)
                info = self._tensors[part.name]
                offset = info.offset + 4 * part.first
                self.jobs.append(RepackJob(offset, 4 * part.count, info.format.ggml_type, data, first, part.count, 1))
                first += part.count
            self._vectors[key] = data
        return self._vectors[key]

    @property
    def nbytes(self) -> int:
        """Return the bytes that the weights take in the kernels' memory."""
        return sum(nbytes for _, nbytes in self.regions)

    def _take(self, nbytes: int) -> int:
        """Return the address of a region of zeros."""
        address = self._arena.take(nbytes)
        self.regions.append((address, self._arena.end - address))
        return address

    def _check_float(self, name: str) -> None:
        form = self._tensors[name].format
        if form.name != "F32":
            raise BackendError(
                "wasm.norm-format",
                "{name} is in {format}; the WASM kernels read norms and biases in F32 only.",
                name=name,
                format=form.name,
            )

    def _repack(self, part: TensorRows, target: int, first: int) -> None:
        info = self._tensors[part.name]
        rows, columns = math.prod(info.shape[:-1]), info.shape[-1]
        row_bytes = info.nbytes // rows
        step = max(GROUP_ROWS, PIECE // row_bytes // GROUP_ROWS * GROUP_ROWS)
        for row in range(0, part.count, step):
            count = min(step, part.count - row)
            offset = info.offset + (part.first + row) * row_bytes
            self.jobs.append(
                RepackJob(offset, count * row_bytes, info.format.ggml_type, target, first + row, count, columns)
            )


def _row_in(parts: Sequence[TensorRows | int], rows: TensorRows) -> int | None:
    """Return the row at which `rows` begin among consecutive parts; None if no part has them."""
    first = 0
    for part in parts:
        count = part if isinstance(part, int) else part.count
        if not isinstance(part, int) and part.name == rows.name:
            before = rows.first - part.first
            if 0 <= before <= count - rows.count:
                return first + before
        first += count
    return None
