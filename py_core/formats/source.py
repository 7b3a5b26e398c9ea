"""Sources of a model's bytes. Reads go forward only, so that a network stream can serve them."""

from __future__ import annotations

import mmap
import os
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Protocol

_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
"""The file name of a part of a model, in the pattern of llama.cpp's gguf-split."""


class FileHead(Protocol):
    """The beginning of a file."""

    @property
    def size(self) -> int | None:
        """Size of the whole file in bytes; None until the sender announces it."""
        ...

    async def prefix(self, n: int) -> bytes:
        """The first n bytes (fewer if the file ends before)."""
        ...


@dataclass(frozen=True)
class FilePart:
    """One of the files of a model; `start` is its offset in their concatenation."""

    name: str
    source: FileHead
    start: int


class WeightSource(FileHead, Protocol):
    """The bytes of a model: of one file, or of several files, concatenated.

    `prefix` may be called again with a larger n. Later, `read` is called with ascending ranges that do not overlap.
    After `rewind` both start again. The prefix of several files is that of the first.
    """

    @property
    def parts(self) -> Sequence[FilePart]:
        """The files, if there are several; for one file it may be empty."""
        ...

    async def read(self, offset: int, nbytes: int) -> bytes | memoryview:
        """Exactly nbytes from offset on. Raises EOFError if the file ends before."""
        ...

    async def rewind(self) -> None:
        """Start again at the first byte. Raises GGUFError if the source cannot be read a second time."""
        ...


class FileSource:
    """A file on disk, mapped into memory."""

    parts: Sequence[FilePart] = ()

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises OSError as open() does, ValueError if the file is empty."""
        if os.path.getsize(path) == 0:
            raise ValueError(f"The file {os.fspath(path)} is empty. Download it again.")
        with open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.size = len(self._map)

    def view(self, offset: int, nbytes: int) -> memoryview:
        """Exactly nbytes from offset on, without a copy. Raises EOFError if the file ends before."""
        if offset + nbytes > self.size:
            raise EOFError(f"the file ends at byte {self.size}, {offset + nbytes} wanted")
        return memoryview(self._map)[offset : offset + nbytes]

    async def prefix(self, n: int) -> bytes:
        return self._map[:n]

    async def read(self, offset: int, nbytes: int) -> memoryview:
        return self.view(offset, nbytes)

    async def rewind(self) -> None:
        """Nothing to do: every byte can be read at any time."""


class BytesSource:
    """A file in memory."""

    parts: Sequence[FilePart] = ()

    def __init__(self, data: bytes) -> None:
        """Raises ValueError if there is none."""
        if not data:
            raise ValueError("The file is empty. Download it again.")
        self._data, self.size = data, len(data)

    async def prefix(self, n: int) -> bytes:
        return self._data[:n]

    async def read(self, offset: int, nbytes: int) -> memoryview:
        if offset + nbytes > self.size:
            raise EOFError(f"the file ends at byte {self.size}, {offset + nbytes} wanted")
        return memoryview(self._data)[offset : offset + nbytes]

    async def rewind(self) -> None:
        """Nothing to do: every byte can be read at any time."""


class SplitSource:
    """Several files on disk, as if concatenated. No read crosses the end of the file that it begins in."""

    def __init__(self, paths: list[Path]) -> None:
        """Raises as FileSource does."""
        self._files = [FileSource(path) for path in paths]
        self._starts = [0, *accumulate(file.size for file in self._files)]
        self.size = self._starts.pop()
        named = zip(paths, self._files, self._starts, strict=True)
        self.parts = tuple(FilePart(path.name, file, start) for path, file, start in named)

    def view(self, offset: int, nbytes: int) -> memoryview:
        """Exactly nbytes from offset on, without a copy. Raises EOFError if the file ends before."""
        index = bisect_right(self._starts, offset) - 1
        return self._files[index].view(offset - self._starts[index], nbytes)

    async def prefix(self, n: int) -> bytes:
        """The prefix of the first file."""
        return await self._files[0].prefix(n)

    async def read(self, offset: int, nbytes: int) -> memoryview:
        return self.view(offset, nbytes)

    async def rewind(self) -> None:
        """Nothing to do: every byte can be read at any time."""


def open_source(path: Path) -> FileSource | SplitSource:
    """The file, or all parts if its name says that it is one of several.

    Raises FileNotFoundError with the name of a missing part, and as FileSource does.
    """
    paths = [path.with_name(name) for name in parts_of(path.name)]
    if not paths:
        return FileSource(path)
    for number, part in enumerate(paths, 1):
        if not part.is_file():
            missing = f"Part {number} of {len(paths)} of this model is missing"
            raise FileNotFoundError(f"{missing}: put {part.name} into the folder {path.parent}.")
    return SplitSource(paths)


def parts_of(name: str) -> list[str]:
    """The names of all files of a model, from the name of one; empty for a model in one file."""
    named = _PART.fullmatch(name)
    count = int(named["count"]) if named else 0
    if named is None or count < 2 or not 1 <= int(named["number"]) <= count:
        return []
    return [f"{named['stem']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]
