"""Converts blocks from a file's layout to the GPU's (layout.py), by a shader, while weights are loaded.

Bytes of a file go to one staging buffer, a piece at a time. A recorded dispatch takes them from there before the next
piece is written: the queue keeps the order.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from py_core.backends.webgpu.host import Binding, Dispatch, Host, Segment
from py_core.backends.webgpu.shaders import binding_access, compose
from py_core.backends.webgpu.weights.layout import LAYOUTS
from py_core.formats.quantization import BlockFormat

_WORKGROUP = 64
_RUN = struct.Struct("<4I")  # the run of repack.wgsl
_RUN_STRIDE = 256  # a binding's alignment


@dataclass(frozen=True)
class RepackPiece:
    """Blocks of 32 values, `count` from `first` on, of the `blocks` for which `quants` and `scales` have room.

    `first` is a multiple of the layout's unit; so is `count`, except in the last piece of a tensor.
    """

    format: BlockFormat
    file_offset: int
    nbytes: int
    quants: Binding
    scales: Binding
    blocks: int
    first: int
    count: int


def repack_shader(form: BlockFormat) -> str:
    """Return the WGSL that repacks blocks of a format."""
    layout = LAYOUTS[form.name]
    constants = {
        "BLOCK_BYTES": form.block_bytes, "UNIT": layout.unit, "QUANT_WORDS": layout.quant_words,
        "SCALE_HALVES": layout.scale_halves, "HIGH_WORDS": layout.high_words, "WORKGROUP": _WORKGROUP,
    }  # fmt: skip
    return compose("repack", constants, {"repack": layout.repack})


class Repacking:
    """The GPU's buffers and kernels for repacking, until `release`. The caller uploads `segments`."""

    def __init__(self, host: Host, pieces: Sequence[RepackPiece]) -> None:
        self._host = host
        self._pipelines: dict[str, int] = {}
        self._buffers: list[int] = []
        self.segments: list[Segment] = []
        if not pieces:
            return
        staging = self._buffer(max(piece.nbytes for piece in pieces), "bytes of the file")
        runs = self._buffer(_RUN_STRIDE * len(pieces), "runs of blocks")
        host.write(runs.buffer, 0, b"".join(_run(piece).ljust(_RUN_STRIDE, b"\0") for piece in pieces))
        for index, piece in enumerate(pieces):
            run = Binding(runs.buffer, index * _RUN_STRIDE, _RUN.size)
            recorded = host.record([self._dispatch(piece, run, staging)])
            self.segments.append(Segment(piece.file_offset, piece.nbytes, staging.buffer, 0, recorded))

    def release(self) -> None:
        for segment in self.segments:
            self._host.forget(segment.then)
        for buffer in self._buffers:
            self._host.destroy_buffer(buffer)

    def _dispatch(self, piece: RepackPiece, run: Binding, staging: Binding) -> Dispatch:
        # A piece of at most 4 MiB is about 3,600 workgroups: they need no second dimension.
        groups = -(-piece.count // LAYOUTS[piece.format.name].unit // _WORKGROUP)
        return Dispatch(self._pipeline(piece.format), (run, staging, piece.quants, piece.scales), (groups, 1, 1))

    def _pipeline(self, form: BlockFormat) -> int:
        if form.name not in self._pipelines:
            wgsl = repack_shader(form)
            self._pipelines[form.name] = self._host.pipeline(wgsl, binding_access(wgsl), f"repack {form.name}")
        return self._pipelines[form.name]

    def _buffer(self, size: int, label: str) -> Binding:
        size = -(-size // 4) * 4
        self._buffers.append(self._host.create_buffer(size, label))
        return Binding(self._buffers[-1], 0, size)


def _run(piece: RepackPiece) -> bytes:
    supers, highs, _ = LAYOUTS[piece.format.name].sections(piece.blocks)
    return _RUN.pack(piece.first, piece.count, supers, highs)
