"""The reference sampler: each rule alone, their order, and the distribution that comes out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.sampling import (
    MAX_PENALTY_WINDOW,
    SamplingParams,
    apply_penalties,
    keep_top_k,
    keep_top_p,
    probability_of,
    sample,
    uniform,
)

# Small integers: many ties, and every sum of them is exact.
levels = st.lists(st.integers(-6, 6), min_size=1, max_size=40)
counts = st.lists(st.integers(0, 9), min_size=1, max_size=40).filter(any)


def row(values: Sequence[float]) -> np.ndarray:
    return np.array(values, np.float32)


def exact_probabilities(logits: Sequence[float], params: SamplingParams) -> dict[int, float]:
    """The distribution after temperature, top-k, top-p and min-p, computed with sorted lists and plain floats."""
    weights = {token: math.exp(logit / params.temperature) for token, logit in enumerate(logits)}
    if params.top_k:
        least = sorted(weights.values(), reverse=True)[: params.top_k][-1]
        weights = {token: weight for token, weight in weights.items() if weight >= least}
    total, reached, least = sum(weights.values()), 0.0, 0.0
    for weight in sorted(weights.values(), reverse=True):
        least, reached = weight, reached + weight
        if reached >= params.top_p * total:
            break
    weights = {token: weight for token, weight in weights.items() if weight >= least}
    likeliest = max(weights.values())
    weights = {token: weight for token, weight in weights.items() if weight >= params.min_p * likeliest}
    return {token: weight / sum(weights.values()) for token, weight in weights.items()}


def draws(logits: Sequence[float], params: SamplingParams, count: int) -> Counter[int]:
    return Counter(sample(row(logits), [], position, params) for position in range(count))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1), ("temperature", math.inf), ("temperature", math.nan),
        ("top_k", -1),
        ("top_p", 0.0), ("top_p", 1.01), ("top_p", math.nan),
        ("min_p", -0.01), ("min_p", 1.01), ("min_p", math.nan),
        ("repetition_penalty", 0.0), ("repetition_penalty", -1.0), ("repetition_penalty", math.inf),
        ("presence_penalty", math.inf), ("presence_penalty", math.nan),
        ("frequency_penalty", -math.inf), ("frequency_penalty", math.nan),
        ("penalty_window", -1), ("penalty_window", MAX_PENALTY_WINDOW + 1),
        ("seed", -1), ("seed", 2**32),
    ],
)  # fmt: skip
def test_a_parameter_that_makes_no_sense_is_named_with_its_value(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{field} is {value}, but must be .+\.$"):
        SamplingParams(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 0.0), ("top_k", 0), ("top_p", 1.0), ("top_p", 1e-9), ("min_p", 0.0), ("min_p", 1.0),
        ("repetition_penalty", 0.5), ("presence_penalty", -2.0), ("frequency_penalty", -2.0),
        ("penalty_window", 0), ("penalty_window", MAX_PENALTY_WINDOW), ("seed", 0), ("seed", 2**32 - 1),
    ],
)  # fmt: skip
def test_the_ends_of_a_range_belong_to_it(field: str, value: float) -> None:
    assert getattr(SamplingParams(**{field: value}), field) == value


@given(levels)
def test_temperature_0_takes_the_first_of_the_likeliest(logits: list[int]) -> None:
    assert sample(row(logits), [], 3, SamplingParams()) == logits.index(max(logits))


@given(levels, st.integers(0, 2**32 - 1), st.integers(0, 10_000))
def test_top_k_1_draws_one_of_the_likeliest(logits: list[int], seed: int, position: int) -> None:
    token = sample(row(logits), [], position, SamplingParams(temperature=2.0, top_k=1, seed=seed))
    assert logits[token] == max(logits)


@given(levels, st.integers(1, 50))
def test_top_k_keeps_the_k_highest_and_what_equals_the_last_of_them(scores: list[int], k: int) -> None:
    least = sorted(scores, reverse=True)[: k or None][-1]
    assert keep_top_k(row(scores), k).tolist() == [score >= least for score in scores]


@given(counts, st.integers(1, 63))
def test_top_p_keeps_the_fewest_highest_that_reach_the_share(weights: list[int], sixty_fourths: int) -> None:
    share, total = sixty_fourths / 64, sum(weights)
    keep = keep_top_p(row(weights), share)
    kept = [weight for weight, kept in zip(weights, keep, strict=True) if kept]
    dropped = [weight for weight, kept in zip(weights, keep, strict=True) if not kept]
    assert sum(kept) >= share * total
    # One token less would not do, and equal tokens stay together.
    assert sum(kept) - sum(weight for weight in kept if weight == min(kept)) < share * total
    assert max(dropped, default=-1) < min(kept)


@given(counts)
def test_a_rule_that_is_off_keeps_everything(weights: list[int]) -> None:
    assert keep_top_k(row(weights), 0).all()
    assert keep_top_p(row(weights), 1.0).all()


@pytest.mark.parametrize(
    "rules",
    [
        {}, {"temperature": 0.5}, {"temperature": 2.5}, {"top_k": 3}, {"top_p": 0.6}, {"min_p": 0.3},
        {"top_k": 5, "top_p": 0.7}, {"top_p": 0.9, "min_p": 0.2}, {"temperature": 1.7, "top_k": 6, "top_p": 0.8},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("seed", [1, 99])
def test_tokens_are_drawn_as_often_as_their_probability_says(rules: dict[str, float], seed: int) -> None:
    logits = [2.0, -1.0, 0.5, 1.5, -0.5, 1.0, 0.0, 1.75, 0.25, -3.0]
    params = SamplingParams(**{"temperature": 1.0, "seed": seed, **rules})
    expected, count = exact_probabilities(logits, params), 4000
    drawn = draws(logits, params, count)
    assert set(drawn) <= set(expected)
    chi_square = sum((drawn[token] - count * p) ** 2 / (count * p) for token, p in expected.items())
    freedom = len(expected) - 1
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


def test_top_p_is_a_share_of_what_top_k_left() -> None:
    # Of the two likeliest alone the first has 73 %: over 0.7. Of all ten it would have 23 %.
    logits = [1.0, 0.0, *[-0.1] * 8]
    assert set(draws(logits, SamplingParams(temperature=1.0, top_k=2, top_p=0.7), 300)) == {0}
    assert set(draws(logits, SamplingParams(temperature=1.0, top_p=0.7), 300)) > {0, 1}


def test_the_rules_look_at_probabilities_after_the_temperature() -> None:
    logits = [3.0, 2.0, 1.0]
    assert set(draws(logits, SamplingParams(temperature=0.2, min_p=0.05), 500)) == {0}
    assert set(draws(logits, SamplingParams(temperature=2.0, min_p=0.05), 500)) == {0, 1, 2}


def test_min_p_keeps_a_token_at_exactly_the_share() -> None:
    assert set(draws([0.0, 0.0, -9.0], SamplingParams(temperature=1.0, min_p=1.0), 200)) == {0, 1}


@given(levels, st.integers(-4, 4), st.integers(0, 500), st.integers(0, 2**32 - 1))
def test_a_constant_on_all_logits_changes_nothing(logits: list[int], more: int, position: int, seed: int) -> None:
    params = SamplingParams(temperature=0.8, top_k=9, top_p=0.9, min_p=0.01, seed=seed)
    shifted = [logit + more for logit in logits]
    assert sample(row(logits), [], position, params) == sample(row(shifted), [], position, params)


def test_what_is_impossible_is_never_drawn() -> None:
    logits = [0.0, -math.inf, 1.0, -math.inf]
    assert set(draws(logits, SamplingParams(temperature=50.0), 500)) == {0, 2}


@pytest.mark.parametrize(("position", "number", "token"), [(12469586, 0.0, 1), (16187505, 0.25, 2)])
def test_a_number_on_a_border_goes_to_the_token_above_it(position: int, number: float, token: int) -> None:
    assert uniform(0, position) == number
    # Shares of 0, 1/4, 1/4, 1/4, 1/4: a share of 0 is never drawn, even at the border.
    assert sample(row([-math.inf, 0, 0, 0, 0]), [], position, SamplingParams(temperature=1.0)) == token


def test_a_temperature_near_0_is_greedy() -> None:
    assert set(draws([1.0, 1.01, 0.99], SamplingParams(temperature=1e-4), 300)) == {1}


@given(levels, st.integers(0, 2**32 - 1), st.integers(0, 5000), st.lists(st.integers(0, 5), max_size=5))
def test_the_same_seed_and_position_draw_the_same(logits: list[int], seed: int, position: int, history: list) -> None:
    params = SamplingParams(temperature=1.0, seed=seed)
    assert sample(row(logits), history, position, params) == sample(row(logits), [], position, params)


def test_another_seed_and_another_position_draw_anew() -> None:
    logits = row([0.0] * 256)
    first, second = (
        [sample(logits, [], position, SamplingParams(temperature=1.0, seed=seed)) for position in range(200)]
        for seed in (1, 2)
    )
    # Two independent draws of 256 agree about once in 256.
    assert sum(a == b for a, b in zip(first, second, strict=True)) < 8
    assert len(set(first)) > 100


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1])
def test_uniform_numbers_fill_the_unit_interval_evenly(seed: int) -> None:
    numbers = np.array([uniform(seed, position) for position in range(8000)])
    assert 0 <= numbers.min() < 0.002
    assert 0.998 < numbers.max() < 1
    bins = np.histogram(numbers, 20, (0, 1))[0]
    assert ((bins - 400) ** 2 / 400).sum() < 19 + 4 * math.sqrt(38)
    neighbours = np.corrcoef(numbers[:-1], numbers[1:])[0, 1]
    assert abs(neighbours) < 4 / math.sqrt(8000)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**31))
def test_uniform_is_the_pcg_hash_in_32_bits(seed: int, position: int) -> None:
    """The paper's C code, on numpy's wrapping integers."""

    def pcg(value: np.ndarray) -> np.ndarray:
        state = value * np.uint32(747796405) + np.uint32(2891336453)
        word = ((state >> ((state >> np.uint32(28)) + np.uint32(4))) ^ state) * np.uint32(277803737)
        return (word >> np.uint32(22)) ^ word

    hashed = pcg(pcg(np.array([seed], np.uint32)) ^ np.uint32(position))
    assert uniform(seed, position) == int(hashed[0] >> np.uint32(8)) / 2**24


@given(
    levels, st.lists(st.integers(0, 40), max_size=12), st.sampled_from([0.5, 1.0, 1.25, 2.0]),
    st.sampled_from([-0.5, 0.0, 0.75]), st.sampled_from([-0.25, 0.0, 0.5]),
)  # fmt: skip
def test_penalties_follow_their_formulas(
    logits: list[int], recent: list[int], repetition: float, presence: float, frequency: float
) -> None:
    recent = [token % len(logits) for token in recent]
    params = SamplingParams(repetition_penalty=repetition, presence_penalty=presence, frequency_penalty=frequency)
    expected = []
    for token, logit in enumerate(logits):
        value, times = float(logit), recent.count(token)
        if times:
            value = value / repetition if value > 0 else value * repetition
            value -= presence + times * frequency
        expected.append(value)
    given_logits = row(logits)
    np.testing.assert_allclose(apply_penalties(given_logits, recent, params), expected, rtol=1e-6, atol=1e-6)
    assert given_logits.tolist() == logits  # the model's logits are not changed


@given(levels, st.integers(0, 39), st.integers(0, 40))
def test_probabilities_are_all_of_the_model_the_likeliest_first(logits: list[int], token: int, count: int) -> None:
    token, count = token % len(logits), min(count, len(logits))
    noted = probability_of(row(logits), token, len(logits))
    assert math.fsum(math.exp(logprob) for _, logprob in noted.likeliest) == pytest.approx(1)
    assert [one for one, _ in noted.likeliest] == sorted(range(len(logits)), key=lambda one: (-logits[one], one))
    assert noted.logprob == dict(noted.likeliest)[token]
    assert probability_of(row(logits), token, count).likeliest == noted.likeliest[:count]


def test_a_repetition_penalty_turns_a_greedy_answer_away_from_what_was_said() -> None:
    logits = row([1.0, 1.9, 2.0])
    assert sample(logits, [2], 1, SamplingParams()) == 2
    assert sample(logits, [2], 1, SamplingParams(repetition_penalty=1.2)) == 1
    assert sample(logits, [2], 1, SamplingParams(presence_penalty=0.2)) == 1
    assert sample(logits, [2, 2, 1], 3, SamplingParams(frequency_penalty=0.8)) == 1


@pytest.mark.parametrize(("window", "token"), [(1, 2), (2, 2), (3, 1), (64, 1), (0, 2)])
def test_penalties_look_at_the_last_tokens_of_the_window(window: int, token: int) -> None:
    history = [2, 0, 0]
    assert sample(row([0.0, 1.9, 2.0]), history, 3, SamplingParams(presence_penalty=1, penalty_window=window)) == token


def test_only_a_penalty_with_a_window_penalizes() -> None:
    assert not SamplingParams().penalizes
    assert not SamplingParams(repetition_penalty=2.0, penalty_window=0).penalizes
    assert SamplingParams(repetition_penalty=1.1).penalizes
    assert SamplingParams(presence_penalty=-0.1).penalizes
    assert SamplingParams(frequency_penalty=0.1).penalizes
