"""Reads GGUF, versions 2 and 3, little-endian.

Notable here:
- only the header is parsed; tensor data goes from the source to the device without passing through Python
- the header can be parsed from a growing prefix of the file, while the rest is still on the network
- every field is checked before it is trusted: the file may be truncated, damaged or hostile

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from py_core.display import shown
from py_core.formats.gguf_types import (
    ARRAY,
    BOOL,
    DTYPES,
    MAGIC,
    SCALARS,
    STRING,
    U32,
    U64,
    GGUFError,
    alignment_of,
)
from py_core.formats.gguf_writer import write_gguf
from py_core.formats.quantization import BlockFormat, format_for_type, nbytes
from py_core.formats.source import FileHead, WeightSource
from py_core.limits import MAX_HEADER_BYTES, MAX_KEYS, MAX_STRINGS, MAX_TENSORS
from py_core.messages import Message, Words

__all__ = ["GGUFError", "GGUFHeader", "NeedMoreData", "TensorInfo", "parse_header", "read_header", "write_gguf"]

FIRST_PREFIX_BYTES = 2 << 20
MAX_DIMS = 4
MIN_KEY_VALUE_BYTES = 8 + 4 + 1
MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8

_KEY = Message("gguf.key", "a metadata key")
_INDEX = Message("gguf.index", "the index of tensors")
_NAME = Message("gguf.tensor-name", "a tensor's name")
_FILE = Message("gguf.file", "a model file")
_LISTS = Message("gguf.lists", "all lists together")


class NeedMoreData(GGUFError):
    """The header is longer than the given prefix. `needed` is a lower bound of its size in bytes."""

    def __init__(self, needed: int) -> None:
        super().__init__(
            "gguf.needs-more",
            "the header of the GGUF file is longer: at least its first {count} bytes are needed",
            count=needed,
        )
        self.needed = needed


@dataclass(frozen=True)
class TensorInfo:
    """The place of a tensor. `shape` is in numpy's order, outermost first: a matrix is (rows, columns).

    `offset` counts bytes from the start of the file.
    """

    name: str
    shape: tuple[int, ...]
    format: BlockFormat
    offset: int
    nbytes: int


@dataclass(frozen=True)
class GGUFHeader:
    """Everything in the file except the tensors' data.

    `metadata` holds Python values; an array is a list of strings or a read-only numpy array of numbers. `tensors` is in
    the order of the file's index. `data_offset` and `end_offset` count from the start of the file; `end_offset` is the
    end of the last tensor, so a whole file has at least that many bytes. For a model in several files, all offsets
    count as if the files were concatenated, and `tensors` includes those of every file. `spans` are the start and end
    offsets of a metadata value including its type.
    """

    version: int
    alignment: int
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]
    data_offset: int
    end_offset: int
    spans: dict[str, tuple[int, int]]


class _Cursor:
    """A cursor over the prefix. It distinguishes bytes that have not arrived yet from bytes that cannot exist."""

    def __init__(self, data: bytes, file_size: int | None) -> None:
        self.data = data
        self.pos = 0
        self.file_size = file_size
        self.strings_left = MAX_STRINGS

    def require(self, end: int, what: Words) -> None:
        """Raise unless the prefix reaches `end`: NeedMoreData if the file may still reach it, else GGUFError."""
        if end <= len(self.data):
            return
        if self.file_size is not None and end > self.file_size:
            raise GGUFError(
                "gguf.truncated-or-damaged",
                "The GGUF file is truncated or damaged: {what} would end at byte {end} or later, but the file has "
                "{size} bytes. Download it again.",
                what=what,
                end=end,
                size=self.file_size,
            )
        if end > MAX_HEADER_BYTES:
            raise GGUFError(
                "gguf.long-header",
                "The GGUF file is damaged: {what} would make its header larger than {most} MiB. Download it again.",
                what=what,
                most=MAX_HEADER_BYTES >> 20,
            )
        raise NeedMoreData(end)

    def number(self, layout: struct.Struct, what: Words) -> Any:
        end = self.pos + layout.size
        if end > len(self.data):
            self.require(end, what)
        (value,) = layout.unpack_from(self.data, self.pos)
        self.pos = end
        return value

    def string(self, what: Words) -> str:
        length = self.number(U64, what)
        start, end = self.pos, self.pos + length
        if end > len(self.data):
            self.require(end, what)
        self.pos = end
        try:
            return self.data[start:end].decode()
        except UnicodeDecodeError:
            raise GGUFError(
                "gguf.no-utf8", "The GGUF file is damaged: {what} is not UTF-8. Download it again.", what=what
            ) from None

    def strings(self, count: int, what: Words) -> list[str]:
        """Read `count` strings. This is the parser's hot loop: a vocabulary has 50,000 to 260,000."""
        self.strings_left -= count
        if count > MAX_STRINGS or self.strings_left < 0:
            raise _too_many(
                Message("gguf.strings", "{count} strings in {what}", count=count, what=what), MAX_STRINGS, _LISTS
            )
        self.require(self.pos + count * 8, what)
        data, pos, size, length_at = self.data, self.pos, len(self.data), U64.unpack_from
        out: list[str] = []
        append = out.append
        try:
            for index in range(count):
                if pos + 8 > size:
                    self.require(pos + (count - index) * 8, what)
                start = pos + 8
                pos = start + length_at(data, pos)[0]
                if pos > size:
                    self.require(pos + (count - index - 1) * 8, what)
                append(data[start:pos].decode())
        except UnicodeDecodeError:
            raise GGUFError(
                "gguf.element-no-utf8",
                "The GGUF file is damaged: element {number} of {what} is not UTF-8. Download it again.",
                number=len(out),
                what=what,
            ) from None
        self.pos = pos
        return out

    def value(self, value_type: int, what: Words) -> Any:
        if value_type == STRING:
            return self.string(what)
        if value_type == ARRAY:
            return self.array(what)
        layout = SCALARS.get(value_type)
        if layout is None:
            raise GGUFError(
                "gguf.unknown-type",
                "The GGUF file is damaged: {what} has the unknown type {type}. Download it again.",
                what=what,
                type=value_type,
            )
        value = self.number(layout, what)
        if value_type == BOOL:
            if value > 1:
                raise GGUFError(
                    "gguf.bad-bool",
                    "The GGUF file is damaged: {what} is a bool with the value {value}. Download it again.",
                    what=what,
                    value=value,
                )
            return bool(value)
        return value

    def array(self, what: Words) -> Any:
        element_type = self.number(U32, what)
        count = self.number(U64, what)
        if element_type == STRING:
            return self.strings(count, what)
        if element_type == ARRAY:
            raise GGUFError(
                "gguf.nested-lists",
                "{what} is a list of lists, which no model file needs. Choose another file of this model.",
                what=what,
            )
        code = DTYPES.get(element_type)
        if code is None:
            raise GGUFError(
                "gguf.unknown-type",
                "The GGUF file is damaged: {what} has the unknown type {type}. Download it again.",
                what=what,
                type=element_type,
            )
        dtype = np.dtype(code)
        end = self.pos + count * dtype.itemsize
        self.require(end, what)
        values = np.frombuffer(self.data[self.pos : end], dtype)
        self.pos = end
        if element_type == BOOL:
            if values.size and values.max() > 1:
                raise GGUFError(
                    "gguf.bools", "The GGUF file is damaged: {what} has a bool above 1. Download it again.", what=what
                )
            return values.astype(np.bool_)
        return values


def parse_header(prefix: bytes | bytearray | memoryview, file_size: int | None = None) -> GGUFHeader:
    """Parse the header out of the first bytes of a file.

    `file_size` is the whole file's size in bytes if known; then counts and tensors are checked against it.
    Raises NeedMoreData if the prefix ends inside the header, GGUFError if the file is damaged or truncated, and
    UnsupportedFormatError if a tensor's format cannot be read.
    """
    if len(prefix) > MAX_HEADER_BYTES or not isinstance(prefix, bytes):
        prefix = bytes(memoryview(prefix)[:MAX_HEADER_BYTES])
    reader = _Cursor(prefix, file_size)
    version = _read_version(reader)
    tensor_count = reader.number(U64, Message("gguf.tensor-count", "the number of tensors"))
    key_count = reader.number(U64, Message("gguf.key-count", "the number of metadata keys"))
    if key_count > MAX_KEYS:
        raise _too_many(Message("gguf.keys", "{count} metadata keys", count=key_count), MAX_KEYS)
    if tensor_count > MAX_TENSORS:
        raise _too_many(Message("gguf.tensors", "{count} tensors", count=tensor_count), MAX_TENSORS)
    reader.require(
        reader.pos + key_count * MIN_KEY_VALUE_BYTES + tensor_count * MIN_TENSOR_BYTES,
        Message(
            "gguf.index-of",
            "an index of {keys} metadata keys and {tensors} tensors",
            keys=key_count,
            tensors=tensor_count,
        ),
    )
    metadata: dict[str, Any] = {}
    spans: dict[str, tuple[int, int]] = {}
    for _ in range(key_count):
        key = reader.string(_KEY)
        what = Message("gguf.value", "the metadata value {key}", key=shown(key))
        if key in metadata:
            raise GGUFError(
                "gguf.key-twice", "The GGUF file is damaged: the metadata key {key} appears twice.", key=shown(key)
            )
        start = reader.pos
        metadata[key] = reader.value(reader.number(U32, what), what)
        spans[key] = (start, reader.pos)
    alignment = alignment_of(metadata)
    # Offsets in the index are relative to the data section, whose start is known only after the index.
    relative: dict[str, TensorInfo] = {}
    for index in range(tensor_count):
        reader.require(reader.pos + (tensor_count - index) * MIN_TENSOR_BYTES, _INDEX)
        info = _read_tensor_info(reader, alignment)
        if info.name in relative:
            raise GGUFError(
                "gguf.tensor-twice", "The GGUF file is damaged: the tensor {name} appears twice.", name=shown(info.name)
            )
        relative[info.name] = info
    data_offset = -(-reader.pos // alignment) * alignment
    tensors = {
        info.name: TensorInfo(info.name, info.shape, info.format, data_offset + info.offset, info.nbytes)
        for info in relative.values()
    }
    end_offset = _check_layout(tensors, reader.pos, file_size)
    return GGUFHeader(version, alignment, metadata, tensors, data_offset, end_offset, spans)


async def read_header(source: WeightSource) -> GGUFHeader:
    """Parse the header of `source`, or those of its parts.

    Raises GGUFError and UnsupportedFormatError as parse_header does, and GGUFError if the parts do not belong together.
    """
    header = await _read_one(source)
    parts = source.parts
    count = _split_number(header, "split.count", 1)
    if count != max(len(parts), 1):
        if count == 1:
            raise GGUFError(
                "gguf.no-part",
                "The first of the {count} files is not marked as a part of a model. Download them again.",
                count=len(parts),
            )
        raise GGUFError(
            "gguf.one-of-several",
            "This is one of the {count} files of a model. Keep the names that they came with "
            "(NAME-00001-of-0000N.gguf). In the terminal put all of them into one folder; in the page open all of "
            "them at once.",
            count=count,
        )
    tensors = dict(header.tensors)
    end = header.end_offset
    for number, part in enumerate(parts[1:], 1):
        another = await _read_one(part.source)
        if (_split_number(another, "split.no"), _split_number(another, "split.count")) != (number, count):
            raise GGUFError(
                "gguf.part-missing",
                "{name} is not part {number} of {count} of this model. Download it again.",
                name=part.name,
                number=number + 1,
                count=count,
            )
        for info in another.tensors.values():
            if info.name in tensors:
                raise GGUFError(
                    "gguf.part-repeats",
                    "{name} has the tensor {tensor} of another part. Download it again.",
                    name=part.name,
                    tensor=shown(info.name),
                )
            tensors[info.name] = replace(info, offset=part.start + info.offset)
        if len(tensors) > MAX_TENSORS:
            raise _too_many(Message("gguf.tensors", "{count} tensors", count=len(tensors)), MAX_TENSORS)
        end = part.start + another.end_offset
    promised = _split_number(header, "split.tensors.count", len(tensors))
    if len(tensors) != promised:
        raise GGUFError(
            "gguf.parts-differ",
            "The parts have {count} tensors in total, not {promised}, so they do not belong to one model. Download "
            "them again.",
            count=len(tensors),
            promised=promised,
        )
    return replace(header, tensors=tensors, end_offset=end)


def _split_number(header: GGUFHeader, key: str, default: int = -1) -> int:
    """A file's number about the parts of its model. Raises GGUFError if the value is not a number."""
    value = header.metadata.get(key, default)
    if not isinstance(value, int):
        raise GGUFError(
            "gguf.no-number",
            "The GGUF file is damaged: {key} is {value}, not a number. Download it again.",
            key=key,
            value=shown(value),
        )
    return value


async def _read_one(source: FileHead) -> GGUFHeader:
    """Ask for longer and longer prefixes until the header fits."""
    wanted = FIRST_PREFIX_BYTES
    while True:
        prefix = await source.prefix(wanted)
        size = source.size
        if size is None and len(prefix) < wanted:
            size = len(prefix)  # the sender did not announce the size, but the data has ended
        try:
            return parse_header(prefix, size)
        except NeedMoreData as short:
            if len(prefix) < wanted:
                raise GGUFError(
                    "gguf.ends-in-header",
                    "The GGUF file is truncated: it ends after {size} bytes, inside its header. Download it again.",
                    size=len(prefix),
                ) from None
            wanted = min(max(2 * wanted, short.needed), MAX_HEADER_BYTES)


def _too_many(found: Message, most: int, where: Message = _FILE) -> GGUFError:
    return GGUFError(
        "gguf.too-many",
        "The GGUF file is damaged: it has {found}, but {where} may have at most {most}. Download it again, or choose "
        "another.",
        found=found,
        where=where,
        most=most,
    )


def _read_version(reader: _Cursor) -> int:
    available = reader.data[:4]
    if available != MAGIC[: len(available)]:
        raise GGUFError(
            "gguf.none",
            "This is not a GGUF file (it does not begin with 'GGUF'). Choose a model file that ends in .gguf.",
        )
    reader.require(8, Message("gguf.file-version", "the file's version"))
    (version,) = U32.unpack_from(reader.data, 4)
    reader.pos = 8
    if version in (2, 3):
        return version
    if version and version & 0xFFFF == 0:
        raise GGUFError(
            "gguf.big-endian",
            "This GGUF file is big-endian, which Sonata cannot read. Use the little-endian file of this model.",
        )
    if version == 1:
        raise GGUFError(
            "gguf.version-1",
            "This GGUF file has version 1, which Sonata cannot read. Convert the model again to version 3.",
        )
    raise GGUFError(
        "gguf.version", "This GGUF file has version {version}; Sonata reads versions 2 and 3.", version=version
    )


def _read_tensor_info(reader: _Cursor, alignment: int) -> TensorInfo:
    """One entry of the index, with its offset still relative to the data section."""
    name = reader.string(_NAME)
    what = Message("gguf.entry", "the index entry of tensor {name}", name=shown(name))
    dim_count = reader.number(U32, what)
    if not 1 <= dim_count <= MAX_DIMS:
        raise GGUFError(
            "gguf.dimensions",
            "The GGUF file is damaged: tensor {name} has {count} dimensions, not 1 to {most}.",
            name=shown(name),
            count=dim_count,
            most=MAX_DIMS,
        )
    shape = tuple(reader.number(U64, what) for _ in range(dim_count))[::-1]
    ggml_type = reader.number(U32, what)
    offset = reader.number(U64, what)
    if 0 in shape or math.prod(shape) >= 1 << 60:
        raise GGUFError(
            "gguf.bad-shape",
            "The GGUF file is damaged: tensor {name} has the impossible shape {shape}.",
            name=shown(name),
            shape=shape,
        )
    fmt = format_for_type(ggml_type, shown(name))
    try:
        size = nbytes(fmt, shape)
    except ValueError as error:
        raise GGUFError(
            "gguf.bad-tensor", "The GGUF file is damaged: tensor {name}: {why}.", name=shown(name), why=error
        ) from None
    if offset % alignment:
        raise GGUFError(
            "gguf.alignment-of-tensor",
            "The GGUF file is damaged: tensor {name} begins at byte {offset} of the data, which is not a multiple of "
            "{alignment}.",
            name=shown(name),
            offset=offset,
            alignment=alignment,
        )
    return TensorInfo(name, shape, fmt, offset, size)


def _check_layout(tensors: dict[str, TensorInfo], header_end: int, file_size: int | None) -> int:
    """Check that the tensors do not overlap and lie within the file; returns the end of the last one."""
    end, previous = header_end, ""
    in_file_order = sorted(tensors.values(), key=lambda info: info.offset)
    for info in in_file_order:
        if info.offset < end:
            raise GGUFError(
                "gguf.overlap",
                "The GGUF file is damaged: tensors {one} and {other} overlap.",
                one=shown(previous),
                other=shown(info.name),
            )
        end, previous = info.offset + info.nbytes, info.name
    if file_size is not None and end > file_size:
        missing = next(info for info in in_file_order if info.offset + info.nbytes > file_size)
        raise GGUFError(
            "gguf.truncated",
            "The GGUF file is truncated: {missing} of its {size} bytes are missing, from tensor {name} on. Download "
            "it again.",
            missing=end - file_size,
            size=end,
            name=shown(missing.name),
        )
    return end
