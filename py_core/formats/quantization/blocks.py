"""ggml's block formats: their layout and sizes.

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
    Q2_K  16 bytes of s and t, 64 of codes, half d, half m        x = d * s * q - m * t
    Q3_K  32 bytes of third bits, 64 of codes, 12 of s, half d    x = d * (s - 32) * (q - 4)
    Q4_K  half d, half m, 12 bytes of s and t, 128 of codes       x = d * s * q - m * t
    Q5_K  half d, half m, 12 bytes of s and t, 32 of fifth bits,
          128 of codes                                            x = d * s * q - m * t
    Q6_K  128 bytes of codes, 64 of fifth and sixth bits,
          16 int8 s, half d                                       x = d * s * (q - 32)
    IQ4_NL  half d, 16 bytes of codes                             x = d * v[q]
    IQ4_XS  half d, 2 bytes of upper bits of s, 4 of lower ones,
          128 of codes                                            x = d * (s - 32) * v[q]
    TQ1_0  48 bytes of five codes each, 4 of four, half d         x = d * (q - 1)
    TQ2_0  64 bytes of codes, half d                              x = d * (q - 1)
    MXFP4  a byte e, 16 bytes of codes                            x = 2 ** (e - 128) * v[q]

v are the 16 values of IQ4_VALUES, in MXFP4 those of MXFP4_VALUES. Codes are the lower 4 bits of q, two in a byte, the
low nibble first:
- in blocks of 32, and in the eight times 32 elements of IQ4_XS, byte j holds elements j and j + 16; bit j of the fifth
  bits belongs to element j
- in Q2_K, Q3_K and TQ2_0 codes are the lower 2 bits: each 32 bytes hold 128 elements, byte j has elements j, j + 32,
  j + 64 and j + 96 of them, the lowest bits first; bit i of byte j of the third bits belongs to element 32 * i + j
- in Q4_K and Q5_K each 32 bytes hold 64 elements: byte j has elements j and j + 32 of them; bit i of byte j of the
  fifth bits belongs to element 32 * i + j of the block
- in Q6_K each 64 bytes hold 128 elements: byte j has elements j and j + 64 of them; each 32 bytes of upper bits belong
  to 128 elements: byte j to elements j, j + 32, j + 64 and j + 96 of them, two bits each, the lowest first
- in TQ1_0 a byte is a fraction of 256, in base 3, whose digit n is code n: floor(byte * 3 ** n % 256 * 3 / 256). Of the
  first 160 elements byte j has j, j + 32 ... j + 128; of the next 80, byte 32 + j has j, j + 16 ... j + 64; of the last
  16, byte 48 + j has j, j + 4, j + 8 and j + 12

s and t are for groups of 16 elements in Q2_K, Q3_K and Q6_K, of 32 in the others:
- Q2_K: byte i has s[i] in its low nibble, t[i] in the high one
- Q3_K: s[16] has 6 bits each; byte i < 8 has the lower 4 of s[i] and, in its high nibble, of s[i + 8]; byte 8 + j has
  the top two of s[j], s[j + 4], s[j + 8] and s[j + 12], the lowest bits first
- Q4_K and Q5_K: s[8] and t[8] have 6 bits each; for i < 4, byte i holds s[i], and in its top two bits those of
  s[i + 4]; byte i + 4 holds t[i] and t[i + 4] likewise; byte i + 8 has the lower 4 bits of s[i + 4] and, in its high
  nibble, of t[i + 4]
- IQ4_XS: s[8] has 6 bits each; the upper two of all come first, the lowest first; byte i of the lower 4 bits has those
  of s[2 * i] and, in its high nibble, of s[2 * i + 1]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from py_core.messages import Message, UserError


class ShapeError(UserError, ValueError):
    """A tensor of this shape cannot be stored in this format."""


class UnsupportedFormatError(UserError, ValueError):
    """Sonata cannot read the tensor's format; the message names it and the formats that it can read."""


@dataclass(frozen=True)
class BlockFormat:
    """The packing of elements: `block_size` of them in `block_bytes` bytes. `ggml_type` is its id in a GGUF file."""

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
Q2_K = BlockFormat("Q2_K", 10, 256, 84)
Q3_K = BlockFormat("Q3_K", 11, 256, 110)
Q4_K = BlockFormat("Q4_K", 12, 256, 144)
Q5_K = BlockFormat("Q5_K", 13, 256, 176)
Q6_K = BlockFormat("Q6_K", 14, 256, 210)
IQ4_NL = BlockFormat("IQ4_NL", 20, 32, 18)
IQ4_XS = BlockFormat("IQ4_XS", 23, 256, 136)
BF16 = BlockFormat("BF16", 30, 1, 2)
TQ1_0 = BlockFormat("TQ1_0", 34, 256, 54)
TQ2_0 = BlockFormat("TQ2_0", 35, 256, 66)
MXFP4 = BlockFormat("MXFP4", 39, 32, 17)

IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The values of the codes of IQ4_NL and IQ4_XS, in units of a block's scale: denser near zero."""
MXFP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""The values of the codes of MXFP4, floats of 4 bits, times two; a block's scale is half of the file's for that."""

FORMATS: dict[str, BlockFormat] = {
    fmt.name: fmt
    for fmt in (
        F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4, TQ1_0, TQ2_0,
    )
}  # fmt: skip
FORMATS_BY_TYPE: dict[int, BlockFormat] = {fmt.ggml_type: fmt for fmt in FORMATS.values()}

# The rest of ggml's enum ggml_type as (name, block_size, block_bytes): known only so that errors can name them.
UNSUPPORTED_TYPES: dict[int, BlockFormat] = {
    ggml_type: BlockFormat(name, ggml_type, block_size, block_bytes)
    for ggml_type, name, block_size, block_bytes in (
        (9, "Q8_1", 32, 36),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
    )
}


def format_for_type(ggml_type: int, tensor: str) -> BlockFormat:
    """The format with id `ggml_type`. `tensor` is the name of the tensor of this type, safe to show in a message.

    Raises UnsupportedFormatError, which names the tensor and its format.
    """
    fmt = FORMATS_BY_TYPE.get(ggml_type)
    if fmt is not None:
        return fmt
    known = UNSUPPORTED_TYPES.get(ggml_type)
    what = known.name if known else Message("gguf.format-number", "format number {number}", number=ggml_type)
    *names, last = FORMATS
    raise UnsupportedFormatError(
        "gguf.no-readable-format",
        "Tensor {tensor} uses {what}, which Sonata cannot read yet. Use a file in {names} or {last}.",
        tensor=tensor,
        what=what,
        names=", ".join(names),
        last=last,
    )


def check_readable(fmt: BlockFormat) -> None:
    """Raises UnsupportedFormatError for a format that is not among FORMATS."""
    if FORMATS.get(fmt.name) != fmt:
        raise UnsupportedFormatError(
            "gguf.unreadable-format",
            "Sonata cannot read or write {format}; it knows {known}.",
            format=fmt.name,
            known=", ".join(FORMATS),
        )


def nbytes(fmt: BlockFormat, shape: Sequence[int]) -> int:
    """The size in bytes of a tensor of `shape` (outermost dimension first) in `fmt`.

    Raises ShapeError for an empty or negative dimension, and for rows that are not a whole number of blocks.
    """
    if not shape or any(dim <= 0 for dim in shape):
        raise ShapeError(
            "gguf.no-dimension",
            "a tensor needs at least one dimension, each of at least 1, but the shape is {shape}",
            shape=tuple(shape),
        )
    if shape[-1] % fmt.block_size:
        raise ShapeError(
            "gguf.bad-row",
            "a row of {count} elements cannot be stored in {format}, which packs {block} at a time",
            count=shape[-1],
            format=fmt.name,
            block=fmt.block_size,
        )
    return math.prod(shape) // fmt.block_size * fmt.block_bytes
