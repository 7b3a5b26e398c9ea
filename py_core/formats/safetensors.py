"""Reads and writes safetensors: named arrays after a JSON header.

Every field is checked before it is trusted: the file may be truncated, damaged or hostile.

Source: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from py_core.display import shown
from py_core.limits import MAX_HEADER_BYTES, MAX_TENSORS
from py_core.messages import Message, UserError

_DTYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
    "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
_MOST_BRACKETS, _MOST_COMMAS = 3 * MAX_TENSORS, 10 * MAX_TENSORS
"""Limits of a header's JSON. A tensor is an object with two lists, and has about seven commas. Metadata texts may have
some too: trainers of adapters keep tables of a few thousand words there."""


@cache
def _names() -> dict[np.dtype, str]:
    return {np.dtype(kind): name for name, kind in _DTYPES.items()}


_NOT_JSON = Message("safetensors.no-json", "its header is not a JSON object")


class SafetensorsError(UserError, ValueError):
    """The file is truncated, damaged or of another kind; the message says what to do."""


@dataclass(frozen=True)
class StoredArray:
    """An array in a file, not yet read. `dtype` is the format's name: "F32", "BF16" ..."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    def raw(self) -> np.ndarray:
        """The array without a copy, read-only; BF16 as the 16 bits of its numbers, '<u2'."""
        return np.frombuffer(self.data, "<u2" if self.dtype == "BF16" else _DTYPES[self.dtype]).reshape(self.shape)

    def array(self) -> np.ndarray:
        """The same array, with BF16 widened to float32."""
        raw = self.raw()
        return (raw.astype("<u4") << 16).view("<f4") if self.dtype == "BF16" else raw


def read_safetensors(data: bytes | memoryview) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays by name, without a copy and read-only, and the file's metadata (texts).

    BF16 is widened to float32. Raises SafetensorsError.
    """
    stored, metadata = stored_arrays(data)
    return {name: one.array() for name, one in stored.items()}, metadata


def stored_arrays(data: bytes | memoryview) -> tuple[dict[str, StoredArray], dict[str, str]]:
    """The arrays in a file, not yet read, and its metadata. Raises SafetensorsError."""
    view = memoryview(data).cast("B")
    header, begin = _header(view)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _damaged(Message("safetensors.metadata", "its metadata are not text"))
    body = view[begin:]
    arrays = {name: _stored(name, entry, body) for name, entry in header.items()}
    spans = sorted(tuple(entry["data_offsets"]) for entry in header.values())
    if any(start < stop for (_, stop), (start, _) in pairwise(spans)):
        raise _damaged(Message("safetensors.overlap", "two tensors share bytes"))
    return arrays, metadata


def write_safetensors(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> bytes:
    """The file's bytes. The same content gives the same bytes. Raises ValueError for a type that the format lacks."""
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    parts: list[bytes] = []
    offset = 0
    for name in sorted(arrays):
        array = arrays[name]
        little = array.dtype.newbyteorder("<")
        if little not in _names():
            raise ValueError(f"safetensors files hold no {array.dtype}: convert {name} first")
        content = array.astype(little, copy=False).tobytes()
        span = [offset, offset + len(content)]
        header[name] = {"dtype": _names()[little], "shape": list(array.shape), "data_offsets": span}
        parts.append(content)
        offset = span[1]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *parts])


def _header(view: memoryview) -> tuple[dict[str, Any], int]:
    """The JSON object, and the offset at which the tensors' bytes begin."""
    if len(view) < 8:
        raise _damaged(Message("safetensors.short", "it ends within its first 8 bytes"))
    (length,) = struct.unpack_from("<Q", view)
    if length > min(MAX_HEADER_BYTES, len(view) - 8):
        raise _damaged(
            Message(
                "safetensors.header-size",
                "its header of {length} bytes does not fit into its {size} bytes",
                length=length,
                size=len(view),
            )
        )
    text = bytes(view[8 : 8 + length])
    # Count before parsing: 64 MiB of "[],[],[]," would become gigabytes of lists.
    if text.count(b"{") + text.count(b"[") > _MOST_BRACKETS or text.count(b",") > _MOST_COMMAS:
        raise _damaged(Message("safetensors.many-tensors", "its header has more than {most} tensors", most=MAX_TENSORS))
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(_NOT_JSON) from error
    if not isinstance(header, dict):
        raise _damaged(_NOT_JSON)
    return header, 8 + length


def _stored(name: str, entry: Any, body: memoryview) -> StoredArray:
    try:
        dtype, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, LookupError, ValueError) as error:
        raise _damaged(
            Message("safetensors.no-tensor", "{name} is not described as a tensor", name=shown(name))
        ) from error
    if not isinstance(shape, list) or not all(_is_size(size) for size in (*shape, start, stop)) or len(shape) > 32:
        raise _damaged(Message("safetensors.bad-shape", "{name} has an invalid shape or position", name=shown(name)))
    if not start <= stop <= len(body):
        raise _damaged(
            Message(
                "safetensors.ends-late",
                "{name} ends at byte {stop} of {size}",
                name=shown(name),
                stop=stop,
                size=len(body),
            )
        )
    if dtype not in (*_DTYPES, "BF16"):
        raise SafetensorsError(
            "safetensors.unknown-type",
            "The tensor {name} is of the type {type}, which Sonata does not read: convert it.",
            name=shown(name),
            type=shown(dtype),
        )
    item = 2 if dtype == "BF16" else np.dtype(_DTYPES[dtype]).itemsize
    if prod(shape) * item != stop - start:
        raise _damaged(
            Message(
                "safetensors.other-size",
                "{name} has {size} bytes, but its shape needs {wanted}",
                name=shown(name),
                size=stop - start,
                wanted=prod(shape) * item,
            )
        )
    return StoredArray(dtype, tuple(shape), body[start:stop])


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _damaged(why: Message) -> SafetensorsError:
    return SafetensorsError(
        "safetensors.damaged", "The safetensors file is damaged ({why}). Download it again.", why=why
    )
