"""Where a model's bytes come from. The order of reads is forward only, so that a network stream can serve them."""

from __future__ import annotations

import mmap
import os
import re
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
"""The name of one of several files of a model, as llama.cpp's gguf-split gives it."""


class WeightSource(Protocol):
    """Bytes of a model file.

    `prefix` may be called again with a larger n; `read` is called with rising, non-overlapping ranges after it. After
    `rewind` both begin anew.
    """

    @property
    def size(self) -> int | None:
        """Size of the whole file in bytes; None while the sender has not said it."""
        ...

    async def prefix(self, n: int) -> bytes:
        """The first n bytes (fewer if the file ends before)."""
        ...

    async def read(self, offset: int, nbytes: int) -> bytes | memoryview:
        """Exactly nbytes from offset on. Raises EOFError where the file ends before."""
        ...

    async def rewind(self) -> None:
        """Start again at the first byte. Raises GGUFError where the source cannot be read a second time."""
        ...


class FileSource:
    """A file on disk, mapped into memory."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises OSError as open() does, ValueError when the file is empty."""
        if os.path.getsize(path) == 0:
            raise ValueError(f"The file {os.fspath(path)} is empty. Download it again.")
        with open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.size = len(self._map)

    def view(self, offset: int, nbytes: int) -> memoryview:
        """Exactly nbytes from offset on, without a copy. Raises EOFError where the file ends before."""
        if offset + nbytes > self.size:
            raise EOFError(f"the file ends at byte {self.size}, {offset + nbytes} wanted")
        return memoryview(self._map)[offset : offset + nbytes]

    async def prefix(self, n: int) -> bytes:
        return self._map[:n]

    async def read(self, offset: int, nbytes: int) -> memoryview:
        return self.view(offset, nbytes)

    async def rewind(self) -> None:
        """Nothing to do: every byte can be read at any time."""


@dataclass(frozen=True)
class Part:
    """One of the files of a model; `start` is where it begins when all follow each other."""

    name: str
    source: FileSource
    start: int


class SplitSource:
    """Several files on disk as if they followed each other. No read goes beyond the file that it begins in."""

    def __init__(self, paths: list[Path]) -> None:
        """Raises as FileSource does."""
        parts: list[Part] = []
        self.size = 0
        for path in paths:
            source = FileSource(path)
            parts.append(Part(path.name, source, self.size))
            self.size += source.size
        self.parts = tuple(parts)
        self._starts = [part.start for part in parts]

    def view(self, offset: int, nbytes: int) -> memoryview:
        """Exactly nbytes from offset on, without a copy. Raises EOFError where the file ends before."""
        part = self.parts[bisect_right(self._starts, offset) - 1]
        return part.source.view(offset - part.start, nbytes)

    async def prefix(self, n: int) -> bytes:
        """Of the first file."""
        return await self.parts[0].source.prefix(n)

    async def read(self, offset: int, nbytes: int) -> memoryview:
        return self.view(offset, nbytes)

    async def rewind(self) -> None:
        """Nothing to do: every byte can be read at any time."""


def open_source(path: Path) -> FileSource | SplitSource:
    """The file, or where its name says that it is one of several, all of them.

    Raises FileNotFoundError with the name of a part that is missing, and as FileSource does.
    """
    named = _PART.fullmatch(path.name)
    if named is None or int(named["count"]) < 2:
        return FileSource(path)
    count = int(named["count"])
    paths = [path.with_name(f"{named['stem']}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    for number, part in enumerate(paths, 1):
        if not part.is_file():
            raise FileNotFoundError(
                f"Part {number} of {count} of this model is missing: put {part.name} into the folder {path.parent}."
            )
    return SplitSource(paths)
