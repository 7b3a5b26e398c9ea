"""Where a model's bytes come from. The order of reads is forward only, so that a network stream can serve them."""

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
"""The name of one of several files of a model, as llama.cpp's gguf-split gives it."""


class FileHead(Protocol):
    """The beginning of a file."""

    @property
    def size(self) -> int | None:
        """Size of the whole file in bytes; None while the sender has not said it."""
        ...

    async def prefix(self, n: int) -> bytes:
        """The first n bytes (fewer if the file ends before)."""
        ...


@dataclass(frozen=True)
class Part:
    """One of the files of a model; `start` is where it begins when all follow each other."""

    name: str
    source: FileHead
    start: int


class WeightSource(FileHead, Protocol):
    """Bytes of a model: of one file, or of several that follow each other.

    `prefix` may be called again with a larger n; `read` is called with rising, non-overlapping ranges after it. After
    `rewind` both begin anew. The prefix of several files is that of the first.
    """

    @property
    def parts(self) -> Sequence[Part]:
        """The files, if there are several; of one file it may be empty."""
        ...

    async def read(self, offset: int, nbytes: int) -> bytes | memoryview:
        """Exactly nbytes from offset on. Raises EOFError where the file ends before."""
        ...

    async def rewind(self) -> None:
        """Start again at the first byte. Raises GGUFError where the source cannot be read a second time."""
        ...


class FileSource:
    """A file on disk, mapped into memory."""

    parts: Sequence[Part] = ()

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


class SplitSource:
    """Several files on disk as if they followed each other. No read goes beyond the file that it begins in."""

    def __init__(self, paths: list[Path]) -> None:
        """Raises as FileSource does."""
        self._files = [FileSource(path) for path in paths]
        self._starts = [0, *accumulate(file.size for file in self._files)]
        self.size = self._starts.pop()
        named = zip(paths, self._files, self._starts, strict=True)
        self.parts = tuple(Part(path.name, file, start) for path, file, start in named)

    def view(self, offset: int, nbytes: int) -> memoryview:
        """Exactly nbytes from offset on, without a copy. Raises EOFError where the file ends before."""
        index = bisect_right(self._starts, offset) - 1
        return self._files[index].view(offset - self._starts[index], nbytes)

    async def prefix(self, n: int) -> bytes:
        """Of the first file."""
        return await self._files[0].prefix(n)

    async def read(self, offset: int, nbytes: int) -> memoryview:
        return self.view(offset, nbytes)

    async def rewind(self) -> None:
        """Nothing to do: every byte can be read at any time."""


def open_source(path: Path) -> FileSource | SplitSource:
    """The file, or where its name says that it is one of several, all of them.

    Raises FileNotFoundError with the name of a part that is missing, and as FileSource does.
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
    """The names of all files of a model by that of one; none for the name of a model in one file."""
    named = _PART.fullmatch(name)
    count = int(named["count"]) if named else 0
    if named is None or count < 2 or not 1 <= int(named["number"]) <= count:
        return []
    return [f"{named['stem']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]
