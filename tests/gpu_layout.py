"""Matrices in the layout that the GPU kernels read, made by the shader that makes it for the backend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from py_core.backends.webgpu.host import UPLOAD_PIECE, Host
from py_core.backends.webgpu.weights import WeightArena
from py_core.formats.gguf import TensorInfo
from py_core.formats.quantization import FORMATS, nbytes


class MemorySource:
    """A model file that is bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)

    async def prefix(self, n: int) -> bytes:
        return self.data[:n]

    async def read(self, offset: int, nbytes: int) -> bytes:
        return self.data[offset : offset + nbytes]


def to_gpu_layout(
    host: Host, tensors: Sequence[bytes], form: str, columns: int, piece: int = UPLOAD_PIECE
) -> tuple[bytes, bytes]:
    """Quants and scales of matrices joined to one, as the backend makes them: by a WeightArena, in pieces."""
    rows = [len(data) // nbytes(FORMATS[form], (columns,)) for data in tensors]
    infos, offset = {}, 0
    for index, (data, count) in enumerate(zip(tensors, rows, strict=True)):
        infos[str(index)] = TensorInfo(str(index), (count, columns), FORMATS[form], offset, len(data))
        offset += len(data)
    arena = WeightArena(host, infos, piece)
    assert arena.can_join(list(infos))
    (part,) = arena.place(list(infos)).parts
    asyncio.run(arena.upload(MemorySource(b"".join(tensors)), None))
    found = [asyncio.run(host.read(one.buffer, one.offset, one.size)) for one in (part.quants, part.scales)]
    for buffer in {part.quants.buffer, part.scales.buffer}:
        host.destroy_buffer(buffer)
    return found[0], found[1]
