"""Matrices in the layout that the GPU kernels read, made by the shader that makes it for the backend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from py_core.backends.webgpu.host import UPLOAD_PIECE, Host
from py_core.backends.webgpu.weights.arena import MatrixPart, WeightArena
from py_core.formats.gguf import TensorInfo
from py_core.formats.quantization import FORMATS, nbytes


class MemorySource:
    """A model file that is bytes in memory."""

    parts = ()

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)

    async def prefix(self, n: int) -> bytes:
        return self.data[:n]

    async def read(self, offset: int, nbytes: int) -> bytes:
        if offset + nbytes > self.size:
            raise EOFError(f"the file ends at byte {self.size}, {offset + nbytes} wanted")
        return self.data[offset : offset + nbytes]


def describe_tensors(tensors: Sequence[bytes], form: str, columns: int) -> dict[str, TensorInfo]:
    """Tensors "0", "1" ... that follow each other in a file, each with one row per item of its bytes."""
    infos, offset = {}, 0
    for index, data in enumerate(tensors):
        rows = len(data) // nbytes(FORMATS[form], (columns,))
        infos[str(index)] = TensorInfo(str(index), (rows, columns), FORMATS[form], offset, len(data))
        offset += len(data)
    return infos


def gpu_parts(
    host: Host, tensors: Sequence[bytes], form: str, columns: int, piece: int = UPLOAD_PIECE
) -> list[tuple[MatrixPart, bytes, bytes]]:
    """The parts of matrices joined to one, with their quants and scales: placed and uploaded as the backend does it."""
    infos = describe_tensors(tensors, form, columns)
    arena = WeightArena(host, infos, piece)
    assert arena.can_join(list(infos))
    parts = arena.place(list(infos)).parts
    asyncio.run(arena.upload(MemorySource(b"".join(tensors)), None))
    found = []
    for part in parts:
        quants, scales = (
            asyncio.run(host.read(one.buffer, one.offset, one.size)) for one in (part.quants, part.scales)
        )
        found.append((part, quants, scales))
    for buffer in {one.buffer for part in parts for one in (part.quants, part.scales)}:
        host.destroy_buffer(buffer)
    return found


def to_gpu_layout(host: Host, data: bytes, form: str, columns: int) -> tuple[bytes, bytes]:
    """Quants and scales of a matrix."""
    ((_, quants, scales),) = gpu_parts(host, [data], form, columns)
    return quants, scales
