"""The place of each weight on the GPU: a few large buffers, filled from the file without passing through Python.

Weights that one kernel reads together (q, k, v; gate, up) are placed one after the other, so that they are one matrix.
A matrix larger than one binding is cut into parts by rows. layout.py describes a part, repacking.py how it is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from py_core.backend_errors import BackendError
from py_core.backends.protocols import Progress
from py_core.backends.webgpu.host import UPLOAD_PIECE, WEIGHTS, Binding, Host, Segment
from py_core.backends.webgpu.weights.layout import BLOCK, LAYOUTS, blocks_of
from py_core.backends.webgpu.weights.repacking import Repacking, RepackPiece
from py_core.formats.gguf import TensorInfo
from py_core.formats.quantization import BlockFormat
from py_core.formats.source import WeightSource

_ALIGNMENT = 256
_ARENA = 512 << 20


@dataclass(frozen=True)
class MatrixPart:
    """Rows first_row .. first_row + rows of a matrix: `blocks` blocks of 32 values.

    A format without scales has its quants in their place, since a kernel binds both.
    """

    quants: Binding
    scales: Binding
    blocks: int
    first_row: int
    rows: int


@dataclass(frozen=True)
class WeightMatrix:
    """Weights of one format, (rows, columns), in as many parts as bindings need."""

    format: BlockFormat
    rows: int
    columns: int
    parts: tuple[MatrixPart, ...]


class WeightArena:
    """Gives weights their places; `upload` fills them, `piece` bytes of a file at a time."""

    def __init__(self, host: Host, tensors: Mapping[str, TensorInfo], piece: int = UPLOAD_PIECE) -> None:
        self._host, self._tensors, self._piece = host, tensors, piece
        self._buffer, self._used, self._size = 0, 0, 0
        self._left = sum(_aligned(size) for info in tensors.values() for size in _sizes(info.format, _padded(info)))
        self._placed: dict[tuple[str, ...], WeightMatrix] = {}
        self._segments: list[Segment] = []
        self._pieces: list[RepackPiece] = []

    async def upload(self, source: WeightSource, progress: Progress | None) -> None:
        """Bring all placed weights from the file. Raises as Host.upload does."""
        repacking = Repacking(self._host, self._pieces)
        try:
            await self._host.upload(source, [*self._segments, *repacking.segments], progress)
        finally:
            repacking.release()

    def place(self, names: Sequence[str], whole: bool = False) -> WeightMatrix:
        """Place the named tensors, all of one format and width, as one matrix.

        `whole` asks for one part. Raises BackendError if the GPU cannot bind it.
        """
        key = tuple(names)
        if key not in self._placed:
            self._placed[key] = self._place([self._tensors[name] for name in names], whole)
        if whole and len(self._placed[key].parts) > 1:
            raise self._too_large(names[0])
        return self._placed[key]

    def find(self, name: str) -> tuple[WeightMatrix, int]:
        """Return the placed matrix that has a tensor's rows, and the number of the tensor's first row there."""
        key = next(key for key in self._placed if name in key)
        before = key[: key.index(name)]
        return self._placed[key], sum(self._tensors[other].shape[0] for other in before)

    def place_vectors(self, pieces: Sequence[tuple[str | None, int, int]]) -> Binding:
        """Place values of norms and biases one after the other, as float32: `count` values of a tensor from `first` on,
        or `count` zeros.

        Raises BackendError for a tensor in another format.
        """
        found = self._take(-(-sum(count for _, _, count in pieces) // 4) * 16)  # kernels read whole vec4f
        at = found.offset
        for name, first, count in pieces:
            if name is not None:
                info = self._tensors[name]
                if info.format.name != "F32":
                    raise BackendError(
                        "gpu.norm-format",
                        "{name} is in {format}; the GPU kernels read norms and biases in F32 only.",
                        name=name,
                        format=info.format.name,
                    )
                self._segments.append(Segment(info.offset + 4 * first, 4 * count, found.buffer, at))
            at += 4 * count
        return found

    def is_quantized(self, name: str) -> bool:
        """True if a tensor's values are codes times scales."""
        return LAYOUTS[self._tensors[name].format.name].quantized

    def can_join(self, names: Sequence[str]) -> bool:
        """True if tensors may be one matrix: they have one format, and no word of the scales would belong to two of
        them."""
        infos = [self._tensors[name] for name in names]
        unit = LAYOUTS[infos[0].format.name].unit
        whole = all(math.prod(info.shape) // BLOCK % unit == 0 for info in infos[:-1])
        return len({info.format.name for info in infos}) == 1 and whole

    def _place(self, infos: list[TensorInfo], whole: bool) -> WeightMatrix:
        form, columns = infos[0].format, infos[0].shape[-1]
        if columns % 4:
            raise BackendError(
                "gpu.columns",
                "{name} is {columns} wide; the GPU kernels read multiples of 4 only.",
                name=infos[0].name,
                columns=columns,
            )
        rows = sum(math.prod(info.shape) for info in infos) // columns
        padded = blocks_of(columns) * BLOCK
        limit = self._host.adapter.max_binding_size
        step = min(rows, limit // _sizes(form, padded)[0])
        if step < rows and (whole or len(infos) > 1 or step == 0):
            raise self._too_large(infos[0].name)
        parts = [self._part(form, padded, first, min(step, rows - first)) for first in range(0, rows, step)]
        done = 0
        for info in infos:  # several only if there is one part
            height = math.prod(info.shape) // columns
            for part in parts:
                start, count = info.offset + _file_bytes(form, part.first_row * columns), min(height, part.rows)
                if padded == columns:
                    self._fill(form, start, part, done * columns, count * columns)
                    continue
                for row in range(count):  # the gaps between rows stay zero
                    self._fill(form, start + _file_bytes(form, row * columns), part, (done + row) * padded, columns)
            done += height
        return WeightMatrix(form, rows, columns, tuple(parts))

    def _too_large(self, name: str) -> BackendError:
        return BackendError(
            "gpu.tensor-too-large",
            "{name} is larger than this GPU can bind ({most} MiB).",
            name=name,
            most=self._host.adapter.max_binding_size >> 20,
        )

    def _part(self, form: BlockFormat, columns: int, first_row: int, rows: int) -> MatrixPart:
        quant_bytes, scale_bytes = _sizes(form, rows * columns)
        quants = self._take(quant_bytes)
        scales = self._take(scale_bytes) if scale_bytes else quants
        return MatrixPart(quants, scales, rows * columns // BLOCK, first_row, rows)

    def _fill(self, form: BlockFormat, file_offset: int, part: MatrixPart, first: int, values: int) -> None:
        """Fill a part from `first` on with values from the file."""
        layout = LAYOUTS[form.name]
        if not layout.repack:
            offset = part.quants.offset + _file_bytes(form, first)
            self._segments.append(Segment(file_offset, _file_bytes(form, values), part.quants.buffer, offset))
            return
        unit = layout.unit * BLOCK
        step = self._piece // _file_bytes(form, unit) * unit
        for at in range(0, values, step):
            count = min(step, values - at)
            start = file_offset + _file_bytes(form, at)
            run = ((first + at) // BLOCK, count // BLOCK)
            self._pieces.append(
                RepackPiece(form, start, _file_bytes(form, count), part.quants, part.scales, part.blocks, *run)
            )

    def _take(self, nbytes: int) -> Binding:
        """Return room for nbytes at an aligned offset of the current buffer, or of a new one."""
        start = _aligned(self._used)
        if not self._buffer or start + nbytes > self._size:
            most = min(self._host.adapter.max_buffer_size, _ARENA)
            self._size = max(nbytes, min(self._left, most // 4 * 4))
            self._buffer = self._host.create_buffer(self._size, WEIGHTS)
            start = 0
        self._used = start + nbytes
        self._left -= _aligned(nbytes)
        return Binding(self._buffer, start, nbytes)


def _sizes(form: BlockFormat, values: int) -> tuple[int, int]:
    """Return the bytes of the quants and of the scales of `values` values, whole words."""
    layout = LAYOUTS[form.name]
    return -(-values * layout.quant_words // BLOCK) * 4, layout.sections(values // BLOCK)[2] * 4


def _padded(info: TensorInfo) -> int:
    """Return the number of a tensor's values, including the zeros that fill up its rows."""
    columns = info.shape[-1]
    return math.prod(info.shape) // columns * blocks_of(columns) * BLOCK


def _file_bytes(form: BlockFormat, values: int) -> int:
    return values // form.block_size * form.block_bytes


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
