"""The log of answers and its queries, on every backend."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.records.answer_log import AnswerLog
from py_core.learning.trajectories import Trajectories, Trajectory
from py_core.store.errors import StoreError
from tests.store.places import Place

NOW = 1_700_000_000.0
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


@pytest.fixture
async def trajectories(place: Place) -> Trajectories:
    return Trajectories(await place.open(clock=lambda: NOW))


@pytest.fixture
def log(trajectories: Trajectories) -> AnswerLog:
    return AnswerLog(trajectories)


def entry(name: str, ago: float = 0.0, **values: object) -> Trajectory:
    return replace(Trajectory(name, name, "", learnable=False, created=NOW - ago), **values)


async def test_poor_answers_are_those_below_a_half(trajectories: Trajectories, log: AnswerLog) -> None:
    for name, rating in (("poor", 0.49), ("half", 0.5), ("good", 0.9), ("unknown", None), ("worst", 0.0)):
        trajectories.record(entry(name, rating=rating))
    assert {e.id for e in await log.poor()} == {"poor", "worst"}
    await trajectories.rate("unknown", 0.1)
    assert {e.id for e in await log.poor(0.2)} == {"unknown", "worst"}
    with pytest.raises(StoreError, match="from 0 to 1"):
        await trajectories.rate("poor", 2.0)
    await trajectories.rate("nobody", 1.0)
    assert len(await log.entries()) == 5


async def test_errors_like_this_one(trajectories: Trajectories, log: AnswerLog) -> None:
    lost = "The connection to the graphics card was lost after 12 tokens."
    trajectories.record(entry("lost", 10, error=lost))
    trajectories.record(entry("404", 5, error="The model answered HTTP 404."))
    trajectories.record(entry("fine", 1))
    by_text = await log.similar_errors("the graphics card was lost after 900 tokens", k=1)
    assert [e.id for e, _ in by_text] == ["lost"]
    assert await log.similar_errors("zzz") == []


async def test_a_spike_is_what_takes_three_times_as_long_as_before(trajectories: Trajectories, log: AnswerLog) -> None:
    for n in range(30):
        trajectories.record(entry(f"old {n}", 2 * HOUR + n, stages={"embed": 10.0 + n % 3, "decode": 100.0}))
    trajectories.record(entry("as ever", 10 * MINUTE, stages={"embed": 12.0, "decode": 110.0}))
    trajectories.record(entry("slow", 5 * MINUTE, stages={"embed": 90.0, "decode": 100.0}))
    trajectories.record(entry("slower", 4 * MINUTE, stages={"embed": 10.0, "decode": 2000.0}))
    spikes = await log.spikes()
    assert [(s.entry.id, s.stage, s.ms) for s in spikes] == [
        ("slower", "decode", 2000.0),
        ("slower", "total", 2010.0),
        ("slow", "embed", 90.0),
    ]
    assert spikes[2].usual_ms == 11.0
    assert await log.spikes(seconds=MINUTE) == []


async def test_few_requests_are_no_measure(trajectories: Trajectories, log: AnswerLog) -> None:
    trajectories.record(entry("a", stages={"embed": 1.0}))
    trajectories.record(entry("b", stages={"embed": 100.0}))
    assert await log.spikes() == []


async def test_percentiles_and_trends(trajectories: Trajectories, log: AnswerLog) -> None:
    for n in range(1, 41):
        trajectories.record(entry(f"{n}", 3 * HOUR if n <= 20 else 1.0, stages={"embed": float(n), "decode": 2.0}))
    percentiles = await log.percentiles()
    assert percentiles["embed"] == {50: 20.5, 90: pytest.approx(36.1), 99: pytest.approx(39.61)}
    assert percentiles["total"][50] == 22.5
    assert (await log.percentiles(since=NOW - HOUR))["embed"][50] == 30.5
    trend = (await log.trends(HOUR))["embed"]
    assert [ms for _, ms in trend.medians] == [10.5, 30.5]
    assert trend.change == pytest.approx(30.5 / 10.5 - 1)
    assert (await log.trends(HOUR))["decode"].change == 0.0
