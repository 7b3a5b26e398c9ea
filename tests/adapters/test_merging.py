"""Merging equals plain numpy on the whole matrices, and reports the cost of the rank."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from py_core.adapters.compression import Merged, compress, compress_matrix
from py_core.adapters.lora import MAX_RANK, AdapterError, LoraAdapter, LoraPair
from py_core.adapters.merging import METHODS, merge
from tests.adapters.adapter_models import described, drawn

SHAPES = {"wide": (9, 14), "tall": (17, 6), "square": (8, 8)}
FULL = 32
"""A rank that loses nothing of SHAPES."""


def made(seed: int, rank: int = 3, without: str = "") -> LoraAdapter:
    rng = np.random.default_rng(seed)
    pairs = {
        name: LoraPair(
            rng.standard_normal((rank, columns)).astype(np.float32),
            rng.standard_normal((rows, rank)).astype(np.float32),
            float(rng.uniform(0.2, 2)),
        )
        for name, (rows, columns) in SHAPES.items() if name != without
    }  # fmt: skip
    return LoraAdapter(f"made {seed}", pairs, "ab" * 32)


adapters = st.builds(made, st.integers(0, 1 << 30), st.integers(1, 5), st.sampled_from(["", "wide"]))
weights = st.floats(0.1, 3)


def change(adapter: LoraAdapter, tensor: str) -> np.ndarray:
    pair = adapter.pairs.get(tensor)
    return pair.scale * (pair.b.astype(np.float64) @ pair.a.astype(np.float64)) if pair else np.zeros(SHAPES[tensor])


def of_rank(matrix: np.ndarray, rank: int) -> np.ndarray:
    """The nearest, by the SVD of all of it."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    return (left[:, :rank] * values[:rank]) @ right[:rank]


def average(changes: list[np.ndarray], weights: list[float], tensor: str) -> np.ndarray:
    return sum(weight * one for weight, one in zip(weights, changes, strict=True)) / sum(weights)


def task_arithmetic(changes: list[np.ndarray], weights: list[float], tensor: str) -> np.ndarray:
    return sum(weight * one for weight, one in zip(weights, changes, strict=True))


def slerp(changes: list[np.ndarray], weights: list[float], tensor: str) -> np.ndarray:
    one, other = changes
    share = weights[1] / sum(weights)
    if not one.any() or not other.any():
        return (1 - share) * one + share * other
    cosine = (one * other).sum() / np.linalg.norm(one) / np.linalg.norm(other)
    if abs(cosine) > 0.9995:
        return (1 - share) * one + share * other
    angle = np.arccos(cosine)
    return (np.sin((1 - share) * angle) * one + np.sin(share * angle) * other) / np.sin(angle)


DENSITY = 0.3


def ties(changes: list[np.ndarray], weights: list[float], tensor: str) -> np.ndarray:
    """Number by number, as in section 4 of the paper."""
    kept = []
    for one in changes:
        flat = one.reshape(-1)
        largest = np.argsort(-np.abs(flat))[: max(round(DENSITY * flat.size), 1)]
        kept.append([value if at in set(largest.tolist()) else 0.0 for at, value in enumerate(flat.tolist())])
    merged = []
    for values in zip(*kept, strict=True):
        elected = np.sign(sum(weight * value for weight, value in zip(weights, values, strict=True)))
        agreeing = [(w, value) for w, value in zip(weights, values, strict=True) if value and np.sign(value) == elected]
        merged.append(sum(w * value for w, value in agreeing) / sum(w for w, _ in agreeing) if agreeing else 0.0)
    return np.array(merged).reshape(changes[0].shape)


def dare(changes: list[np.ndarray], weights: list[float], tensor: str) -> np.ndarray:
    total = np.zeros(changes[0].shape)
    for number, (weight, one) in enumerate(zip(weights, changes, strict=True)):
        drawn = np.random.default_rng([7, number, zlib.crc32(tensor.encode())]).random(one.shape)
        total += weight / sum(weights) * np.where(drawn < DENSITY, one / DENSITY, 0)
    return total


REFERENCES: dict[str, Callable[[list[np.ndarray], list[float], str], np.ndarray]] = {
    "average": average, "task-arithmetic": task_arithmetic, "slerp": slerp, "ties": ties, "dare": dare,
}  # fmt: skip


def merged(method: str, several: list[LoraAdapter], shares: list[float] | None = None, rank: int = FULL) -> Merged:
    return merge(method, several, shares, rank=rank, density=DENSITY, seed=7)


def test_every_method_has_a_reference() -> None:
    assert METHODS.keys() == REFERENCES.keys()


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=25)
@given(adapters, adapters, adapters, st.lists(weights, min_size=3, max_size=3), st.integers(1, 8))
def test_a_method_gives_what_plain_numpy_gives(
    method: str, one: LoraAdapter, other: LoraAdapter, third: LoraAdapter, shares: list[float], rank: int
) -> None:
    several = [one, other] if METHODS[method].adapters else [one, other, third]
    shares = shares[: len(several)]
    whole, small = merged(method, several, shares), merged(method, several, shares, rank)
    assert whole.error < 1e-5
    lost, norms = 0.0, 0.0
    for tensor in set().union(*(adapter.pairs for adapter in several)):
        expected = REFERENCES[method]([change(adapter, tensor) for adapter in several], shares, tensor)
        size = np.abs(expected).max()
        np.testing.assert_allclose(change(whole.adapter, tensor), expected, atol=2e-6 * size)
        nearest = of_rank(expected, rank)
        assert small.adapter.pairs[tensor].rank <= rank
        error = np.linalg.norm(expected - nearest) / np.linalg.norm(expected)
        np.testing.assert_allclose(small.errors[tensor], error, atol=1e-6)
        # Singular values that are next to each other may change places; the distance may not.
        ours = np.linalg.norm(expected - change(small.adapter, tensor)) / np.linalg.norm(expected)
        np.testing.assert_allclose(ours, error, atol=1e-5)
        lost += np.linalg.norm(expected - nearest) ** 2
        norms += np.linalg.norm(expected) ** 2
    np.testing.assert_allclose(small.error, (lost / norms) ** 0.5, atol=1e-6)


@pytest.mark.parametrize("method", ["average", "slerp"])
@settings(max_examples=25)
@given(adapters, weights, weights)
def test_merging_an_adapter_with_itself_gives_itself(method: str, one: LoraAdapter, a: float, b: float) -> None:
    again = merge(method, [one, one], [a, b])
    assert again.error < 1e-5
    for tensor, pair in one.pairs.items():
        assert again.adapter.pairs[tensor].rank == pair.rank
        np.testing.assert_allclose(change(again.adapter, tensor), change(one, tensor), atol=1e-5)


@settings(max_examples=25)
@given(adapters, adapters)
def test_what_is_added_can_be_taken_away_again(one: LoraAdapter, other: LoraAdapter) -> None:
    both = merge("task-arithmetic", [one, other], rank=FULL).adapter
    without = merge("task-arithmetic", [both, other], [1, -1], rank=FULL).adapter
    for tensor in both.pairs:
        np.testing.assert_allclose(change(without, tensor), change(one, tensor), atol=1e-4)


@settings(max_examples=25)
@given(adapters, adapters)
def test_the_order_of_adapters_does_not_matter(one: LoraAdapter, other: LoraAdapter) -> None:
    for method in ("average", "task-arithmetic", "slerp", "ties"):
        ours, theirs = merged(method, [one, other], [0.3, 0.7]), merged(method, [other, one], [0.7, 0.3])
        for tensor in ours.adapter.pairs:
            np.testing.assert_allclose(change(ours.adapter, tensor), change(theirs.adapter, tensor), atol=1e-4)


@settings(max_examples=25)
@given(adapters)
def test_keeping_every_number_changes_nothing(one: LoraAdapter) -> None:
    for method in ("ties", "dare"):
        again = merge(method, [one, one], density=1, rank=FULL).adapter
        for tensor in one.pairs:
            np.testing.assert_allclose(change(again, tensor), change(one, tensor), atol=1e-5)


def test_slerp_keeps_the_length_where_an_average_shortens_it() -> None:
    one, other = made(1), made(2)
    other = dataclasses.replace(other, pairs={
        name: dataclasses.replace(pair, scale=pair.scale * np.linalg.norm(change(one, name)) /
                                  np.linalg.norm(change(other, name))) for name, pair in other.pairs.items()
    })  # fmt: skip
    along, straight = merged("slerp", [one, other]).adapter, merged("average", [one, other]).adapter
    for tensor in SHAPES:
        length = np.linalg.norm(change(one, tensor))
        np.testing.assert_allclose(np.linalg.norm(change(along, tensor)), length, rtol=1e-5)
        assert np.linalg.norm(change(straight, tensor)) < 0.95 * length


def test_dare_is_the_average_on_average_and_the_same_for_the_same_seed() -> None:
    several = [made(1), made(2)]
    draws = [merge("dare", several, density=0.5, seed=seed, rank=FULL).adapter for seed in range(200)]
    again = merge("dare", several, density=0.5, seed=3, rank=FULL).adapter
    for tensor in SHAPES:
        np.testing.assert_array_equal(change(again, tensor), change(draws[3], tensor))
        assert np.abs(change(draws[3], tensor) - change(draws[4], tensor)).max() > 0.1
        expected = average([change(one, tensor) for one in several], [1, 1], tensor)
        mean = np.mean([change(draw, tensor) for draw in draws], 0)
        assert np.linalg.norm(mean - expected) < 0.12 * np.linalg.norm(expected)


@settings(max_examples=25)
@given(adapters, st.integers(1, 6))
def test_compressing_gives_the_nearest_of_the_rank(one: LoraAdapter, rank: int) -> None:
    small = compress(one, rank)
    for tensor, pair in small.adapter.pairs.items():
        expected = of_rank(change(one, tensor), rank)
        assert pair.rank == min(rank, one.pairs[tensor].rank)
        np.testing.assert_allclose(change(small.adapter, tensor), expected, atol=1e-4)
        error = np.linalg.norm(change(one, tensor) - expected) / np.linalg.norm(change(one, tensor))
        np.testing.assert_allclose(small.errors[tensor], error, atol=1e-6)
    assert (small.adapter.name, small.adapter.base_sha256) == (one.name, one.base_sha256)


def test_a_change_of_nothing_stays_one() -> None:
    nothing = LoraAdapter("nothing", {"t": LoraPair(np.ones((2, 5), np.float32), np.zeros((4, 2), np.float32), 1.0)})
    for small in (compress(nothing, 4), merge("ties", [nothing, nothing]), merge("slerp", [nothing, nothing])):
        assert small.adapter.pairs["t"].rank == 1
        assert not small.adapter.pairs["t"].delta.any()
        assert (small.errors, small.error) == ({"t": 0.0}, 0.0)


@pytest.mark.parametrize("shape", [(40, 70), (70, 40)])
def test_the_nearest_matrix_of_a_rank_is_found_from_either_side(shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(0).standard_normal(shape)
    small = compress_matrix(matrix, 5)
    np.testing.assert_allclose(small.pair.b.astype(np.float64) @ small.pair.a, of_rank(matrix, 5), atol=1e-5)
    assert (small.pair.b.shape, small.pair.a.shape) == ((shape[0], 5), (5, shape[1]))


def test_the_result_can_be_used_and_tells_where_it_comes_from() -> None:
    _, graph = described("llama")
    several = [drawn(graph, seed, rank=12) for seed in (1, 2)]
    one = merge("dare", several, [1, 3], density=0.4, seed=9).adapter
    assert one.rank == MAX_RANK
    assert one.base_sha256 == several[0].base_sha256
    assert one.name == "dare of drawn 1, drawn 2"
    assert one.metadata == {
        "merged by": "dare", "merged from": '["drawn 1", "drawn 2"]', "weights": "[1.0, 3.0]", "density": "0.4",
        "seed": "9",
    }  # fmt: skip
    assert merge("average", several, name="mine").adapter.name == "mine"


ONE, TWO = made(1), made(2)
OTHER_BASE = dataclasses.replace(TWO, base_sha256="cd" * 32)
OTHER_SHAPE = dataclasses.replace(TWO, pairs={"wide": TWO.pairs["tall"]})
REFUSED = {
    "an unknown method": (lambda: merge("mean", [ONE, TWO]), "choose one of average, task-arithmetic, slerp, ties"),
    "one adapter": (lambda: merge("average", [ONE]), "average merges two or more adapters, but there is 1"),
    "slerp of three": (lambda: merge("slerp", [ONE, TWO, TWO]), "slerp merges two adapters, but there are 3"),
    "other bases": (lambda: merge("average", [ONE, OTHER_BASE]), "made for different model files"),
    "other shapes": (lambda: merge("average", [ONE, OTHER_SHAPE]), "different shapes for 'wide'"),
    "weights missing": (lambda: merge("average", [ONE, TWO], [1]), "There is 1 for 2 adapters: give one weight"),
    "weights that cancel": (lambda: merge("average", [ONE, TWO], [1, -1]), "add up to 0"),
    "no number": (lambda: merge("task-arithmetic", [ONE, TWO], [1, float("nan")]), "weights that are all finite"),
    "a sign for ties": (lambda: merge("ties", [ONE, TWO], [1, -1]), "weights that are all over 0"),
    "no density": (lambda: merge("ties", [ONE, TWO], density=0), "choose one above 0 and at most 1"),
    "no rank": (lambda: merge("ties", [ONE, TWO], rank=0), "cannot have the rank 0"),
    "a huge rank": (lambda: compress(ONE, 5000), "cannot have the rank 5000: choose one of 1 to 1024"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_with_a_sentence(case: str) -> None:
    act, words = REFUSED[case]
    with pytest.raises(AdapterError, match=words):
        act()
