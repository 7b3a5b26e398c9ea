"""Cuts a model file into several, as llama.cpp's gguf-split does: all metadata in the first, some tensors in each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

from py_core.formats.gguf import read_header
from py_core.formats.gguf_writer import EncodedValue, StoredTensor, write_gguf
from py_core.formats.source import FileSource


def split_gguf(path: Path, folder: Path, count: int, stem: str = "model") -> list[Path]:
    """The parts, in order."""
    source = FileSource(path)
    header = asyncio.run(read_header(source))
    names = np.array_split(list(header.tensors), count)
    metadata = {key: EncodedValue(bytes(source.view(a, b - a))) for key, (a, b) in header.spans.items()}
    parts = []
    for number, group in enumerate(names):
        tensors = {}
        for name in map(str, group):
            info = header.tensors[name]
            data = bytes(source.view(info.offset, info.nbytes))
            tensors[name] = StoredTensor(info.shape, info.format, lambda data=data: [data])
        split = {
            "split.no": np.uint16(number),
            "split.count": np.uint16(count),
            "split.tensors.count": np.int32(len(header.tensors)),
        }
        parts.append(folder / f"{stem}-{number + 1:05d}-of-{count:05d}.gguf")
        write_gguf(parts[-1], (metadata if number == 0 else {}) | split, tensors)
    return parts
