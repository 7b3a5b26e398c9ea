"""Where each weight lies on the GPU: a few large buffers, filled from the file without passing through Python.

Weights that one kernel reads together (q, k, v; gate, up) are placed one after the other, so that they are one matrix.
A matrix larger than one binding is cut into parts by rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from py_core.backends.base import BackendError
from py_core.backends.webgpu.host import Binding, Host, Segment
from py_core.formats.gguf import TensorInfo
from py_core.formats.quantization import BlockFormat

_ALIGNMENT = 256
_ARENA = 512 << 20


@dataclass(frozen=True)
class MatrixPart:
    """Rows first_row .. first_row + rows of a matrix."""

    binding: Binding
    first_row: int
    rows: int


@dataclass(frozen=True)
class Matrix:
    """Weights of one format, (rows, columns), in as many parts as bindings need."""

    format: BlockFormat
    rows: int
    columns: int
    parts: tuple[MatrixPart, ...]


class WeightArena:
    """Gives weights their places; `segments` says what to upload where."""

    def __init__(self, host: Host, tensors: Mapping[str, TensorInfo]) -> None:
        self._host, self._tensors = host, tensors
        self._buffer, self._used, self._size = 0, 0, 0
        self._left = sum(_padded(info.nbytes) + _ALIGNMENT for info in tensors.values())
        self._placed: dict[tuple[str, ...], Matrix] = {}
        self.segments: list[Segment] = []

    def place(self, names: Sequence[str], whole: bool = False) -> Matrix:
        """The named tensors, all of one format and width, as one matrix. A 1-D tensor is a single row.

        `whole` asks for one part. Raises BackendError when the GPU cannot bind it.
        """
        key = tuple(names)
        if key not in self._placed:
            self._placed[key] = self._place([self._tensors[name] for name in names], whole)
        return self._placed[key]

    def can_join(self, names: Sequence[str]) -> bool:
        """Whether tensors may be one matrix: of one format, each beginning at a word."""
        infos = [self._tensors[name] for name in names]
        return len({info.format.name for info in infos}) == 1 and all(info.nbytes % 4 == 0 for info in infos)

    def _place(self, infos: list[TensorInfo], whole: bool) -> Matrix:
        form, columns = infos[0].format, infos[0].shape[-1]
        if columns % 32 and len(infos[0].shape) > 1:
            raise BackendError(f"{infos[0].name} is {columns} wide; the GPU kernels read multiples of 32 only.")
        row_bytes = infos[0].nbytes // (infos[0].shape[0] if len(infos[0].shape) > 1 else 1)
        rows = sum(info.nbytes for info in infos) // row_bytes
        total = rows * row_bytes
        limit = self._host.adapter.max_binding_size
        if _padded(total) <= limit:
            offset = self._take(total)
            for info in infos:
                self._fill(info.offset, info.nbytes, offset)
                offset += info.nbytes
            start = offset - total
            return Matrix(form, rows, columns, (MatrixPart(Binding(self._buffer, start, _padded(total)), 0, rows),))
        if whole or len(infos) > 1:
            raise BackendError(f"{infos[0].name} is larger than this GPU can bind ({limit >> 20} MiB).")
        parts = []
        # A part's bytes are a multiple of 4 whatever the format: rows go in fours.
        step = limit // row_bytes // 4 * 4
        for first in range(0, rows, step):
            count = min(step, rows - first)
            offset = self._take(count * row_bytes)
            self._fill(infos[0].offset + first * row_bytes, count * row_bytes, offset)
            parts.append(MatrixPart(Binding(self._buffer, offset, _padded(count * row_bytes)), first, count))
        return Matrix(form, rows, columns, tuple(parts))

    def _take(self, nbytes: int) -> int:
        """Room for nbytes at an aligned offset of the current buffer, or of a new one."""
        start = -(-self._used // _ALIGNMENT) * _ALIGNMENT
        if not self._buffer or start + _padded(nbytes) > self._size:
            most = min(self._host.adapter.max_buffer_size, _ARENA)
            self._size = max(_padded(nbytes), min(self._left, most // 4 * 4))
            self._buffer = self._host.create_buffer(self._size, "weights")
            start = 0
        self._used = start + _padded(nbytes)
        self._left -= _padded(nbytes)
        return start

    def _fill(self, file_offset: int, nbytes: int, offset: int) -> None:
        self.segments.append(Segment(file_offset, nbytes, self._buffer, offset))


def _padded(nbytes: int) -> int:
    return -(-nbytes // 4) * 4
