"""Finds a member inside a zip file on a server without fetching the rest of the file."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, cast

ReadRange = Callable[[int, int], bytes]
"""read_range(start, stop) -> the bytes [start, stop)"""

_AHEAD = 65_536


@dataclass(frozen=True)
class Span:
    """Bytes [start, start + length) of the zip hold the member, deflated or stored."""

    start: int
    length: int
    deflated: bool
    size: int
    """The member's unpacked bytes, according to the zip's directory."""


class _RangeFile(io.RawIOBase):
    """The part of the file interface that zipfile needs to read the directory at the end, a range at a time."""

    def __init__(self, size: int, read_range: ReadRange) -> None:
        self._size = size
        self._read_range = read_range
        self._position = 0
        self._block_start = 0
        self._block = b""

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        start = self._position
        stop = self._size if size < 0 else min(start + size, self._size)
        if start >= stop:
            return b""
        if start < self._block_start or stop > self._block_start + len(self._block):
            # zipfile reads the directory in small steps from its end: one block before and after serves most of them
            self._block_start = max(0, min(start, stop - _AHEAD))
            self._block = self._read_range(self._block_start, min(self._size, max(stop, start + _AHEAD)))
        self._position = stop
        return self._block[start - self._block_start : stop - self._block_start]


def find_member(size: int, read_range: ReadRange, member: str) -> Span:
    """Find `member` in a zip of `size` bytes. Raises KeyError if it is missing, BadZipFile if the file is not a zip."""
    file = _RangeFile(size, read_range)
    with zipfile.ZipFile(cast(BinaryIO, file)) as archive:
        info = archive.getinfo(member)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile(f"{member} is compressed in a way that is not supported")
    # The local header repeats the name and may have an "extra" field whose length differs from the directory's.
    local = read_range(info.header_offset, info.header_offset + 30)
    if len(local) != 30 or local[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"the header of {member} is damaged")
    name_length, extra_length = struct.unpack("<HH", local[26:30])
    start = info.header_offset + 30 + name_length + extra_length
    return Span(start, info.compress_size, info.compress_type == zipfile.ZIP_DEFLATED, info.file_size)
