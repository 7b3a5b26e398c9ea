"""The head's further training gives the least of its sum, and rows of words are what the head reads."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from py_core.routing.head import BUCKETS, Head, fit_head, word_matrix
from py_core.routing.head_training import RIDGE, Rows, retrained

DIMENSIONS, WORDS = 16, 0.7
EXAMPLES = ["bake bread", "plant tomatoes", "fix the car", "bake a cake", "water the roses", "change the tyres"] * 3
AGENTS = ["cook", "gardener", "driver"] * 6
CORRECTED = ["bake the tyres", "the roses of the car", "bread for the garden"]


def vectors_of(texts: list[str], seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(len(texts), DIMENSIONS)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def shipped() -> Head:
    return fit_head(EXAMPLES, vectors_of(EXAMPLES), AGENTS, words=WORDS, ridge=1.0)


async def rows_of(texts: list[str], seed: int = 0) -> Rows:
    return await Rows.of(texts, vectors_of(texts, seed), shipped(), nullcontext)


async def test_rows_are_what_the_head_reads() -> None:
    head, texts = shipped(), [*CORRECTED, "!?", "bake bread"]
    rows = await rows_of(texts)
    expected = [head.scores(text, vector) for text, vector in zip(texts, rows.vectors, strict=True)]
    np.testing.assert_allclose(rows.times(head.words, head.dense), expected, atol=1e-5)
    matrix, _ = word_matrix(texts, head.rarity)
    some = np.random.default_rng(1).normal(size=(len(texts), 3)).astype(np.float32)
    words, dense = rows.transposed_times(some)
    np.testing.assert_allclose(words, matrix.T @ some, atol=1e-5)
    np.testing.assert_allclose(dense, rows.vectors.T @ some, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), min_size=8, max_size=8))
async def test_chosen_and_joined_rows_are_those_rows(chosen: list[bool]) -> None:
    rows = (await rows_of(CORRECTED)).joined(await rows_of([*CORRECTED, "!?", "bake bread"], 1))
    some = np.random.default_rng(1).normal(size=(BUCKETS, 2)).astype(np.float32)
    dense = np.random.default_rng(2).normal(size=(DIMENSIONS, 2)).astype(np.float32)
    mask = np.array(chosen)
    np.testing.assert_allclose(rows.only(mask).times(some, dense), rows.times(some, dense)[mask], atol=1e-5)


async def test_the_change_is_the_least_of_its_sum() -> None:
    head, wanted = shipped(), ["driver", "gardener", "gardener"]
    weights = np.array([2.0, 1.0, 3.0], np.float32)
    found = await retrained(
        head, await rows_of(EXAMPLES), await rows_of(CORRECTED, 1), wanted, weights, words=WORDS, step=nullcontext
    )
    texts, vectors = [*EXAMPLES, *CORRECTED], np.concatenate([vectors_of(EXAMPLES), vectors_of(CORRECTED, 1)])
    inputs = np.concatenate([word_matrix(texts, head.rarity)[0], vectors], 1).astype(np.float64)
    scale = np.sqrt(np.concatenate([np.full(BUCKETS, WORDS), np.full(DIMENSIONS, 1 - WORDS)]))
    missing = np.zeros((len(texts), 3))
    for row, agent in enumerate(wanted, len(EXAMPLES)):
        target = np.array([name == agent for name in head.agents]) - 1 / 3
        missing[row] = target - head.scores(texts[row], vectors[row])
    weight = np.sqrt(np.concatenate([np.ones(len(EXAMPLES)), weights]))[:, None]
    scaled = weight * inputs * scale
    # dual: there are fewer rows than inputs
    alpha = np.linalg.solve(scaled @ scaled.T + RIDGE * np.eye(len(texts)), weight * missing)
    expected = scale[:, None] * (scaled.T @ alpha)
    np.testing.assert_allclose(found.words - head.words, expected[:BUCKETS], atol=1e-3)
    np.testing.assert_allclose(found.dense - head.dense, expected[BUCKETS:], atol=1e-3)
    assert np.abs(expected).max() > 0.05
