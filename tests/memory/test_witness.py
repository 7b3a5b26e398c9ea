"""The witness log and what it can be asked, on every backend."""

from __future__ import annotations

import numpy as np
import pytest
from places import Place

from py_core.memory.errors import StoreError
from py_core.memory.store import Store
from py_core.memory.witness import Witness, WitnessEntry
from py_core.memory.witness_questions import WitnessQuestions

NOW = 1_700_000_000.0
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


@pytest.fixture
async def witness(place: Place) -> Witness:
    return Witness(await place.open(clock=lambda: NOW), most_age=30 * DAY, most_entries=50)


def entry(name: str, ago: float = 0.0, **values: object) -> WitnessEntry:
    fields = {"agent": "coder", "backend": "wasm", "id": name, "created": NOW - ago, **values}
    return WitnessEntry(**fields)


async def test_an_entry_comes_back_whole_without_being_waited_for(witness: Witness) -> None:
    vector = np.array([1, 2], np.float32)
    id = witness.record(
        WitnessEntry("tester", "webgpu", {"embed": 5.0, "decode": 100.0}, {"top3": ["tester"]}, None, "Lost.", vector)
    )
    assert await witness.store.count("witness") == 0
    (found,) = await witness.entries()
    assert (found.id, found.agent, found.backend, found.error) == (id, "tester", "webgpu", "Lost.")
    assert (found.stages, found.routing, found.quality) == ({"embed": 5.0, "decode": 100.0}, {"top3": ["tester"]}, None)
    assert (found.created, found.total_ms) == (NOW, 105.0)
    assert np.array_equal(found.vector, vector)
    rated = await witness.rate(id, 0.25)
    assert rated is not None
    assert (rated.quality, rated.error) == (0.25, "Lost.")
    assert await witness.rate("nobody", 1.0) is None
    with pytest.raises(StoreError, match="from 0 to 1"):
        await witness.rate(id, 2.0)


async def test_poor_answers_are_those_below_a_half(witness: Witness) -> None:
    for name, quality in (("poor", 0.49), ("half", 0.5), ("good", 0.9), ("unknown", None), ("worst", 0.0)):
        witness.record(entry(name, quality=quality))
    questions = WitnessQuestions(witness)
    assert {e.id for e in await questions.poor()} == {"poor", "worst"}
    await witness.rate("unknown", 0.1)
    assert {e.id for e in await questions.poor(0.2)} == {"unknown", "worst"}


async def test_errors_like_this_one(witness: Witness) -> None:
    lost = "The connection to the graphics card was lost after 12 tokens."
    witness.record(entry("lost", 10, error=lost))
    witness.record(entry("404", 5, error="The model answered HTTP 404."))
    witness.record(entry("fine", 1))
    questions = WitnessQuestions(witness)
    by_text = await questions.similar_errors("the graphics card was lost after 900 tokens", k=1)
    assert [e.id for e, _ in by_text] == ["lost"]
    assert await questions.similar_errors("zzz") == []


async def test_a_spike_is_what_takes_three_times_as_long_as_before(witness: Witness) -> None:
    for n in range(30):
        witness.record(entry(f"old {n}", 2 * HOUR + n, stages={"embed": 10.0 + n % 3, "decode": 100.0}))
    witness.record(entry("as ever", 10 * MINUTE, stages={"embed": 12.0, "decode": 110.0}))
    witness.record(entry("slow", 5 * MINUTE, stages={"embed": 90.0, "decode": 100.0}))
    witness.record(entry("slower", 4 * MINUTE, stages={"embed": 10.0, "decode": 2000.0}))
    spikes = await WitnessQuestions(witness).spikes()
    assert [(s.entry.id, s.stage, s.ms) for s in spikes] == [
        ("slower", "decode", 2000.0),
        ("slower", "total", 2010.0),
        ("slow", "embed", 90.0),
    ]
    assert spikes[2].usual_ms == 11.0
    assert await WitnessQuestions(witness).spikes(seconds=MINUTE) == []


async def test_few_requests_are_no_measure(witness: Witness) -> None:
    witness.record(entry("a", stages={"embed": 1.0}))
    witness.record(entry("b", stages={"embed": 100.0}))
    assert await WitnessQuestions(witness).spikes() == []


async def test_percentiles_and_trends(witness: Witness) -> None:
    for n in range(1, 41):
        witness.record(entry(f"{n}", 3 * HOUR if n <= 20 else 1.0, stages={"embed": float(n), "decode": 2.0}))
    questions = WitnessQuestions(witness)
    percentiles = await questions.percentiles()
    assert percentiles["embed"] == {50: 20.5, 90: pytest.approx(36.1), 99: pytest.approx(39.61)}
    assert percentiles["total"][50] == 22.5
    assert (await questions.percentiles(since=NOW - HOUR))["embed"][50] == 30.5
    trend = (await questions.trends(HOUR))["embed"]
    assert [ms for _, ms in trend.medians] == [10.5, 30.5]
    assert trend.change == pytest.approx(30.5 / 10.5 - 1)
    assert (await questions.trends(HOUR))["decode"].change == 0.0


async def test_what_is_too_old_or_too_much_goes(witness: Witness, store: Store) -> None:
    for n in range(60):
        witness.record(entry(f"{n:02d}", n * HOUR))
    for n in range(3):
        witness.record(entry(f"ancient {n}", (31 + n) * DAY))
    assert await witness.retain() == 13
    assert [e.id for e in await witness.entries()] == [f"{n:02d}" for n in range(50)]
    assert await witness.retain() == 0
    assert [e.id for e in await witness.entries(limit=2)] == ["00", "01"]
    assert await store.count("witness") == 50
