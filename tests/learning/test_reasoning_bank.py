"""Answers to similar messages become strategies with a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from py_core.learning.reasoning_bank import (
    DAY_SECONDS,
    HALF_LIFE_DAYS,
    LEAST_QUALITY,
    Bank,
    Experience,
    archive,
    distil,
    kmeans,
    reliability,
    verdict_of,
)
from py_core.learning.strategies import Strategy

NOW = 1_700_000_000.0
TOPICS = np.eye(6, 16, dtype=np.float32)


def answers(topic: int, qualities: Sequence[float | None], days: float = 0.0, **more: object) -> list[Experience]:
    """Messages around a topic, each with the quality of its answer."""
    random = np.random.default_rng(topic)
    made = []
    for number, quality in enumerate(qualities):
        vector = TOPICS[topic] + random.normal(0, 0.05, 16).astype(np.float32)
        vector /= np.linalg.norm(vector)
        one = Experience(
            f"t{topic}-{number}", f"Question {topic}", vector, "", quality, created=NOW - days * DAY_SECONDS
        )
        made.append(replace(one, **more))
    return made


def found(bank: Bank, topic: int) -> Strategy:
    return max(bank.strategies, key=lambda one: float(one.vector[topic]))


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_each_topic_becomes_a_strategy_with_its_verdict(seed: int) -> None:
    experiences = [
        *answers(0, [0.9, 0.8, 0.7, 0.9], agent="coder"),
        *answers(1, [0.1, 0.2, 0.3]),
        *answers(2, [0.9, 0.1] * 6),
        *answers(3, [None, None, None]),
    ]
    bank = distil(experiences, [], NOW, seed)
    assert [found(bank, topic).verdict for topic in range(2)] == ["success", "failure"]
    good = found(bank, 0)
    assert (good.agent, good.count, good.examples) == ("coder", 4, ("Question 0",))
    assert good.last_used == NOW
    assert [one.verdict for one in bank.pruned if one.vector[3] > 0.9] == ["unknown"]
    assert [one.verdict for one in bank.pruned if one.vector[2] > 0.9] == ["partial"]
    assert {one.id for one in bank.members[good.id]} == {f"t0-{number}" for number in range(4)}
    assert [one.quality for one in bank.strategies] == sorted((one.quality for one in bank.strategies), reverse=True)
    again = distil(experiences[::-1], [], NOW, seed)
    assert [(one.id, one.quality) for one in again.strategies] == [(one.id, one.quality) for one in bank.strategies]


def test_what_the_person_said_outweighs_signals() -> None:
    said = answers(0, [0.0, 0.0], is_opinion=True)
    assert found(distil([*said, *answers(0, [0.9])], [], NOW), 0).verdict == "failure"


def test_a_strategy_counts_less_with_age_and_is_pruned_at_last() -> None:
    fresh = found(distil(answers(0, [0.9, 0.9]), [], NOW), 0)
    old = found(distil(answers(0, [0.9, 0.9], days=60), [], NOW), 0)
    assert LEAST_QUALITY <= old.quality < fresh.quality
    assert not distil(answers(0, [0.9, 0.9], days=5 * HALF_LIFE_DAYS), [], NOW).strategies


def test_what_is_gone_stays_part_of_its_strategy_and_duplicates_are_merged() -> None:
    members = answers(0, [0.9] * 4)
    first = found(distil(members, [], NOW), 0)
    kept = archive(first, members, NOW)
    assert kept.archived == (4, 4.0, 4.0)
    alone = found(distil([], [kept], NOW), 0)
    assert (alone.id, alone.count, alone.verdict, alone.examples) == (first.id, 4, "success", first.examples)
    twin = replace(kept, id="twin")
    bank = distil(answers(0, [0.9]), [kept, twin], NOW)
    (only,) = bank.strategies
    assert (only.count, only.known, bank.merged) == (9, 9.0, 2)
    assert only.id in (first.id, "twin")
    months_later = distil([], [kept], NOW + 4 * HALF_LIFE_DAYS * DAY_SECONDS)
    assert not months_later.strategies
    again = distil(members, [first], NOW)  # nothing was removed, so nothing counts twice
    assert found(again, 0).count == 4
    assert found(again, 0).id == first.id


def test_there_is_a_budget_and_the_best_stay() -> None:
    experiences = [one for topic in range(6) for one in answers(topic, [0.9] * (topic + 2))]
    bank = distil(experiences, [], NOW, most=2)
    assert [int(one.vector.argmax()) for one in bank.strategies] == [5, 4]
    assert len(bank.pruned) == 4


def test_k_means_finds_what_is_apart() -> None:
    points = np.concatenate([np.random.default_rng(topic).normal(10 * topic, 0.1, (20, 3)) for topic in range(4)])
    labels = kmeans(points, 4, seed=3)
    assert [len(set(labels[20 * topic : 20 * topic + 20])) for topic in range(4)] == [1] * 4
    assert len(set(labels)) == 4
    assert (labels == kmeans(points, 4, seed=3)).all()
    assert len(set(kmeans(np.ones((5, 2)), 3))) == 1
    assert kmeans(np.zeros((0, 2)), 3).shape == (0,)


@given(arrays(np.float32, st.tuples(st.integers(1, 20), st.integers(1, 4)), elements=st.floats(-1, 1, width=16)),
       st.integers(1, 8), st.integers(0, 3))  # fmt: skip
def test_k_means_numbers_its_groups_without_gaps_and_each_row_is_nearest_its_own(
    points: np.ndarray, k: int, seed: int
) -> None:
    labels = kmeans(points, k, seed)
    groups = sorted(set(labels.tolist()))
    assert groups == list(range(len(groups)))
    assert len(groups) <= min(k, len(points))
    middle = np.stack([points[labels == group].astype(np.float64).mean(axis=0) for group in groups])
    distances = ((points[:, None].astype(np.float64) - middle) ** 2).sum(axis=-1)
    assert np.allclose(distances[np.arange(len(points)), labels], distances.min(axis=1), atol=1e-6)


@given(st.floats(0, 1e6), st.floats(0, 1))
def test_a_verdicts_reliability_is_from_0_to_1_and_more_of_the_same_raises_it(known: float, share: float) -> None:
    quality = reliability(known, known * share)
    assert 0 <= quality <= 1
    assert reliability(2 * known, 2 * known * share) >= quality - 1e-9
    assert verdict_of(known, known * share) in ("success", "failure", "partial", "unknown")
    assert verdict_of(0, 0) == "unknown"
