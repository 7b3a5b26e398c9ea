"""Decodes blocks into elements, bit for bit as ggml does (`dequantize_row_*` in ggml-quants.c)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np

from py_core.formats.quantization.bits import (
    half_column,
    unpack,
    unpack_iq4_scales,
    unpack_q3_scales,
    unpack_scales,
    unpack_trits,
)
from py_core.formats.quantization.blocks import IQ4_VALUES, MXFP4_VALUES, BlockFormat, check_readable, nbytes

Buffer: TypeAlias = "bytes | bytearray | memoryview | np.ndarray"


@cache
def _iq4_values() -> np.ndarray:
    return np.array(IQ4_VALUES, np.float32)


@cache
def _mxfp4_values() -> np.ndarray:
    return np.array(MXFP4_VALUES, np.float32)


def dequantize(data: Buffer, fmt: BlockFormat, shape: Sequence[int]) -> np.ndarray:
    """The elements of a tensor stored as `data`: float32 of `shape`, bit for bit as ggml computes them.

    Raises ValueError if `data` is not exactly as long as the shape needs.
    """
    raw = np.frombuffer(data, dtype=np.uint8)
    expected = nbytes(fmt, shape)
    if raw.size != expected:
        raise ValueError(f"{fmt.name} of shape {tuple(shape)} takes {expected} bytes, {raw.size} were given")
    check_readable(fmt)
    blocks = raw.reshape(-1, fmt.block_bytes)
    out = np.empty((blocks.shape[0], fmt.block_size), np.float32)
    with np.errstate(invalid="ignore", over="ignore"):  # a damaged scale may be infinite; ggml does not stop there
        _DEQUANTIZERS[fmt.name](blocks, out)
    return out.reshape(shape)


# Each function takes uint8 (blocks, block_bytes), and fills float32 (blocks, block_size).


def _dequantize_f32(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = blocks.view("<f4")


def _dequantize_f16(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = blocks.view("<f2")


def _dequantize_bf16(blocks: np.ndarray, out: np.ndarray) -> None:
    np.left_shift(blocks.view("<u2"), 16, out=out.view(np.uint32), dtype=np.uint32)


def _dequantize_q4_0(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = unpack(blocks[:, 2:], 4, 16)
    out -= 8
    out *= half_column(blocks, 0)


def _dequantize_q4_1(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = unpack(blocks[:, 4:], 4, 16)
    out *= half_column(blocks, 0)
    out += half_column(blocks, 2)


def _dequantize_q5_0(blocks: np.ndarray, out: np.ndarray) -> None:
    fifth = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little")
    out[:] = unpack(blocks[:, 6:], 4, 16) | fifth << 4
    out -= 16
    out *= half_column(blocks, 0)


def _dequantize_q5_1(blocks: np.ndarray, out: np.ndarray) -> None:
    fifth = np.unpackbits(blocks[:, 4:8], axis=1, bitorder="little")
    out[:] = unpack(blocks[:, 8:], 4, 16) | fifth << 4
    out *= half_column(blocks, 0)
    out += half_column(blocks, 2)


def _dequantize_q8_0(blocks: np.ndarray, out: np.ndarray) -> None:
    np.multiply(blocks[:, 2:].view(np.int8), half_column(blocks, 0), out=out)


def _dequantize_q2_k(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = unpack(blocks[:, 16:80], 2, 32)
    groups = out.reshape(-1, 16, 16)
    groups *= (half_column(blocks, 80) * (blocks[:, :16] & 15))[:, :, None]
    groups -= (half_column(blocks, 82) * (blocks[:, :16] >> 4))[:, :, None]


def _dequantize_q3_k(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = unpack(blocks[:, 32:96], 2, 32) | unpack(blocks[:, :32], 1, 32) << 2
    out -= 4
    groups = out.reshape(-1, 16, 16)
    groups *= (half_column(blocks, 108) * unpack_q3_scales(blocks[:, 96:108]))[:, :, None]


def _dequantize_q4_k(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = unpack(blocks[:, 16:], 4, 32)
    _apply_scales(blocks, out)


def _dequantize_q5_k(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = unpack(blocks[:, 48:], 4, 32) | unpack(blocks[:, 16:48], 1, 32) << 4
    _apply_scales(blocks, out)


def _apply_scales(blocks: np.ndarray, out: np.ndarray) -> None:
    """Turn codes into elements, in place, for Q4_K and Q5_K."""
    scales, minima = unpack_scales(blocks[:, 4:16])
    groups = out.reshape(-1, 8, 32)
    groups *= (half_column(blocks, 0) * scales)[:, :, None]
    groups -= (half_column(blocks, 2) * minima)[:, :, None]


def _dequantize_q6_k(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = unpack(blocks[:, :128], 4, 64) | unpack(blocks[:, 128:192], 2, 32) << 4
    out -= 32
    groups = out.reshape(-1, 16, 16)
    groups *= (half_column(blocks, 208) * blocks[:, 192:208].view(np.int8))[:, :, None]


def _dequantize_iq4_nl(blocks: np.ndarray, out: np.ndarray) -> None:
    np.take(_iq4_values(), unpack(blocks[:, 2:], 4, 16), out=out)
    out *= half_column(blocks, 0)


def _dequantize_iq4_xs(blocks: np.ndarray, out: np.ndarray) -> None:
    np.take(_iq4_values(), unpack(blocks[:, 8:], 4, 16), out=out)
    groups = out.reshape(-1, 8, 32)
    groups *= (half_column(blocks, 0) * unpack_iq4_scales(blocks[:, 2:8]))[:, :, None]


def _dequantize_mxfp4(blocks: np.ndarray, out: np.ndarray) -> None:
    np.take(_mxfp4_values(), unpack(blocks[:, 1:], 4, 16), out=out)
    out *= np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)


def _dequantize_tq1_0(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = unpack_trits(blocks[:, :52])
    out -= 1
    out *= half_column(blocks, 52)


def _dequantize_tq2_0(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = unpack(blocks[:, :64], 2, 32)
    out -= 1
    out *= half_column(blocks, 64)


_DEQUANTIZERS: dict[str, Callable[[np.ndarray, np.ndarray], None]] = {
    "F32": _dequantize_f32,
    "F16": _dequantize_f16,
    "BF16": _dequantize_bf16,
    "Q4_0": _dequantize_q4_0,
    "Q4_1": _dequantize_q4_1,
    "Q5_0": _dequantize_q5_0,
    "Q5_1": _dequantize_q5_1,
    "Q8_0": _dequantize_q8_0,
    "Q2_K": _dequantize_q2_k,
    "Q3_K": _dequantize_q3_k,
    "Q4_K": _dequantize_q4_k,
    "Q5_K": _dequantize_q5_k,
    "Q6_K": _dequantize_q6_k,
    "IQ4_NL": _dequantize_iq4_nl,
    "IQ4_XS": _dequantize_iq4_xs,
    "MXFP4": _dequantize_mxfp4,
    "TQ1_0": _dequantize_tq1_0,
    "TQ2_0": _dequantize_tq2_0,
}
