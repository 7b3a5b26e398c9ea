"""Merges several adapters into one.

The weight changes scale * b @ a are combined, never a with a and b with b (as PEFT's "linear" and "ties" do, which
adds products of one adapter's a with another's b). The result is reduced to a rank by its SVD, and reports the error
of that. A tensor that an adapter does not change counts as zeros.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from py_core.adapters.compression import Compressed, Merged, compress_matrix, compress_product, merged_of
from py_core.adapters.lora import MAX_RANK, AdapterError, LoraAdapter, LoraPair
from py_core.display import one_line, shown

_PARALLEL = 0.9995
"""From this cosine on, the arc between two changes is too short, and slerp interpolates linearly."""

Pairs = Sequence[LoraPair | None]
"""The pairs of one tensor, one from each adapter."""


@dataclass(frozen=True)
class MergeSettings:
    """weights: one for each adapter, in their order
    rank: the most that the result may have
    density: share of the numbers that ties and dare keep, over 0 and at most 1
    seed: for the numbers that dare drops
    """

    weights: Sequence[float]
    rank: int = MAX_RANK
    density: float = 0.2
    seed: int = 0


class _Combine(Protocol):
    def __call__(self, tensor: str, pairs: Pairs, settings: MergeSettings, /) -> Compressed: ...


@dataclass(frozen=True)
class Method:
    """summary: a description in one line
    normalized: True if the weights are divided by their sum
    adapters: the number of adapters it takes, 0 for two or more
    positive: True if the weights must be over 0
    """

    combine: _Combine
    summary: str
    normalized: bool = False
    adapters: int = 0
    positive: bool = False


def merge(
    method: str, adapters: Sequence[LoraAdapter], weights: Sequence[float] | None = None, *,
    rank: int = MAX_RANK, density: float = 0.2, seed: int = 0, name: str = "",
) -> Merged:  # fmt: skip
    """Merge several adapters into one by one of METHODS; the other arguments are those of MergeSettings.

    weights: 1 for each by default. `average`, `slerp` and `dare` divide them by their sum.
    name: of the result; by default it names the method and the adapters

    The same arguments give the same result. Raises AdapterError if the adapters do not belong to one model, or an
    argument is invalid.
    """
    if method not in METHODS:
        raise AdapterError(
            "adapter.merge-method",
            "There is no merge method {method}: choose one of {methods}.",
            method=shown(method),
            methods=", ".join(METHODS),
        )
    chosen = METHODS[method]
    given = [1.0] * len(adapters) if weights is None else [float(weight) for weight in weights]
    _check(method, chosen, adapters, given)
    if not 0 < density <= 1:
        raise AdapterError(
            "adapter.merge-density",
            "A density of {density} keeps nothing or too much: choose one above 0 and at most 1.",
            density=density,
        )
    shares = [weight / sum(given) for weight in given] if chosen.normalized else given
    settings = MergeSettings(shares, rank, density, seed)
    names = [adapter.name for adapter in adapters]
    metadata = {"merged by": method, "merged from": json.dumps(names), "weights": json.dumps(given)}
    if method in ("ties", "dare"):
        metadata["density"] = repr(density)
    if method == "dare":
        metadata["seed"] = repr(seed)
    tensors = sorted({tensor for adapter in adapters for tensor in adapter.pairs})
    found = {tensor: chosen.combine(tensor, _pairs(tensor, adapters), settings) for tensor in tensors}
    base = next((adapter.base_sha256 for adapter in adapters if adapter.base_sha256), "")
    return merged_of(LoraAdapter(name or one_line(f"{method} of {', '.join(names)}"), {}, base, metadata), found)


def _pairs(tensor: str, adapters: Sequence[LoraAdapter]) -> Pairs:
    """Raises AdapterError if their shapes differ."""
    pairs = [adapter.pairs.get(tensor) for adapter in adapters]
    if len({(len(pair.b), pair.a.shape[1]) for pair in pairs if pair}) > 1:
        raise AdapterError(
            "adapter.merge-shapes",
            "The adapters have different shapes for {tensor}: they were made for different models.",
            tensor=shown(tensor),
        )
    return pairs


def _check(method: str, chosen: Method, adapters: Sequence[LoraAdapter], weights: Sequence[float]) -> None:
    if len(adapters) < 2 or (chosen.adapters and len(adapters) != chosen.adapters):
        wanted = "two" if chosen.adapters else "two or more"
        raise AdapterError(
            "adapter.merge-count",
            "{method} merges {wanted} adapters, but there {are}.",
            method=method,
            wanted=wanted,
            are=_are(len(adapters)),
        )
    if len({adapter.base_sha256 for adapter in adapters} - {""}) > 1:
        raise AdapterError(
            "adapter.merge-models", "The adapters were made for different model files: choose adapters of one model."
        )
    if len(weights) != len(adapters):
        raise AdapterError(
            "adapter.merge-weights",
            "There {are} for {count} adapters: give one weight for each.",
            are=_are(len(weights)),
            count=len(adapters),
        )
    if not all(math.isfinite(weight) for weight in weights) or (chosen.positive and min(weights) <= 0):
        kind = "over 0" if chosen.positive else "finite"
        raise AdapterError(
            "adapter.merge-kind",
            "{method} needs weights that are all {kind}, but these are {weights}.",
            weights=shown(list(weights)),
            kind=kind,
            method=method,
        )
    if chosen.normalized and abs(sum(weights)) < 1e-6:
        raise AdapterError(
            "adapter.merge-nothing",
            "The weights {weights} add up to 0, but {method} divides by their sum: choose other weights.",
            weights=shown(list(weights)),
            method=method,
        )


def _are(count: int) -> str:
    return "is 1" if count == 1 else f"are {count}"


def _linear(tensor: str, pairs: Pairs, settings: MergeSettings) -> Compressed:
    return _sum(pairs, settings.weights, settings.rank)


def _sum(pairs: Pairs, weights: Sequence[float], rank: int) -> Compressed:
    """The weighted sum, from the small matrices alone: b concatenated, a stacked."""
    there = [(pair, weight) for pair, weight in zip(pairs, weights, strict=True) if pair]
    b = np.concatenate([weight * pair.scale * pair.b.astype(np.float64) for pair, weight in there], 1)
    return compress_product(b, np.concatenate([pair.a.astype(np.float64) for pair, _ in there]), rank)


def _slerp(tensor: str, pairs: Pairs, settings: MergeSettings) -> Compressed:
    """Interpolate along the arc between two changes of a tensor, by the second weight's share (Shoemake, 1985)."""
    one, other = pairs
    share = settings.weights[1]
    weights = [1 - share, share]
    if one and other:
        norms = (_inner(one, one) * _inner(other, other)) ** 0.5
        cosine = _inner(one, other) / norms if norms else 1.0
        if abs(cosine) < _PARALLEL:
            angle = math.acos(cosine)
            weights = [math.sin((1 - share) * angle) / math.sin(angle), math.sin(share * angle) / math.sin(angle)]
    return _sum(pairs, weights, settings.rank)


def _inner(one: LoraPair, other: LoraPair) -> float:
    """The inner product of both changes, from the small matrices alone."""
    outer = one.b.astype(np.float64).T @ other.b
    inner = one.a.astype(np.float64) @ other.a.T
    return one.scale * other.scale * float((outer * inner).sum())


def _ties(tensor: str, pairs: Pairs, settings: MergeSettings) -> Compressed:
    """TIES (arXiv 2306.01708): keep the numbers of largest size in each change. Each number of the result has the sign
    of their weighted sum, and is the weighted mean of the numbers of that sign."""
    changes = [_trimmed(change, settings.density) for change in _changes(pairs)]
    sign = np.sign(sum(weight * change for weight, change in zip(settings.weights, changes, strict=True)))
    total, weight_of_all = np.zeros(sign.shape), np.zeros(sign.shape)
    for weight, change in zip(settings.weights, changes, strict=True):
        agrees = (change != 0) & (np.sign(change) == sign)
        total += np.where(agrees, weight * change, 0)
        weight_of_all += np.where(agrees, weight, 0)
    return compress_matrix(total / np.where(weight_of_all > 0, weight_of_all, 1), settings.rank)


def _trimmed(change: np.ndarray, density: float) -> np.ndarray:
    """Zero all but the largest numbers: keep a share of `density`, at least one."""
    kept = max(round(density * change.size), 1)
    smallest = np.partition(np.abs(change), change.size - kept, None)[change.size - kept]
    return np.where(np.abs(change) >= smallest, change, 0)


def _dare(tensor: str, pairs: Pairs, settings: MergeSettings) -> Compressed:
    """DARE (arXiv 2311.03099): drop numbers at random and divide the others by the density; then take the weighted
    average."""
    total: np.ndarray | float = 0.0
    for number, (weight, change) in enumerate(zip(settings.weights, _changes(pairs), strict=True)):
        draw = np.random.default_rng([settings.seed, number, zlib.crc32(tensor.encode())])
        kept = draw.random(change.shape) < settings.density
        total = total + weight / settings.density * np.where(kept, change, 0)
    return compress_matrix(np.asarray(total), settings.rank)


def _changes(pairs: Pairs) -> list[np.ndarray]:
    """The changes of the weights: float64 (out, in)."""
    shape = next((len(pair.b), pair.a.shape[1]) for pair in pairs if pair)
    return [pair.scale * (pair.b.astype(np.float64) @ pair.a) if pair else np.zeros(shape) for pair in pairs]


METHODS: Mapping[str, Method] = {
    "average": Method(_linear, "the weighted average of the changes", normalized=True),
    "task-arithmetic": Method(_linear, "the weighted sum of the changes (arXiv 2212.04089)"),
    "slerp": Method(_slerp, "a point on the arc between two changes", normalized=True, adapters=2),
    "ties": Method(_ties, "the largest numbers of the changes, where their signs agree", positive=True),
    "dare": Method(_dare, "the average of a random part of the changes, scaled up", normalized=True),
}
"""By the names that `sonata` takes for --merge."""
