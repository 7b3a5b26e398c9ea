"""The history of each loop and of the answers over time, from records as the loops write them."""

from __future__ import annotations

import datetime
import json
from collections.abc import AsyncIterator
from dataclasses import asdict

import pytest

from app.consolidation.deep_loop import REPORT_POLICY, DeepReport
from app.consolidation.history import events, periods
from app.consolidation.loop_runs import MOST, RUNS_POLICY, note_run, runs_of
from app.records.kinds import KINDS
from app.records.lessons import Lesson
from app.records.memory import Memory
from app.records.revisions import Run
from py_core.learning.trajectories import Trajectory
from py_core.store.store import Store
from py_core.store.volatile import VolatileRows

pytestmark = pytest.mark.asyncio
BASE = "00" * 32
REPORT = DeepReport(8, 2, {"success": 2}, 0, 0, None, None, (), 0, 0.1)


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    memory = await Memory.open(await Store.open(VolatileRows(), kinds=KINDS))
    yield memory
    await memory.close()


async def told(memory: Memory, base: str = BASE) -> list[tuple[str, str, int]]:
    return [(one["loop"], one["kind"], one["count"]) for one in await events(memory, base)]


async def test_each_loop_tells_what_it_did_the_oldest_first(memory: Memory) -> None:
    assert await told(memory) == []
    await memory.lessons.keep(Lesson("How many sheep?", "Seven.", "corrected", created=10.0))
    await memory.revisions.keep(Run(BASE, "scaled", "It is smaller.", new=("a", "b")), None)
    await memory.revisions.keep(Run("11" * 32, "accepted", "Of another model."), None)
    await note_run(memory.policies, "deep", 5.0, "done", 30)
    found = await told(memory)
    assert found[:2] == [("deep", "done", 30), ("instant", "corrected", 1)]
    assert found[2:] == [("background", "scaled", 2)]
    assert (await events(memory, BASE))[1]["text"] == "How many sheep?"
    assert {loop for loop, _, _ in await told(memory, "")} == {"deep", "instant"}


async def test_the_last_run_of_a_version_that_kept_no_list_is_told(memory: Memory) -> None:
    await memory.policies.set(REPORT_POLICY, json.dumps(asdict(REPORT)), confidence=1.0, source="deep")
    assert await told(memory) == [("deep", "done", 8)]
    await note_run(memory.policies, "deep", 9e9, "done", 9)
    assert await told(memory) == [("deep", "done", 9)]


async def test_runs_that_cannot_be_read_are_left_out_and_the_list_stays_short(memory: Memory) -> None:
    for broken in ("[", '{"created": 1}', '[3, {"created": "x", "kind": "done", "count": 1}]', 7):
        await memory.policies.set(RUNS_POLICY.format("deep"), broken, confidence=1.0, source="deep")
        assert runs_of(memory.policies, "deep") == []
    for number in range(MOST + 2):
        await note_run(memory.policies, "deep", float(number), "done", number)
    assert [run["count"] for run in runs_of(memory.policies, "deep")] == list(range(2, MOST + 2))


def answer(day: datetime.date, feedback: str = "", lesson: str = "", quality: float | None = None) -> Trajectory:
    noon = datetime.datetime.combine(day, datetime.time(12)).timestamp()
    return Trajectory("t", "One", "Two", feedback=feedback, lesson=lesson, quality=quality, created=noon)  # type: ignore[arg-type]


async def test_what_was_said_of_answers_is_counted_by_day_and_of_many_weeks_by_week() -> None:
    assert periods([]) == []
    monday = datetime.date(2026, 11, 16)
    sunday = monday + datetime.timedelta(6)
    said = [
        answer(sunday, lesson="l", quality=0.5), answer(sunday, "bad", lesson="l", quality=0.0), answer(sunday, "good"),
        answer(monday, "corrected", quality=0.25),
    ]  # fmt: skip
    first, last = periods(said)
    assert datetime.datetime.fromtimestamp(first["created"]) == datetime.datetime(2026, 11, 16)
    assert [first[name] for name in ("days", "good", "bad", "corrected", "helped")] == [1, 0, 0, 1, 0]
    assert [last[name] for name in ("days", "good", "bad", "corrected", "helped")] == [1, 1, 1, 0, 1]
    assert (last["quality"], last["count"]) == (0.0, 3), "only what the person judged has a quality"
    weeks = periods([*said, answer(monday - datetime.timedelta(30), "good")])
    assert [(one["days"], one["good"], one["corrected"]) for one in weeks] == [(7, 1, 0), (7, 1, 1)]
    assert datetime.datetime.fromtimestamp(weeks[1]["created"]) == datetime.datetime(2026, 11, 16)
