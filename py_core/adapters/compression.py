"""The nearest matrix of a given rank (Eckart and Young, 1936), to a product or a sum of products of small matrices.

All in float64; the result is float32. Singular values below a millionth of the largest are dropped, as they may be
rounding errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from py_core.adapters.lora import AdapterError, LoraAdapter, LoraPair
from py_core.limits import MAX_ADAPTER_RANK

_SMALLEST = 1e-6
"""The smallest singular value that is kept, relative to the largest."""


@dataclass(frozen=True)
class Compressed:
    """A pair of a smaller rank. `lost` is the squared Frobenius norm of what it leaves out, `whole` that of all."""

    pair: LoraPair
    lost: float
    whole: float

    @property
    def error(self) -> float:
        """The relative Frobenius error."""
        return (self.lost / self.whole) ** 0.5 if self.whole else 0.0


@dataclass(frozen=True)
class Merged:
    """An adapter, and the cost of its limited rank: relative Frobenius errors, per tensor and overall, against the
    method's result without a limit on the rank."""

    adapter: LoraAdapter
    errors: Mapping[str, float] = field(default_factory=dict)
    error: float = 0.0


def compress(adapter: LoraAdapter, rank: int) -> Merged:
    """Replace each pair by the nearest one of at most `rank`. Raises AdapterError if no adapter can have this rank."""
    found = {
        name: compress_product(pair.scale * pair.b.astype(np.float64), pair.a.astype(np.float64), rank)
        for name, pair in adapter.pairs.items()
    }
    return merged_of(adapter, found)


def merged_of(like: LoraAdapter, found: Mapping[str, Compressed]) -> Merged:
    """`like` with these pairs instead, and their errors."""
    whole = sum(one.whole for one in found.values())
    return Merged(
        replace(like, pairs={name: one.pair for name, one in found.items()}),
        {name: one.error for name, one in found.items()},
        (sum(one.lost for one in found.values()) / whole) ** 0.5 if whole else 0.0,
    )


def compress_product(b: np.ndarray, a: np.ndarray, rank: int) -> Compressed:
    """Compress b @ a, with b (out, k) and a (k, in), without forming the product: by QR factors of both."""
    _check_rank(rank)
    outer, r_outer = np.linalg.qr(b)
    inner, r_inner = np.linalg.qr(a.T)
    left, values, right = np.linalg.svd(r_outer @ r_inner.T)
    kept = _kept(values, rank)
    return _compressed(outer @ left[:, :kept], right[:kept] @ inner.T, values, kept)


def compress_matrix(matrix: np.ndarray, rank: int) -> Compressed:
    """Compress an (out, in) matrix, by the eigenvectors of the smaller of its two Gram matrices."""
    _check_rank(rank)
    if matrix.shape[0] > matrix.shape[1]:
        other = compress_matrix(matrix.T, rank)
        return replace(
            other, pair=LoraPair(np.ascontiguousarray(other.pair.b.T), np.ascontiguousarray(other.pair.a.T), 1.0)
        )
    squares, vectors = np.linalg.eigh(matrix @ matrix.T)
    values, vectors = np.sqrt(squares[::-1].clip(0)), vectors[:, ::-1]
    kept = _kept(values, rank)
    left = vectors[:, :kept]
    rows = left.T @ matrix
    return _compressed(left, rows / np.maximum(values[:kept, None], np.finfo(np.float64).tiny), values, kept)


def _compressed(left: np.ndarray, right: np.ndarray, values: np.ndarray, kept: int) -> Compressed:
    """Build the pair from orthonormal left (out, kept) and right (kept, in): each gets half of the singular values."""
    roots = np.sqrt(values[:kept])
    pair = LoraPair((roots[:, None] * right).astype(np.float32), (left * roots).astype(np.float32), 1.0)
    return Compressed(pair, float((values[kept:] ** 2).sum()), float((values**2).sum()))


def _kept(values: np.ndarray, rank: int) -> int:
    """The number of singular values, largest first, to keep; at least one, since a pair has a rank."""
    return max(min(rank, int((values > values[0] * _SMALLEST).sum())), 1)


def _check_rank(rank: int) -> None:
    if not 1 <= rank <= MAX_ADAPTER_RANK:
        raise AdapterError(
            "adapter.bad-rank",
            "An adapter cannot have the rank {rank}: choose one of 1 to {most}.",
            rank=rank,
            most=MAX_ADAPTER_RANK,
        )
