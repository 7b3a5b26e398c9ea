"""Writes GGUF files, tensor by tensor if they are large."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from py_core.display import shown
from py_core.formats.gguf_types import (
    ARRAY,
    BOOL,
    DEFAULT_ALIGNMENT,
    DTYPES,
    MAGIC,
    STRING,
    U32,
    U64,
    alignment_of,
)
from py_core.formats.quantization import BlockFormat, quantize


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of `shape` (numpy order) given as encoded bytes in pieces, for tensors that do not fit into memory."""

    shape: tuple[int, ...]
    format: BlockFormat
    pieces: Callable[[], Iterable[bytes]]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) // self.format.block_size * self.format.block_bytes


@dataclass(frozen=True)
class EncodedValue:
    """A metadata value as encoded in a file, including its type, so that a copy keeps its type."""

    data: bytes


def write_gguf(
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[np.ndarray, BlockFormat] | StoredTensor],
    alignment: int = DEFAULT_ALIGNMENT,
) -> None:
    """Write a GGUF file of version 3. `tensors` maps a name to float values (numpy order) and their target format,
    or to bytes that are already encoded.

    Types are inferred: bool, int (uint32, or the first of int32, uint64, int64 that can represent it), float (float32),
    str, and lists of one of these (lists of ints prefer int32, the type of llama.cpp's token types). numpy scalars and
    arrays keep their own type. Raises TypeError for other values, and ValueError as quantize does.
    """
    if alignment != DEFAULT_ALIGNMENT:
        metadata = {**metadata, "general.alignment": alignment}
    alignment_of(metadata)
    header = bytearray(MAGIC + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
    for key, value in metadata.items():
        header += _encode_string(key)
        if isinstance(value, EncodedValue):
            header += value.data
            continue
        value_type, encoded = _encode_value(value)
        header += U32.pack(value_type) + encoded
    stored = [tensor if isinstance(tensor, StoredTensor) else _stored(*tensor) for tensor in tensors.values()]
    offset = 0
    for name, tensor in zip(tensors, stored, strict=True):
        dims = tensor.shape[::-1]
        place = (len(dims), *dims, tensor.format.ggml_type, offset)
        header += _encode_string(name) + struct.pack(f"<I{len(dims)}QIQ", *place)
        offset += tensor.nbytes + -tensor.nbytes % alignment
    header += bytes(-len(header) % alignment)
    with open(path, "wb") as file:
        file.write(header)
        for tensor in stored:
            file.writelines(tensor.pieces())
            file.write(bytes(-tensor.nbytes % alignment))


def _stored(values: np.ndarray, form: BlockFormat) -> StoredTensor:
    payload = quantize(values, form)
    return StoredTensor(values.shape, form, lambda: [payload])


def _encode_string(text: str) -> bytes:
    encoded = text.encode()
    return U64.pack(len(encoded)) + encoded


def _encode_value(value: Any) -> tuple[int, bytes]:
    """(value type, bytes) of one metadata value."""
    if isinstance(value, str):
        return STRING, _encode_string(value)
    if isinstance(value, list | tuple):
        return ARRAY, _encode_list(value)
    array = _typed(value)
    value_type = _value_type(array.dtype)
    if array.ndim == 0:
        return value_type, array.tobytes()
    return ARRAY, U32.pack(value_type) + U64.pack(array.size) + array.tobytes()


def _encode_list(values: Sequence[Any]) -> bytes:
    count = U64.pack(len(values))
    if all(isinstance(value, str) for value in values):
        return U32.pack(STRING) + count + b"".join(map(_encode_string, values))
    array = _typed(values)
    return U32.pack(_value_type(array.dtype)) + count + array.tobytes()


def _typed(value: Any) -> np.ndarray:
    """A number or list of numbers as an array of the type to store."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value, np.dtype(value.dtype).newbyteorder("<"))
    kinds = {type(item) for item in value} if isinstance(value, list | tuple) else {type(value)}
    if kinds == {bool}:
        return np.asarray(value, np.bool_)
    if kinds == {int}:
        order = ("<i4", "<u4", "<u8", "<i8") if isinstance(value, list | tuple) else ("<u4", "<i4", "<u8", "<i8")
        low, high = (min(value), max(value)) if isinstance(value, list | tuple) else (value, value)
        for code in order:
            if np.iinfo(code).min <= low and high <= np.iinfo(code).max:
                return np.asarray(value, code)
    if kinds in ({float}, {int, float}):
        return np.asarray(value, "<f4")
    raise TypeError(f"GGUF metadata cannot hold {shown(value)}; use bool, int, float, str or a list of one of these")


def _value_type(dtype: np.dtype) -> int:
    if dtype == np.bool_:
        return BOOL
    for value_type, known in DTYPES.items():
        if dtype == np.dtype(known) and value_type != BOOL:
            return value_type
    raise TypeError(f"GGUF metadata cannot hold numbers of type {dtype}")
