"""`sonata quantize`: a GGUF file with its matrices in smaller formats, tensor by tensor."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from py_core.formats.format_choice import FILE_TYPES, choose_formats
from py_core.formats.gguf import GGUFHeader, TensorInfo, read_header
from py_core.formats.gguf_writer import EncodedValue, StoredTensor, write_gguf
from py_core.formats.quantization import BlockFormat, dequantize, nbytes, quantize
from py_core.formats.source import FileSource, SplitSource, open_source

Progress = Callable[[int, int], None]
"""Called with the number of finished weights and of all weights."""

_SLAB = 1 << 19
"""Weights that a thread works on at a time: it needs some 15 MB for them."""
_LAYOUT_KEYS = ("general.file_type", "general.quantization_version", "general.alignment")


@dataclass(frozen=True)
class Quantized:
    """The number of tensors and bytes of each written format, and those that had been quantized already."""

    formats: dict[str, tuple[int, int]]
    again: list[str]


def quantize_file(path: Path, out: Path, mixture: str, progress: Progress) -> Quantized:
    """Write `out` with the formats that `mixture` gives each tensor.

    Raises GGUFError and UnsupportedFormatError for a file that cannot be read, FileExistsError if `out` exists already,
    and OSError and ValueError with a sentence if it cannot be written.
    """
    refuse_existing(out)
    source = open_source(path)
    header = asyncio.run(read_header(source))
    formats = choose_formats(header.tensors, mixture)
    total, done = sum(math.prod(info.shape) for info in header.tensors.values()), 0

    def count(weights: int) -> None:
        nonlocal done
        done += weights
        progress(done, total)

    with ThreadPoolExecutor() as threads:
        tensors = {
            name: StoredTensor(info.shape, formats[name], partial(_pieces, threads, source, info, formats[name], count))
            for name, info in header.tensors.items()
        }
        write_model(out, quantized_metadata(source, header, mixture), tensors)
    made: dict[str, tuple[int, int]] = {}
    for tensor in tensors.values():
        number, size = made.get(tensor.format.name, (0, 0))
        made[tensor.format.name] = (number + 1, size + tensor.nbytes)
    before = {info.format.name for name, info in header.tensors.items() if info.format != formats[name]}
    return Quantized(made, sorted(before - {"F32", "F16", "BF16"}))


def quantized_metadata(source: FileSource | SplitSource, header: GGUFHeader, mixture: str) -> dict[str, Any]:
    """The file's own metadata, byte for byte, except the keys about how its tensors are stored."""
    kept: dict[str, Any] = {
        key: EncodedValue(bytes(source.view(start, end - start)))
        for key, (start, end) in header.spans.items()
        if key not in _LAYOUT_KEYS and not key.startswith("split.")
    }
    return kept | {"general.file_type": FILE_TYPES[mixture], "general.quantization_version": 2}


def refuse_existing(out: Path) -> None:
    """Raises FileExistsError if a file exists, NotADirectoryError if its folder does not."""
    if out.exists():
        raise FileExistsError(f"There is already a file {out}: choose another name, or delete it first.")
    if not out.parent.is_dir():
        raise NotADirectoryError(f"There is no folder {out.parent} to write {out.name} to.")


def write_model(out: Path, metadata: dict[str, Any], tensors: dict[str, StoredTensor]) -> None:
    """Write a model file under another name, and give it its own when it is complete.

    Raises OSError with a sentence if the disk has too little room or cannot be written; nothing is left then.
    """
    needed, free = sum(tensor.nbytes for tensor in tensors.values()), shutil.disk_usage(out.parent).free
    if needed > free:
        raise OSError(
            f"{out} takes {needed / 1e9:.2f} GB, and the disk has {free / 1e9:.2f} GB left: make room, or write it to "
            "another disk."
        )
    unfinished = out.with_name(out.name + ".part")
    try:
        write_gguf(unfinished, metadata, tensors)
        os.replace(unfinished, out)
    except OSError as error:
        raise OSError(f"{out} could not be written ({error.strerror}), and nothing of it is left.") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _pieces(
    threads: ThreadPoolExecutor, source: FileSource | SplitSource, info: TensorInfo, form: BlockFormat,
    count: Callable[[int], None],
) -> Iterator[bytes]:  # fmt: skip
    """A tensor in its new format, some rows at a time."""
    columns = info.shape[-1]
    rows = math.prod(info.shape) // columns
    step = max(1, _SLAB // columns)
    row_bytes = nbytes(info.format, (columns,))

    def convert(first: int) -> bytes:
        last = min(rows, first + step)
        data = source.view(info.offset + first * row_bytes, (last - first) * row_bytes)
        if form == info.format:
            return bytes(data)
        try:
            return quantize(dequantize(data, info.format, (last - first, columns)), form)
        except ValueError as error:
            raise ValueError(f"{info.name} cannot be stored in {form.name}: {error}.") from error

    for piece in _in_order(threads, [partial(convert, first) for first in range(0, rows, step)]):
        yield piece
        count(len(piece) // form.block_bytes * form.block_size)


def _in_order(threads: ThreadPoolExecutor, jobs: Iterable[Callable[[], bytes]]) -> Iterator[bytes]:
    """The results of jobs, in order; only as many run ahead as there are threads, so that results do not pile up."""
    ahead = (os.cpu_count() or 1) + 1
    running: deque[Future[bytes]] = deque()
    for job in jobs:
        running.append(threads.submit(job))
        if len(running) >= ahead:
            yield running.popleft().result()
    while running:
        yield running.popleft().result()
