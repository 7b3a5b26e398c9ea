"""Where a model's bytes come from. The order of reads is forward only, so that a network stream can serve them."""

from __future__ import annotations

import mmap
import os
from typing import Protocol


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

    async def prefix(self, n: int) -> bytes:
        return self._map[:n]

    async def read(self, offset: int, nbytes: int) -> memoryview:
        if offset + nbytes > self.size:
            raise EOFError(f"the file ends at byte {self.size}, {offset + nbytes} wanted")
        return memoryview(self._map)[offset : offset + nbytes]

    async def rewind(self) -> None:
        """Nothing to do: every byte can be read at any time."""
