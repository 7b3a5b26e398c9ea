"""Block formats of ggml: their layout, and numpy code to read and write them.

A tensor is stored row by row; a row is a whole number of blocks; a block holds `block_size` elements in
`block_bytes` bytes. Layouts and rounding are those of ggml (ggml-common.h, `dequantize_row_*` and
`quantize_row_*_ref` in ggml-quants.c), little-endian:

    F32   float
    F16   half
    Q4_0  half d, 16 bytes of nibbles            x = d * (q - 8)
    Q4_1  half d, half m, 16 bytes of nibbles    x = d * q + m
    Q8_0  half d, 32 int8                        x = d * q

In Q4 blocks the low nibble of byte j is element j and the high nibble is element j + 16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Buffer = bytes | bytearray | memoryview | np.ndarray


class UnsupportedFormatError(ValueError):
    """The tensor's format is one that Sonata cannot read; the message names it and those that it can."""


@dataclass(frozen=True)
class BlockFormat:
    """How elements are packed: `block_size` of them in `block_bytes` bytes. `ggml_type` is its id in a GGUF file."""

    name: str
    ggml_type: int
    block_size: int
    block_bytes: int


F32 = BlockFormat("F32", 0, 1, 4)
F16 = BlockFormat("F16", 1, 1, 2)
Q4_0 = BlockFormat("Q4_0", 2, 32, 18)
Q4_1 = BlockFormat("Q4_1", 3, 32, 20)
Q8_0 = BlockFormat("Q8_0", 8, 32, 34)

FORMATS: dict[str, BlockFormat] = {fmt.name: fmt for fmt in (F32, F16, Q4_0, Q4_1, Q8_0)}
FORMATS_BY_TYPE: dict[int, BlockFormat] = {fmt.ggml_type: fmt for fmt in FORMATS.values()}

# The rest of ggml's enum ggml_type as (name, block_size, block_bytes): known only so that errors can name them.
UNSUPPORTED_TYPES: dict[int, BlockFormat] = {
    ggml_type: BlockFormat(name, ggml_type, block_size, block_bytes)
    for ggml_type, name, block_size, block_bytes in (
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (9, "Q8_1", 32, 36),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
    )
}


def format_for_type(ggml_type: int, tensor: str) -> BlockFormat:
    """The format with id `ggml_type`, the type of the tensor named `tensor`.

    Raises UnsupportedFormatError, which names the tensor and its format.
    """
    fmt = FORMATS_BY_TYPE.get(ggml_type)
    if fmt is not None:
        return fmt
    known = UNSUPPORTED_TYPES.get(ggml_type)
    what = known.name if known else f"format number {ggml_type}"
    *names, last = FORMATS
    raise UnsupportedFormatError(
        f"tensor {tensor} uses {what}, which Sonata cannot read yet; use a file in {', '.join(names)} or {last}"
    )


def nbytes(fmt: BlockFormat, shape: Sequence[int]) -> int:
    """Bytes that a tensor of `shape` (outermost dimension first) takes in `fmt`.

    Raises ValueError for an empty or negative dimension, and for rows that are not a whole number of blocks.
    """
    if not shape or any(dim <= 0 for dim in shape):
        raise ValueError(f"a tensor needs at least one dimension, each of at least 1; the shape is {tuple(shape)}")
    if shape[-1] % fmt.block_size:
        raise ValueError(
            f"a row of {shape[-1]} elements cannot be stored in {fmt.name}, which packs them by {fmt.block_size}"
        )
    return math.prod(shape) // fmt.block_size * fmt.block_bytes


def dequantize(data: Buffer, fmt: BlockFormat, shape: Sequence[int]) -> np.ndarray:
    """Elements of a tensor stored as `data`: float32 of `shape`, bit for bit what ggml computes.

    Raises ValueError when `data` is not exactly as long as the shape needs.
    """
    raw = np.frombuffer(data, dtype=np.uint8)
    expected = nbytes(fmt, shape)
    if raw.size != expected:
        raise ValueError(f"{fmt.name} of shape {tuple(shape)} takes {expected} bytes, {raw.size} were given")
    _check_readable(fmt)
    if fmt == F32:
        return raw.view("<f4").astype(np.float32).reshape(shape)
    if fmt == F16:
        return raw.view("<f2").astype(np.float32).reshape(shape)
    blocks = raw.reshape(-1, fmt.block_bytes)
    out = np.empty((blocks.shape[0], fmt.block_size), np.float32)
    scale = _half_column(blocks, 0)
    with np.errstate(invalid="ignore", over="ignore"):  # a damaged scale may be infinite; ggml does not stop there
        if fmt == Q8_0:
            np.multiply(blocks[:, 2:].view(np.int8), scale, out=out)
        else:
            nibbles = blocks[:, 2:] if fmt == Q4_0 else blocks[:, 4:]
            out[:, :16] = nibbles & 15
            out[:, 16:] = nibbles >> 4
            if fmt == Q4_0:
                out -= 8
            out *= scale
            if fmt == Q4_1:
                out += _half_column(blocks, 2)
    return out.reshape(shape)


def quantize(x: np.ndarray, fmt: BlockFormat) -> bytes:
    """`x` (any shape, rows last) packed in `fmt`, as ggml's quantize_row_*_ref does.

    Raises ValueError when a row is not a whole number of blocks or an element is not finite or
    too large for the format.
    """
    expected = nbytes(fmt, x.shape)
    _check_readable(fmt)
    values = np.ascontiguousarray(x, dtype="<f4")
    if fmt == F32:
        return values.tobytes()
    if not np.isfinite(values).all():
        raise ValueError(f"NaN and infinity cannot be stored in {fmt.name}")
    if fmt == F16:
        return _to_half(values).tobytes()
    rows = values.reshape(-1, fmt.block_size)
    blocks = np.empty((rows.shape[0], fmt.block_bytes), np.uint8)
    with np.errstate(over="ignore", invalid="ignore"):
        _QUANTIZERS[fmt.name](rows, blocks)
    data = blocks.tobytes()
    assert len(data) == expected
    return data


def _check_readable(fmt: BlockFormat) -> None:
    if FORMATS.get(fmt.name) != fmt:
        raise UnsupportedFormatError(f"Sonata cannot read or write {fmt.name}; it knows {', '.join(FORMATS)}")


def _half_column(blocks: np.ndarray, start: int) -> np.ndarray:
    """The half at byte `start` of every block: float32 (blocks, 1)."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def _put_half(blocks: np.ndarray, start: int, column: np.ndarray) -> None:
    blocks[:, start : start + 2] = _to_half(column).view(np.uint8).reshape(-1, 2)


def _to_half(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        halves = values.astype("<f2")
    if not np.isfinite(halves).all():
        raise ValueError("an element, or a block's scale, is too large for the half-precision number that stores it")
    return halves


def _inverse(scale: np.ndarray) -> np.ndarray:
    """1 / scale, and 0 where the scale is 0 or so small that its inverse would overflow (as a half it is 0 anyway)."""
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=np.abs(scale) >= np.float32(1e-38))


def _pack_nibbles(values: np.ndarray) -> np.ndarray:
    """float32 (blocks, 32), truncated to 0..15 -> uint8 (blocks, 16)."""
    q = np.minimum(values.astype(np.int32), 15).astype(np.uint8)
    return q[:, :16] | (q[:, 16:] << 4)


def _pick(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """One element of each row: (blocks, 32), (blocks, 1) -> (blocks, 1). The first of equals, as ggml's loops take."""
    return np.take_along_axis(rows, columns, axis=1)


def _quantize_q4_0(rows: np.ndarray, blocks: np.ndarray) -> None:
    # The element of largest magnitude, with its sign, becomes exactly -8 times the scale.
    peak = _pick(rows, np.abs(rows).argmax(axis=1, keepdims=True))
    scale = peak / np.float32(-8)
    _put_half(blocks, 0, scale)
    blocks[:, 2:] = _pack_nibbles(rows * _inverse(scale) + np.float32(8.5))


def _quantize_q4_1(rows: np.ndarray, blocks: np.ndarray) -> None:
    low = _pick(rows, rows.argmin(axis=1, keepdims=True))
    scale = (_pick(rows, rows.argmax(axis=1, keepdims=True)) - low) / np.float32(15)
    _put_half(blocks, 0, scale)
    _put_half(blocks, 2, low)
    blocks[:, 4:] = _pack_nibbles((rows - low) * _inverse(scale) + np.float32(0.5))


def _quantize_q8_0(rows: np.ndarray, blocks: np.ndarray) -> None:
    scale = np.abs(rows).max(axis=1, keepdims=True) / np.float32(127)
    _put_half(blocks, 0, scale)
    scaled = rows * _inverse(scale)
    # C's roundf: halves away from zero. Adding 0.5 first would be wrong for the float just below a half.
    whole = np.trunc(scaled)
    whole += np.copysign(np.abs(scaled - whole) >= np.float32(0.5), scaled)
    blocks[:, 2:] = whole.astype(np.int8).view(np.uint8)


_QUANTIZERS = {"Q4_0": _quantize_q4_0, "Q4_1": _quantize_q4_1, "Q8_0": _quantize_q8_0}
