"""Block formats of ggml: their layout, and numpy code to read and write them.

A tensor is stored row by row; a row is a whole number of blocks; a block holds `block_size` elements in
`block_bytes` bytes. Layouts are those of ggml (ggml-common.h, `dequantize_row_*` in ggml-quants.c), little-endian, with
the fields in this order:

    F32   float
    F16   half
    BF16  the upper 16 bits of a float
    Q4_0  half d, 16 bytes of codes                               x = d * (q - 8)
    Q4_1  half d, half m, 16 bytes of codes                       x = d * q + m
    Q5_0  half d, 4 bytes of fifth bits, 16 of codes              x = d * (q - 16)
    Q5_1  half d, half m, 4 bytes of fifth bits, 16 of codes      x = d * q + m
    Q8_0  half d, 32 int8                                         x = d * q
    Q4_K  half d, half m, 12 bytes of s and t, 128 of codes       x = d * s * q - m * t
    Q5_K  half d, half m, 12 bytes of s and t, 32 of fifth bits,
          128 of codes                                            x = d * s * q - m * t
    Q6_K  128 bytes of codes, 64 of fifth and sixth bits,
          16 int8 s, half d                                       x = d * s * (q - 32)

Codes are the lower 4 bits of q, two in a byte, the low nibble first:
- in blocks of 32, byte j holds elements j and j + 16; bit j of the fifth bits belongs to element j
- in Q4_K and Q5_K each 32 bytes hold 64 elements: byte j has elements j and j + 32 of them; bit i of byte j of the
  fifth bits belongs to element 32 * i + j of the block
- in Q6_K each 64 bytes hold 128 elements: byte j has elements j and j + 64 of them; each 32 bytes of upper bits belong
  to 128 elements: byte j to elements j, j + 32, j + 64 and j + 96 of them, two bits each, the lowest first

s and t are for groups of 32 elements in Q4_K and Q5_K, of 16 in Q6_K. s[8] and t[8] have 6 bits each. For i < 4, byte i
holds s[i], and in its top two bits those of s[i + 4]; byte i + 4 holds t[i] and t[i + 4] likewise; byte i + 8 has the
lower 4 bits of s[i + 4] and, in its high nibble, of t[i + 4].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Buffer = bytes | bytearray | memoryview | np.ndarray


class UnsupportedFormatError(ValueError):
    """Sonata cannot read the tensor's format; the message names it and the formats that it can read."""


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
Q5_0 = BlockFormat("Q5_0", 6, 32, 22)
Q5_1 = BlockFormat("Q5_1", 7, 32, 24)
Q8_0 = BlockFormat("Q8_0", 8, 32, 34)
Q4_K = BlockFormat("Q4_K", 12, 256, 144)
Q5_K = BlockFormat("Q5_K", 13, 256, 176)
Q6_K = BlockFormat("Q6_K", 14, 256, 210)
BF16 = BlockFormat("BF16", 30, 1, 2)

FORMATS: dict[str, BlockFormat] = {
    fmt.name: fmt for fmt in (F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K)
}
FORMATS_BY_TYPE: dict[int, BlockFormat] = {fmt.ggml_type: fmt for fmt in FORMATS.values()}

# The rest of ggml's enum ggml_type as (name, block_size, block_bytes): known only so that errors can name them.
UNSUPPORTED_TYPES: dict[int, BlockFormat] = {
    ggml_type: BlockFormat(name, ggml_type, block_size, block_bytes)
    for ggml_type, name, block_size, block_bytes in (
        (9, "Q8_1", 32, 36),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
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
    blocks = raw.reshape(-1, fmt.block_bytes)
    out = np.empty((blocks.shape[0], fmt.block_size), np.float32)
    with np.errstate(invalid="ignore"):  # a damaged scale may be infinite; ggml does not stop there
        _DEQUANTIZERS[fmt.name](blocks, out)
    return out.reshape(shape)


def quantize(x: np.ndarray, fmt: BlockFormat) -> bytes:
    """`x` (any shape, rows last) packed in `fmt`.

    As ggml's quantize_row_*_ref does, but for Q4_K, Q5_K and Q6_K: ggml searches for better scales than those that just
    cover the elements. Raises ValueError when a row is not a whole number of blocks or an element is not finite or
    too large for the format.
    """
    expected = nbytes(fmt, x.shape)
    _check_readable(fmt)
    values = np.ascontiguousarray(x, dtype="<f4")
    if fmt == F32:
        return values.tobytes()
    if not np.isfinite(values).all():
        raise ValueError(f"NaN and infinity cannot be stored in {fmt.name}")
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


def _unpack(packed: np.ndarray, bits: int, run: int) -> np.ndarray:
    """uint8 (blocks, bytes) -> uint8 (blocks, bytes * 8 / bits).

    Of `run` bytes byte j holds elements j, j + run, j + 2 * run ..., `bits` each, from its lowest bits on.
    """
    bytes_ = packed.reshape(packed.shape[0], -1, run)
    out = np.empty((*bytes_.shape[:2], 8 // bits, run), np.uint8)
    for place in range(8 // bits):
        np.right_shift(bytes_, bits * place, out=out[:, :, place])
    out &= (1 << bits) - 1
    return out.reshape(packed.shape[0], -1)


def _pack(codes: np.ndarray, bits: int, run: int) -> np.ndarray:
    """The inverse of _unpack; only the lower `bits` of the codes are taken."""
    places = (codes & ((1 << bits) - 1)).reshape(codes.shape[0], -1, 8 // bits, run)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(places << shifts[:, None], axis=2).reshape(codes.shape[0], -1)


def _unpack_scales(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (blocks, 12) -> scales and minima of Q4_K and Q5_K: uint8 (blocks, 8) both."""
    first, last = packed[:, :8] & 63, _unpack(packed[:, 8:], 4, 4) | (packed[:, :8] >> 6) << 4
    return np.hstack((first[:, :4], last[:, :4])), np.hstack((first[:, 4:], last[:, 4:]))


def _pack_scales(scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
    """The inverse of _unpack_scales."""
    first, last = np.hstack((scales[:, :4], minima[:, :4])), np.hstack((scales[:, 4:], minima[:, 4:]))
    return np.hstack((first | (last >> 4) << 6, _pack(last, 4, 4)))


def _half_column(blocks: np.ndarray, start: int) -> np.ndarray:
    """The half at byte `start` of every block: float32 (blocks, 1)."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


# Each takes uint8 (blocks, block_bytes), and fills float32 (blocks, block_size).


def _dequantize_f32(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = blocks.view("<f4")


def _dequantize_f16(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = blocks.view("<f2")


def _dequantize_bf16(blocks: np.ndarray, out: np.ndarray) -> None:
    np.left_shift(blocks.view("<u2"), 16, out=out.view(np.uint32), dtype=np.uint32)


def _dequantize_q4_0(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = _unpack(blocks[:, 2:], 4, 16)
    out -= 8
    out *= _half_column(blocks, 0)


def _dequantize_q4_1(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = _unpack(blocks[:, 4:], 4, 16)
    out *= _half_column(blocks, 0)
    out += _half_column(blocks, 2)


def _dequantize_q5_0(blocks: np.ndarray, out: np.ndarray) -> None:
    fifth = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little")
    out[:] = _unpack(blocks[:, 6:], 4, 16) | fifth << 4
    out -= 16
    out *= _half_column(blocks, 0)


def _dequantize_q5_1(blocks: np.ndarray, out: np.ndarray) -> None:
    fifth = np.unpackbits(blocks[:, 4:8], axis=1, bitorder="little")
    out[:] = _unpack(blocks[:, 8:], 4, 16) | fifth << 4
    out *= _half_column(blocks, 0)
    out += _half_column(blocks, 2)


def _dequantize_q8_0(blocks: np.ndarray, out: np.ndarray) -> None:
    np.multiply(blocks[:, 2:].view(np.int8), _half_column(blocks, 0), out=out)


def _dequantize_q4_k(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = _unpack(blocks[:, 16:], 4, 32)
    _apply_scales(blocks, out)


def _dequantize_q5_k(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = _unpack(blocks[:, 48:], 4, 32) | _unpack(blocks[:, 16:48], 1, 32) << 4
    _apply_scales(blocks, out)


def _apply_scales(blocks: np.ndarray, out: np.ndarray) -> None:
    """Codes to elements, in place, for Q4_K and Q5_K."""
    scales, minima = _unpack_scales(blocks[:, 4:16])
    groups = out.reshape(-1, 8, 32)
    groups *= (_half_column(blocks, 0) * scales)[:, :, None]
    groups -= (_half_column(blocks, 2) * minima)[:, :, None]


def _dequantize_q6_k(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = _unpack(blocks[:, :128], 4, 64) | _unpack(blocks[:, 128:192], 2, 32) << 4
    out -= 32
    groups = out.reshape(-1, 16, 16)
    groups *= (_half_column(blocks, 208) * blocks[:, 192:208].view(np.int8))[:, :, None]


_DEQUANTIZERS: dict[str, Callable[[np.ndarray, np.ndarray], None]] = {
    "F32": _dequantize_f32,
    "F16": _dequantize_f16,
    "BF16": _dequantize_bf16,
    "Q4_0": _dequantize_q4_0,
    "Q4_1": _dequantize_q4_1,
    "Q5_0": _dequantize_q5_0,
    "Q5_1": _dequantize_q5_1,
    "Q8_0": _dequantize_q8_0,
    "Q4_K": _dequantize_q4_k,
    "Q5_K": _dequantize_q5_k,
    "Q6_K": _dequantize_q6_k,
}


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


def _truncate(values: np.ndarray, most: int) -> np.ndarray:
    """Non-negative float32 -> uint8 codes of at most `most`."""
    return np.minimum(values.astype(np.int32), most).astype(np.uint8)


def _pick(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """One element of each row: (n, m), (n, 1) -> (n, 1)."""
    return np.take_along_axis(rows, columns, axis=1)


def _peak(rows: np.ndarray) -> np.ndarray:
    """The element of largest magnitude of each row, with its sign; the first of equals, as ggml's loops take."""
    return _pick(rows, np.abs(rows).argmax(axis=1, keepdims=True))


# Each takes float32 (blocks, block_size), finite, and fills uint8 (blocks, block_bytes).


def _quantize_f16(rows: np.ndarray, blocks: np.ndarray) -> None:
    blocks[:] = _to_half(rows).view(np.uint8)


def _quantize_bf16(rows: np.ndarray, blocks: np.ndarray) -> None:
    bits = rows.view("<u4")
    rounded = (bits + (0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")  # to nearest, halves to even
    if ((rounded & 0x7F80) == 0x7F80).any():
        raise ValueError("an element is too large for BF16")
    blocks[:] = rounded.view(np.uint8)


def _quantize_q4_0(rows: np.ndarray, blocks: np.ndarray) -> None:
    # The peak becomes exactly -8 times the scale.
    scale = _peak(rows) / np.float32(-8)
    _put_half(blocks, 0, scale)
    blocks[:, 2:] = _pack(_truncate(rows * _inverse(scale) + np.float32(8.5), 15), 4, 16)


def _quantize_q4_1(rows: np.ndarray, blocks: np.ndarray) -> None:
    blocks[:, 4:] = _pack(_scale_from_low(rows, blocks, 15), 4, 16)


def _quantize_q5_0(rows: np.ndarray, blocks: np.ndarray) -> None:
    scale = _peak(rows) / np.float32(-16)
    _put_half(blocks, 0, scale)
    codes = _truncate(rows * _inverse(scale) + np.float32(16.5), 31)
    blocks[:, 2:6] = np.packbits(codes >> 4, axis=1, bitorder="little")
    blocks[:, 6:] = _pack(codes, 4, 16)


def _quantize_q5_1(rows: np.ndarray, blocks: np.ndarray) -> None:
    codes = _scale_from_low(rows, blocks, 31)
    blocks[:, 4:8] = np.packbits(codes >> 4, axis=1, bitorder="little")
    blocks[:, 8:] = _pack(codes, 4, 16)


def _scale_from_low(rows: np.ndarray, blocks: np.ndarray, most: int) -> np.ndarray:
    """Fills d and m of Q4_1 and Q5_1; gives codes 0..most from the smallest element of a row to its largest."""
    low = _pick(rows, rows.argmin(axis=1, keepdims=True))
    scale = (_pick(rows, rows.argmax(axis=1, keepdims=True)) - low) / np.float32(most)
    _put_half(blocks, 0, scale)
    _put_half(blocks, 2, low)
    return _truncate((rows - low) * _inverse(scale) + np.float32(0.5), most)


def _quantize_q8_0(rows: np.ndarray, blocks: np.ndarray) -> None:
    scale = np.abs(rows).max(axis=1, keepdims=True) / np.float32(127)
    _put_half(blocks, 0, scale)
    scaled = rows * _inverse(scale)
    # C's roundf: halves away from zero. Adding 0.5 first would be wrong for the float just below a half.
    whole = np.trunc(scaled)
    whole += np.copysign(np.abs(scaled - whole) >= np.float32(0.5), scaled)
    blocks[:, 2:] = whole.astype(np.int8).view(np.uint8)


def _quantize_q4_k(rows: np.ndarray, blocks: np.ndarray) -> None:
    blocks[:, 16:] = _pack(_scale_groups(rows, blocks, 15), 4, 32)


def _quantize_q5_k(rows: np.ndarray, blocks: np.ndarray) -> None:
    codes = _scale_groups(rows, blocks, 31)
    blocks[:, 16:48] = _pack(codes >> 4, 1, 32)
    blocks[:, 48:] = _pack(codes, 4, 32)


def _scale_groups(rows: np.ndarray, blocks: np.ndarray, most: int) -> np.ndarray:
    """Fills d, m, s and t of Q4_K and Q5_K; gives codes 0..most, uint8 (blocks, 256)."""
    groups = rows.reshape(-1, 8, 32)
    high, low = groups.max(axis=2), np.minimum(groups.min(axis=2), 0)  # t has no sign: code 0 is at 0 or below
    scales, step = _six_bits((high - low) / np.float32(most), blocks, 0)
    # Where a half is too coarse for the step, every element becomes the same value, the middle.
    minima, depth = _six_bits(np.where(step > 0, -low, np.maximum(-(low + high) / 2, 0)), blocks, 2)
    blocks[:, 4:16] = _pack_scales(scales, minima)
    codes = np.rint((groups + depth[:, :, None]) * _inverse(step)[:, :, None])
    return np.clip(codes, 0, most).astype(np.uint8).reshape(rows.shape)


def _six_bits(values: np.ndarray, blocks: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
    """(blocks, 8), not negative, as a half at byte `start` times 0..63: these numbers as uint8, and the products."""
    _put_half(blocks, start, values.max(axis=1, keepdims=True) / np.float32(63))
    unit = _half_column(blocks, start)
    numbers = np.minimum(np.rint(values * _inverse(unit)), 63).astype(np.uint8)
    return numbers, unit * numbers


def _quantize_q6_k(rows: np.ndarray, blocks: np.ndarray) -> None:
    # As in Q4_0: a group's peak becomes -32 of its steps, and the largest step -128 units.
    step = _peak(rows.reshape(-1, 16)).reshape(-1, 16) / np.float32(-32)
    _put_half(blocks, 208, _peak(step) / np.float32(-128))
    unit = _half_column(blocks, 208)
    scales = np.clip(np.rint(step * _inverse(unit)), -128, 127).astype(np.int8)
    blocks[:, 192:208] = scales.view(np.uint8)
    codes = np.rint(rows.reshape(-1, 16, 16) * _inverse(unit * scales)[:, :, None])
    codes = (np.clip(codes, -32, 31) + 32).astype(np.uint8).reshape(rows.shape)
    blocks[:, :128] = _pack(codes, 4, 64)
    blocks[:, 128:192] = _pack(codes >> 4, 2, 32)


_QUANTIZERS: dict[str, Callable[[np.ndarray, np.ndarray], None]] = {
    "F16": _quantize_f16,
    "BF16": _quantize_bf16,
    "Q4_0": _quantize_q4_0,
    "Q4_1": _quantize_q4_1,
    "Q5_0": _quantize_q5_0,
    "Q5_1": _quantize_q5_1,
    "Q8_0": _quantize_q8_0,
    "Q4_K": _quantize_q4_k,
    "Q5_K": _quantize_q5_k,
    "Q6_K": _quantize_q6_k,
}
