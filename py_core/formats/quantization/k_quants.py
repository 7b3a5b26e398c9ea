"""Encodes the formats whose scales are searched: K-quants and IQ4.

Each function takes float32 (blocks, block_size), finite, and fills uint8 (blocks, block_bytes) with blocks.py's layout.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from py_core.formats.quantization.bits import pack, pack_iq4_scales, pack_q3_scales, pack_scales
from py_core.formats.quantization.blocks import IQ4_VALUES
from py_core.formats.quantization.scale_search import (
    fit_scale,
    fit_scale_and_minimum,
    fit_two_units,
    fit_units,
    to_half,
)

_MOST = 1e9
"""Larger than any value in these formats; its squares are far from overflowing."""


def put_half(blocks: np.ndarray, start: int, column: np.ndarray) -> None:
    """Store one number per block, (blocks, 1), as a half at byte `start`. Raises ValueError if one is too large."""
    blocks[:, start : start + 2] = to_half(column).view(np.uint8).reshape(-1, 2)


def _importance(groups: np.ndarray) -> np.ndarray:
    """Element weights for formats with minima, as in ggml for Q4_K and Q5_K: the group's root mean square plus |x|."""
    if max(groups.max(), -groups.min()) > _MOST:
        raise ValueError("an element is too large for the half-precision numbers that its scale is stored in")
    return np.sqrt(np.mean(groups * groups, axis=2, keepdims=True)) + np.abs(groups)


def _signed_importance(groups: np.ndarray) -> np.ndarray:
    """Element weights for the others. ggml uses x * x alone, which costs small elements more than large ones gain."""
    return _importance(groups) * np.abs(groups)


def quantize_q2_k(rows: np.ndarray, blocks: np.ndarray) -> None:
    groups = rows.reshape(-1, 16, 16)
    reaches = [3 + 0.1 * i for i in range(-5, 11)]
    units, numbers, depths, codes = _with_minima(groups, 3, reaches, 15)
    blocks[:, :16] = numbers | depths << 4
    blocks[:, 16:80] = pack(codes, 2, 32)
    _put_units(blocks, 80, units)


def quantize_q4_k(rows: np.ndarray, blocks: np.ndarray) -> None:
    codes = _six_bits(rows, blocks, 15, [15 + 0.1 * i for i in range(-10, 11)])
    blocks[:, 16:] = pack(codes, 4, 32)


def quantize_q5_k(rows: np.ndarray, blocks: np.ndarray) -> None:
    codes = _six_bits(rows, blocks, 31, [31 + 0.1 * i for i in range(-5, 11)])
    blocks[:, 16:48] = pack(codes >> 4, 1, 32)
    blocks[:, 48:] = pack(codes, 4, 32)


def _six_bits(rows: np.ndarray, blocks: np.ndarray, most: int, reaches: list[float]) -> np.ndarray:
    """Fills d, m, s and t of Q4_K and Q5_K; returns codes 0..most, uint8 (blocks, 256)."""
    groups = rows.reshape(-1, 8, 32)
    units, numbers, depths, codes = _with_minima(groups, most, reaches, 63)
    _put_units(blocks, 0, units)
    blocks[:, 4:16] = pack_scales(numbers, depths)
    return codes


def _with_minima(
    groups: np.ndarray, most: int, reaches: list[float], top: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Units (blocks, 2), and as uint8: scale and minimum numbers (blocks, groups) and codes (blocks, elements)."""
    weights = _importance(groups)
    fitted = fit_scale_and_minimum(groups, weights, most, reaches)
    units, numbers, depths, codes = fit_two_units(groups, weights, most, fitted, top)
    flat = codes.reshape(len(groups), -1)
    return units, numbers.astype(np.uint8), depths.astype(np.uint8), flat.astype(np.uint8)


def _put_units(blocks: np.ndarray, start: int, units: np.ndarray) -> None:
    put_half(blocks, start, units[:, :1])
    put_half(blocks, start + 2, units[:, 1:])


def quantize_q3_k(rows: np.ndarray, blocks: np.ndarray) -> None:
    groups = rows.reshape(-1, 16, 16)
    # The largest element may lie at either end, one of which has an extra code.
    reaches = [-4 - 0.1 * i for i in range(-9, 10)] + [3 + 0.1 * i for i in range(-4, 8)]
    unit, scales, codes = _signed(groups, 4, reaches, 32)
    blocks[:, :32] = pack(codes >> 2, 1, 32)
    blocks[:, 32:96] = pack(codes, 2, 32)
    blocks[:, 96:108] = pack_q3_scales(scales)
    put_half(blocks, 108, unit)


def quantize_q6_k(rows: np.ndarray, blocks: np.ndarray) -> None:
    groups = rows.reshape(-1, 16, 16)
    unit, scales, codes = _signed(groups, 32, [-32 - 0.1 * i for i in range(-9, 10)], 128)
    blocks[:, :128] = pack(codes, 4, 64)
    blocks[:, 128:192] = pack(codes >> 4, 2, 32)
    blocks[:, 192:208] = scales.view(np.uint8)
    put_half(blocks, 208, unit)


def _signed(groups: np.ndarray, half: int, reaches: list[float], top: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Units (blocks, 1), int8 scales of -top..top - 1 (blocks, groups), uint8 codes (blocks, elements)."""

    def nearest(values: np.ndarray) -> np.ndarray:
        return np.clip(np.rint(values, out=values), -half, half - 1, out=values)

    weights = _signed_importance(groups)
    scale = fit_scale(groups, weights, nearest, reaches)
    unit, scales, levels = fit_units(groups, weights, nearest, scale, -top, top - 1)
    codes = (levels + np.float32(half)).astype(np.uint8).reshape(len(groups), -1)
    return unit, scales.astype(np.int8), codes


_IQ4_REACHES = [end + float(i) for end in (IQ4_VALUES[0], IQ4_VALUES[-1]) for i in range(-7, 11)]


@cache
def _levels() -> np.ndarray:
    return np.array(IQ4_VALUES, np.float32)


@cache
def _codes() -> np.ndarray:
    """The code of the nearest value for each half step from -128 on: boundaries are multiples of a half."""
    return np.abs(np.arange(-128, 128, 0.5)[:, None] + 0.25 - _levels()).argmin(axis=1).astype(np.uint8)


def _iq4_codes(values: np.ndarray) -> np.ndarray:
    """Codes 0..15 of elements in units of their scale."""
    halves = np.clip(np.floor(values * 2), -256, 255)
    return _codes()[(halves + 256).astype(np.int16)]


def _iq4_nearest(values: np.ndarray) -> np.ndarray:
    return _levels()[_iq4_codes(values)]


def quantize_iq4_nl(rows: np.ndarray, blocks: np.ndarray) -> None:
    groups = rows.reshape(-1, 1, 32)
    scale = fit_scale(groups, _signed_importance(groups), _iq4_nearest, _IQ4_REACHES)
    put_half(blocks, 0, scale)
    blocks[:, 2:] = pack(_iq4_codes(rows * inverse(to_half(scale).astype(np.float32))), 4, 16)


def quantize_iq4_xs(rows: np.ndarray, blocks: np.ndarray) -> None:
    groups = rows.reshape(-1, 8, 32)
    weights = _signed_importance(groups)
    scale = fit_scale(groups, weights, _iq4_nearest, _IQ4_REACHES)
    unit, scales, levels = fit_units(groups, weights, _iq4_nearest, scale, -32, 31)
    put_half(blocks, 0, unit)
    blocks[:, 2:8] = pack_iq4_scales(scales.astype(np.int8))
    blocks[:, 8:] = pack(_iq4_codes(levels).reshape(len(rows), -1), 4, 16)


def inverse(scale: np.ndarray) -> np.ndarray:
    """1 / scale, and 0 if the scale is 0 or so small that its inverse would overflow (as a half it is 0 anyway)."""
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=np.abs(scale) >= np.float32(1e-38))
