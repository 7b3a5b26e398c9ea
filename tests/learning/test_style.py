"""A style is learned by the exact gradient at the head's input, in small steps that leave other text unchanged."""

from __future__ import annotations

import asyncio
import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from py_core.adapters.head import HeadAdapter, check_head_adapter
from py_core.learning.style import StyleError, StyleRecipe, StyleRows, StyleStep, learn_style, pair_gradients, row_nll
from py_core.training.session import HeadRows, Loss

VOCABULARY = 50


class PlainHead:
    """The loss of an output matrix, in float64: enough of a Training to learn a style with."""

    max_rows = 512

    def __init__(self, width: int, seed: int = 0) -> None:
        self.matrix = np.random.default_rng(seed).standard_normal((VOCABULARY, width))
        self.calls = 0

    async def head_gradient(self, rows: HeadRows, after_piece: object = None) -> tuple[Loss, np.ndarray]:
        self.calls += 1
        at = np.arange(len(rows.targets))
        logprobs = self._logprobs(rows.states)
        shares = np.exp(logprobs)
        slopes = (rows.weights + rows.kl_weights)[:, None] * shares
        slopes[at, rows.targets] -= rows.weights
        divergence = 0.0
        if rows.base_states is not None:
            base = self._logprobs(rows.base_states)
            divergence = float(np.sum(rows.kl_weights[:, None] * np.exp(base) * (base - logprobs)))
            slopes -= rows.kl_weights[:, None] * np.exp(base)
        return Loss(float(-np.sum(rows.weights * logprobs[at, rows.targets])), divergence), slopes @ self.matrix

    def _logprobs(self, states: np.ndarray) -> np.ndarray:
        logits = states.astype(np.float64) @ self.matrix.T
        largest = logits.max(axis=1, keepdims=True)
        return logits - largest - np.log(np.exp(logits - largest).sum(axis=1, keepdims=True))


def rows(count: int, width: int, seed: int = 1) -> StyleRows:
    """Answers that all consist of the same few tokens, from states that share a direction."""
    draw = np.random.default_rng(seed)
    states = draw.standard_normal((count, width)) + 2 * np.eye(width)[0]
    return StyleRows(states.astype(np.float32), (np.arange(count) % 3).astype(np.int32), np.ones(count, np.int32))


def said(states: np.ndarray) -> StyleRows:
    """Rows whose tokens do not matter."""
    return StyleRows(states, np.zeros(len(states), np.int32), np.ones(len(states), np.int32))


def generic(count: int, width: int, seed: int = 2) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return (draw.standard_normal((count, width)) - 2 * np.eye(width)[0]).astype(np.float32)


SMALL = StyleRecipe(rank=2, steps=12, rate=0.1, batch=16, held=16, warm_up=2, divergence=1.0, bound=0.05)
sizes = st.integers(1, 12)


def learned(
    recipe: StyleRecipe = SMALL, width: int = 8, answers: int = 30
) -> tuple[HeadAdapter, tuple[StyleStep, ...]]:
    found = asyncio.run(learn_style(PlainHead(width), rows(answers, width), generic(40, width), recipe))  # type: ignore[arg-type]
    return found.adapter, found.steps


@given(sizes, sizes, st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_the_pair_s_gradient_is_the_slope_of_the_loss(count: int, width: int, rank: int, seed: int) -> None:
    draw, head = np.random.default_rng(seed), PlainHead(width, seed)
    adapter = HeadAdapter(draw.standard_normal((rank, width)), draw.standard_normal((width, rank)))
    answers, kl = rows(count, width, seed), draw.uniform(0, 1, count)

    def loss(one: HeadAdapter) -> tuple[float, np.ndarray]:
        weights = np.ones(count)
        states = answers.states.astype(np.float64)
        found, slopes = asyncio.run(
            head.head_gradient(HeadRows(one.changed(states), answers.tokens, weights, kl, states))
        )
        return found.total, slopes

    found = pair_gradients(adapter, answers.states.astype(np.float64), loss(adapter)[1])
    for place, (name, gradient) in enumerate(zip(("a", "b"), found, strict=True)):
        matrix = getattr(adapter, name)
        assert gradient.shape == matrix.shape
        way = draw.standard_normal(matrix.shape)
        ends = [loss(dataclasses.replace(adapter, **{name: matrix + step * way}))[0] for step in (1e-5, -1e-5)]
        slope = (ends[0] - ends[1]) / 2e-5
        assert float(np.sum(gradient * way)) == pytest.approx(slope, rel=1e-4, abs=1e-5), place


def test_answers_of_the_style_become_likelier_and_generic_states_stay() -> None:
    adapter, steps = learned()
    head, unseen = PlainHead(8), rows(30, 8, seed=9)
    (before, nothing), (after, _) = [
        asyncio.run(row_nll(head, unseen, one, compared=True, batch=7)) for one in (None, adapter)
    ]  # type: ignore[arg-type]
    assert after < before - 0.3
    assert nothing == pytest.approx(0, abs=1e-9)
    _, drift = asyncio.run(row_nll(head, said(generic(40, 8)), adapter, compared=True))  # type: ignore[arg-type]
    assert drift < 2 * SMALL.bound
    assert max(step.divergence for step in steps if step.kept) <= SMALL.bound


def test_a_step_that_goes_too_far_is_shortened_or_refused() -> None:
    wild = dataclasses.replace(SMALL, rate=20.0, bound=0.01)
    adapter, steps = learned(wild)
    assert min(step.kept for step in steps) < 1
    _, drift = asyncio.run(row_nll(PlainHead(8), said(generic(16, 8)), adapter, compared=True))  # type: ignore[arg-type]
    assert drift < 0.05
    free, _ = learned(dataclasses.replace(wild, bound=math.inf))
    _, without = asyncio.run(row_nll(PlainHead(8), said(generic(16, 8)), free, compared=True))  # type: ignore[arg-type]
    assert without > 1, "the bound is what held it"


def test_the_same_seed_gives_the_same_bits_and_another_one_others() -> None:
    first, again, other = (learned(dataclasses.replace(SMALL, seed=seed))[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.b, again.b)
    np.testing.assert_array_equal(first.a, again.a)
    assert not np.array_equal(first.b, other.b)


@given(st.integers(1, 4), st.integers(2, 10), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
@settings(max_examples=20)
def test_any_sizes_give_an_adapter_that_fits_the_model(
    rank: int, width: int, answers: int, batch: int, held: int
) -> None:
    recipe = StyleRecipe(rank=rank, steps=2, batch=batch, held=held)
    found = asyncio.run(learn_style(PlainHead(width), rows(answers, width), generic(5, width), recipe))  # type: ignore[arg-type]
    check_head_adapter(found.adapter, width, VOCABULARY)
    assert found.adapter.rank == rank
    assert found.adapter.a.dtype == found.adapter.b.dtype == np.float32
    assert len(found.steps) == 3


@pytest.mark.parametrize("bad", ["states", "generic", "slopes"])
def test_numbers_that_are_none_are_refused(bad: str) -> None:
    head, answers, others = PlainHead(8), rows(20, 8), generic(20, 8)
    if bad == "slopes":
        head.matrix[3] = np.nan
    elif bad == "states":
        answers.states[2, 1] = np.nan
    else:
        others[1, 1] = np.inf
    with pytest.raises(StyleError, match="may be damaged"):
        asyncio.run(learn_style(head, answers, others, SMALL))  # type: ignore[arg-type]


def test_a_step_whose_loss_is_no_number_is_taken_back() -> None:
    class Once(PlainHead):
        async def head_gradient(self, rows: HeadRows, after_piece: object = None) -> tuple[Loss, np.ndarray]:
            loss, slopes = await super().head_gradient(rows)
            return (Loss(math.nan, 0.0), slopes * math.nan) if self.calls == 4 else (loss, slopes)

    recipe = dataclasses.replace(SMALL, bound=math.inf)
    found = asyncio.run(learn_style(Once(8), rows(20, 8), generic(20, 8), recipe))  # type: ignore[arg-type]
    assert [at for at, step in enumerate(found.steps) if step.kept != 1] == [3]
    assert all(math.isfinite(step.cross_entropy) for step in found.steps)
    check_head_adapter(found.adapter, 8, VOCABULARY)


@pytest.mark.parametrize(
    ("recipe", "answers", "others", "match"),
    [
        (StyleRecipe(rank=5), 4, 4, "rank of a style is 5"),
        (StyleRecipe(rank=0), 4, 4, "rank of a style is 0"),
        (SMALL, 0, 4, "nothing to learn"),
        (SMALL, 4, 0, "nothing to learn"),
        (StyleRecipe(batch=512, held=1), 4, 4, "at most 512 rows"),
    ],
)
def test_what_cannot_be_learned_from_is_told(recipe: StyleRecipe, answers: int, others: int, match: str) -> None:
    with pytest.raises(StyleError, match=match):
        asyncio.run(learn_style(PlainHead(8), rows(answers, 8), generic(others, 8), recipe))  # type: ignore[arg-type]


def test_states_of_another_width_are_told() -> None:
    with pytest.raises(StyleError, match="do not match"):
        asyncio.run(learn_style(PlainHead(8), rows(4, 8), generic(4, 6), SMALL))  # type: ignore[arg-type]


def test_an_answer_s_first_tokens_and_its_end_count_more() -> None:
    parts = [StyleRows.of_answer(np.zeros((count, 4), np.float32), range(count)) for count in (6, 2, 1)]
    assert [part.weights.tolist() for part in parts] == [[3, 2, 1, 1, 1, 2], [3, 2], [3]]
    whole = StyleRows.joined(parts)
    assert whole.states.shape == (9, 4)
    assert whole.tokens.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 0]
