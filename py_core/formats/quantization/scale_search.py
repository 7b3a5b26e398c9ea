"""Searches the scales of groups of elements for the smallest loss, as ggml's quantizers do.

A scale that just covers a group wastes codes on its largest element. So several scales around it are tried: each gives
codes, and the codes give the scale (and minimum) that fits them best, by least squares. Elements are weighted, large
ones more, since more depends on them. If the scales themselves are rounded to a few bits, the neighbours of the rounded
ones are tried, too, and their unit is fitted once more; ggml stops before that.

Shapes: groups and weights are float32 (blocks, groups, elements); a scale or minimum is (blocks, groups), a unit
(blocks, 1).

Source of the candidates and the weights: make_qkx2_quants, make_qx_quants, quantize_row_iq4_nl_impl in ggml-quants.c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import TypeAlias

import numpy as np

Nearest: TypeAlias = "Callable[[np.ndarray], np.ndarray]"
"""The levels of a format nearest to elements in units of their scale: float32, both of one shape."""


def sums(weighted: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The sum of the products in each group: (blocks, groups)."""
    return np.einsum("bge,bge->bg", weighted, values)


def divide(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """The quotient, and 0 if the denominator is 0 or so small that its inverse would overflow."""
    shape = np.broadcast_shapes(numerator.shape, denominator.shape)
    return np.divide(
        numerator, denominator, out=np.zeros(shape, np.float32), where=np.abs(denominator) >= np.float32(1e-38)
    )


def to_half(values: np.ndarray) -> np.ndarray:
    """Halves, '<f2'. Raises ValueError if one is too large."""
    with np.errstate(over="ignore"):
        halves = values.astype("<f2")
    if not np.isfinite(halves).all():
        raise ValueError("an element, or a block's scale, is too large for the half-precision number that stores it")
    return halves


def _half(values: np.ndarray) -> np.ndarray:
    """The values rounded to halves, as float32; infinite if they are too large."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def fit_scale(groups: np.ndarray, weights: np.ndarray, nearest: Nearest, reaches: Iterable[float]) -> np.ndarray:
    """The scale of each group, of either sign, with the smallest loss: x = scale * level.

    `reaches` are levels, with their sign, to which the largest element is mapped for a try.
    """
    peak = np.take_along_axis(groups, np.abs(groups).argmax(axis=2, keepdims=True), axis=2)
    weighted = weights * groups
    best, scale = np.zeros(groups.shape[:2], np.float32), np.zeros(groups.shape[:2], np.float32)
    for reach in reaches:
        levels = nearest(groups * divide(np.float32(reach) * np.ones_like(peak), peak))
        along, square = sums(weighted, levels), sums(weights * levels, levels)
        found = divide(along, square)
        gain = found * along  # the reduction of the error relative to zeros
        better = gain > best
        best[better], scale[better] = gain[better], found[better]
    return scale


def fit_units(
    groups: np.ndarray, weights: np.ndarray, nearest: Nearest, scale: np.ndarray, low: int, high: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`scale` in units of one half per block: (units as float32, int (blocks, groups) of low..high, levels as float32).

    The largest scale becomes low, or as near to it as the half allows.
    """
    largest = np.take_along_axis(scale, np.abs(scale).argmax(axis=1, keepdims=True), axis=1)
    unit = to_half(largest / np.float32(low)).astype(np.float32)
    weighted = weights * groups
    best = np.full((len(groups), 1), np.inf, np.float32)  # relative to the squares of x: zeros have 0
    kept = (unit, np.zeros_like(scale), np.zeros_like(groups))
    for _ in range(2):
        whole = np.clip(np.rint(divide(scale, unit)), low, high)
        tried = np.zeros(scale.shape, np.float32)  # zero may be better than any step, if halves are too coarse
        number, levels = np.zeros_like(scale), np.zeros_like(groups)
        for step in (0, -1, 1) if high < 64 else (0,):
            beside = np.clip(whole + np.float32(step), low, high)
            size = unit * beside
            found = nearest(groups * divide(np.ones_like(size), size)[:, :, None])
            error = size * (size * sums(weights * found, found) - 2 * sums(weighted, found))
            better = error < tried
            tried[better], number[better], levels[better] = error[better], beside[better], found[better]
        error = tried.sum(axis=1, keepdims=True)
        kept = _keep(error < best, (unit, number, levels), kept)
        best = np.minimum(error, best)
        steps = number[:, :, None] * levels
        fitted = divide((weighted * steps).sum(axis=(1, 2)), (weights * steps * steps).sum(axis=(1, 2)))[:, None]
        unit = np.where(np.isfinite(_half(fitted)), _half(fitted), unit)
    return kept


def fit_scale_and_minimum(
    groups: np.ndarray, weights: np.ndarray, most: int, reaches: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """The scale and the minimum of each group with the smallest loss: x = scale * code - minimum, codes 0..most,
    minimum >= 0.

    `reaches` are codes, besides `most`, to which the largest element is mapped for a try.
    """
    low = np.minimum(groups.min(axis=2, keepdims=True), 0)
    raised = groups - low
    width = raised.max(axis=2, keepdims=True)
    weight, total = weights.sum(axis=2), sums(weights, groups)
    weighted = weights * groups
    scale, minimum = width[:, :, 0] / np.float32(most), -low[:, :, 0]
    best: np.ndarray | None = None
    for reach in (most, *reaches):
        codes = np.rint(raised * divide(np.float32(reach) * np.ones_like(width), width))
        np.minimum(codes, most, out=codes)
        heavy = weights * codes
        first, second, along = heavy.sum(axis=2), sums(heavy, codes), sums(weighted, codes)
        determinant = weight * second - first * first
        slope = divide(weight * along - total * first, determinant)
        bottom = divide(second * total - first * along, determinant)
        above = bottom > 0  # minima have no sign
        slope[above], bottom[above] = divide(along, second)[above], 0
        if best is None:  # the scale that just covers the group, if the codes determine no better one
            best = _loss(scale, -minimum, weight, total, first, second, along)
        error = _loss(slope, bottom, weight, total, first, second, along)
        better = (error < best) & (determinant > 0)
        best[better], scale[better], minimum[better] = error[better], slope[better], -bottom[better]
    return scale, minimum


def _loss(
    scale: np.ndarray, bottom: np.ndarray, weight: np.ndarray, total: np.ndarray, first: np.ndarray,
    second: np.ndarray, along: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """The weighted squares of scale * code + bottom - x, minus those of x: from the sums of weights, x, codes, squared
    codes and codes times x."""
    return scale * (scale * second + 2 * bottom * first - 2 * along) + bottom * (bottom * weight - 2 * total)


def fit_two_units(
    groups: np.ndarray, weights: np.ndarray, most: int, fitted: tuple[np.ndarray, np.ndarray], top: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The scale and minimum of groups in units of two halves per block.

    Returns these units, float32 (blocks, 2); scale and minimum numbers 0..top, (blocks, groups); and codes 0..most.
    """
    scale, minimum = fitted
    units = to_half(np.stack([scale.max(axis=1), minimum.max(axis=1)], axis=1) / np.float32(top)).astype(np.float32)
    weight, total = weights.sum(axis=2), sums(weights, groups)
    weighted = weights * groups
    best = np.full((len(groups), 1), np.inf, np.float32)  # relative to the squares of x: zeros have 0
    kept = (units, np.zeros_like(scale), np.zeros_like(scale), np.zeros_like(groups))
    for _ in range(2):
        whole, depth = (
            np.clip(np.rint(divide(value, units[:, i : i + 1])), 0, top) for i, value in enumerate((scale, minimum))
        )
        tried = np.zeros(scale.shape, np.float32)  # zero may be better than any step, if halves are too coarse
        number, deep, codes = np.zeros_like(scale), np.zeros_like(scale), np.zeros_like(groups)
        for step, more in product((0, -1, 1), (0, -1, 1)):
            beside, below = np.clip(whole + np.float32(step), 0, top), np.clip(depth + np.float32(more), 0, top)
            size, bottom = units[:, :1] * beside, -units[:, 1:] * below
            found = (groups - bottom[:, :, None]) * divide(np.ones_like(size), size)[:, :, None]
            found = np.clip(np.rint(found, out=found), 0, most, out=found)
            heavy = weights * found
            error = _loss(size, bottom, weight, total, heavy.sum(axis=2), sums(heavy, found), sums(weighted, found))
            better = error < tried
            tried[better], number[better], deep[better] = error[better], beside[better], below[better]
            codes[better] = found[better]
        error = tried.sum(axis=1, keepdims=True)
        kept = _keep(error < best, (units, number, deep, codes), kept)
        best = np.minimum(error, best)
        units = _fit_both(groups, weights, number[:, :, None] * codes, deep, units)
    return kept


def _fit_both(
    groups: np.ndarray, weights: np.ndarray, steps: np.ndarray, deep: np.ndarray, units: np.ndarray
) -> np.ndarray:
    """The two units (blocks, 2), rounded to halves, that best fit codes times numbers: x = d * steps - m * deep."""
    heavy = weights * steps
    aa, ab = (heavy * steps).sum(axis=(1, 2)), (heavy.sum(axis=2) * deep).sum(axis=1)
    bb = (weights.sum(axis=2) * deep * deep).sum(axis=1)
    ax, bx = (heavy * groups).sum(axis=(1, 2)), (sums(weights, groups) * deep).sum(axis=1)
    determinant = aa * bb - ab * ab
    both = determinant > np.float32(1e-6) * aa * bb
    d = np.where(both, divide(ax * bb - ab * bx, determinant), divide(ax, aa))
    m = np.where(both, divide(ab * ax - aa * bx, determinant), units[:, 1])
    found = _half(np.stack([d, m], axis=1))
    return np.where(np.isfinite(found) & (found >= 0), found, units)


def _keep(better: np.ndarray, new: tuple[np.ndarray, ...], old: tuple[np.ndarray, ...]) -> tuple:
    """For each block, the new arrays if they are better, (blocks, 1), else the old ones."""
    return tuple(
        np.where(better.reshape(-1, *[1] * (one.ndim - 1)), one, other) for one, other in zip(new, old, strict=True)
    )
