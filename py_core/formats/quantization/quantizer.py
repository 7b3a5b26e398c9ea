"""Encodes elements into blocks, as ggml does (`quantize_row_*_ref` in ggml-quants.c)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from py_core.formats.quantization.bits import pack, pack_trits
from py_core.formats.quantization.blocks import F32, MXFP4_VALUES, BlockFormat, check_readable, nbytes
from py_core.formats.quantization.k_quants import (
    inverse,
    put_half,
    quantize_iq4_nl,
    quantize_iq4_xs,
    quantize_q2_k,
    quantize_q3_k,
    quantize_q4_k,
    quantize_q5_k,
    quantize_q6_k,
)
from py_core.formats.quantization.scale_search import to_half

_AT_ONCE = 1 << 17
"""Elements that are processed together: the working set of a search fits into the CPU's cache."""


def quantize(x: np.ndarray, fmt: BlockFormat) -> bytes:
    """`x` (any shape, rows last) packed in `fmt`.

    The bytes equal those of ggml's quantize_row_*_ref, except for K-quants and IQ4, whose scales are searched
    (scale_search.py). Raises ValueError if a row is not a whole number of blocks, or an element is not finite or
    too large for the format.
    """
    expected = nbytes(fmt, x.shape)
    check_readable(fmt)
    values = np.ascontiguousarray(x, dtype="<f4")
    if fmt == F32:
        return values.tobytes()
    if not np.isfinite(values).all():
        raise ValueError(f"NaN and infinity cannot be stored in {fmt.name}")
    rows = values.reshape(-1, fmt.block_size)
    blocks = np.empty((rows.shape[0], fmt.block_bytes), np.uint8)
    step = max(1, _AT_ONCE // fmt.block_size)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(rows), step):
            _QUANTIZERS[fmt.name](rows[start : start + step], blocks[start : start + step])
    data = blocks.tobytes()
    assert len(data) == expected
    return data


def _truncate(values: np.ndarray, most: int) -> np.ndarray:
    """Non-negative float32 -> uint8 codes of at most `most`."""
    return np.minimum(values.astype(np.int32), most).astype(np.uint8)


def _pick(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """One element of each row: (n, m), (n, 1) -> (n, 1)."""
    return np.take_along_axis(rows, columns, axis=1)


def _peak(rows: np.ndarray) -> np.ndarray:
    """The element of largest magnitude of each row, with its sign; the first of equals, as in ggml's loops."""
    return _pick(rows, np.abs(rows).argmax(axis=1, keepdims=True))


# Each function takes float32 (blocks, block_size), finite, and fills uint8 (blocks, block_bytes).


def _quantize_f16(rows: np.ndarray, blocks: np.ndarray) -> None:
    blocks[:] = to_half(rows).view(np.uint8)


def _quantize_bf16(rows: np.ndarray, blocks: np.ndarray) -> None:
    bits = rows.view("<u4")
    rounded = (bits + (0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")  # to nearest, halves to even
    if ((rounded & 0x7F80) == 0x7F80).any():
        raise ValueError("an element is too large for BF16")
    blocks[:] = rounded.view(np.uint8)


def _quantize_q4_0(rows: np.ndarray, blocks: np.ndarray) -> None:
    # The peak becomes exactly -8 times the scale.
    scale = _peak(rows) / np.float32(-8)
    put_half(blocks, 0, scale)
    blocks[:, 2:] = pack(_truncate(rows * inverse(scale) + np.float32(8.5), 15), 4, 16)


def _quantize_q4_1(rows: np.ndarray, blocks: np.ndarray) -> None:
    blocks[:, 4:] = pack(_scale_from_low(rows, blocks, 15), 4, 16)


def _quantize_q5_0(rows: np.ndarray, blocks: np.ndarray) -> None:
    scale = _peak(rows) / np.float32(-16)
    put_half(blocks, 0, scale)
    codes = _truncate(rows * inverse(scale) + np.float32(16.5), 31)
    blocks[:, 2:6] = np.packbits(codes >> 4, axis=1, bitorder="little")
    blocks[:, 6:] = pack(codes, 4, 16)


def _quantize_q5_1(rows: np.ndarray, blocks: np.ndarray) -> None:
    codes = _scale_from_low(rows, blocks, 31)
    blocks[:, 4:8] = np.packbits(codes >> 4, axis=1, bitorder="little")
    blocks[:, 8:] = pack(codes, 4, 16)


def _scale_from_low(rows: np.ndarray, blocks: np.ndarray, most: int) -> np.ndarray:
    """Fills d and m of Q4_1 and Q5_1; returns codes 0..most from the smallest element of a row to its largest."""
    low = _pick(rows, rows.argmin(axis=1, keepdims=True))
    scale = (_pick(rows, rows.argmax(axis=1, keepdims=True)) - low) / np.float32(most)
    put_half(blocks, 0, scale)
    put_half(blocks, 2, low)
    return _truncate((rows - low) * inverse(scale) + np.float32(0.5), most)


def _quantize_q8_0(rows: np.ndarray, blocks: np.ndarray) -> None:
    scale = np.abs(rows).max(axis=1, keepdims=True) / np.float32(127)
    put_half(blocks, 0, scale)
    blocks[:, 2:] = _round(rows * inverse(scale)).view(np.uint8)


def _round(scaled: np.ndarray) -> np.ndarray:
    """C's roundf as int8: halves away from zero. Adding 0.5 first would be wrong for the float just below a half."""
    whole = np.trunc(scaled)
    whole += np.copysign(np.abs(scaled - whole) >= np.float32(0.5), scaled)
    return whole.astype(np.int8)


def _quantize_tq1_0(rows: np.ndarray, blocks: np.ndarray) -> None:
    blocks[:, :52] = pack_trits(_ternary(rows, blocks, 52))


def _quantize_tq2_0(rows: np.ndarray, blocks: np.ndarray) -> None:
    blocks[:, :64] = pack(_ternary(rows, blocks, 64), 2, 32)


def _ternary(rows: np.ndarray, blocks: np.ndarray, start: int) -> np.ndarray:
    """Fills d at byte `start`; returns codes 0 to 2, uint8 (blocks, 256)."""
    scale = np.abs(rows).max(axis=1, keepdims=True)
    put_half(blocks, start, scale)
    return (_round(rows * inverse(scale)) + np.int8(1)).view(np.uint8)


def _quantize_mxfp4(rows: np.ndarray, blocks: np.ndarray) -> None:
    peak = np.abs(rows).max(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log2(peak)).clip(-125).astype(np.int32) + 125  # the peak is 4 to 8 times the scale
    blocks[:, :1] = exponent
    levels = np.ldexp(np.float32(1), exponent - 128) * np.array(MXFP4_VALUES, np.float32)
    blocks[:, 1:] = pack(np.abs(levels[:, None] - rows[:, :, None]).argmin(axis=2).astype(np.uint8), 4, 16)


_QUANTIZERS: dict[str, Callable[[np.ndarray, np.ndarray], None]] = {
    "F16": _quantize_f16,
    "BF16": _quantize_bf16,
    "Q4_0": _quantize_q4_0,
    "Q4_1": _quantize_q4_1,
    "Q5_0": _quantize_q5_0,
    "Q5_1": _quantize_q5_1,
    "Q8_0": _quantize_q8_0,
    "Q2_K": quantize_q2_k,
    "Q3_K": quantize_q3_k,
    "Q4_K": quantize_q4_k,
    "Q5_K": quantize_q5_k,
    "Q6_K": quantize_q6_k,
    "IQ4_NL": quantize_iq4_nl,
    "IQ4_XS": quantize_iq4_xs,
    "MXFP4": _quantize_mxfp4,
    "TQ1_0": _quantize_tq1_0,
    "TQ2_0": _quantize_tq2_0,
}
