"""Records of how answers were made, on every backend."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.records.kinds import KINDS
from app.records.memory import Memory
from app.records.sessions import Turn
from py_core.learning.trajectories import KIND, LOGGED_TEXT, Trajectories, Trajectory
from py_core.store.errors import StoreError
from py_core.store.kinds import Kinds
from py_core.store.rows import BLOB
from py_core.store.store import Store
from tests.store.places import Place

NOW, DAY = 1_700_000_000.0, 86400.0


def answer(id: str, **values: object) -> Trajectory:
    return replace(Trajectory(id, "How many sheep?", "Seven."), **values)


@pytest.fixture
async def store(place: Place) -> Store:
    return await place.open(clock=lambda: NOW, kinds=Kinds(KINDS))


async def test_an_answer_is_kept_without_being_waited_for_and_comes_back_whole(store: Store) -> None:
    trajectories = Trajectories(store)
    made = trajectories.record(
        answer(
            "a1",
            session="s1",
            agent="coder",
            route={"why": "clear", "confidence": 0.9, "patterns": ["p1"]},
            lesson="l1",
            stages={"decode": 5.0},
            logprob=-0.5,
            again=True,
            feedback="corrected",
            kept=0.25,
            parts={"fits": 0.5, "new": None},
            quality=0.125,
            effects=({"kind": "lesson", "id": "l1", "by": -0.25},),
            vector=np.array([1, 0], np.float32),
        )
    )
    assert await store.count(KIND) == 0
    found = await trajectories.get("a1")
    assert found is not None
    assert replace(found, vector=None).__repr__() == replace(made, vector=None).__repr__()
    assert np.array_equal(found.vector, made.vector)
    assert found.created == NOW
    trajectories.record(answer("a2", asked="long " * 1000, lesson="l2"))
    assert [t.id for t in await trajectories.all()] == ["a2", "a1"]
    assert [t.id for t in await trajectories.of_lesson("l1")] == ["a1"]
    changed = await trajectories.change("a1", lambda t: replace(t, feedback="good"))
    assert changed is not None
    assert (changed.feedback, changed.lesson) == ("good", "l1")
    assert await trajectories.change("nobody", lambda t: t) is None


async def test_what_cannot_be_kept_is_refused_at_once(store: Store) -> None:
    trajectories = Trajectories(store)
    for bad in ({"quality": 1.5}, {"route": {"patterns": "p1"}}, {"parts": {"fits": "much"}}, {"logprob": 0.5}):
        with pytest.raises(StoreError, match="recorded answer is"):
            trajectories.record(answer("a1", **bad))


async def test_old_answers_go_and_the_oldest_beyond_the_limit(store: Store) -> None:
    trajectories = Trajectories(store, most_age=30 * DAY, most=3)
    for id, days in (("old", 31), ("b", 4), ("c", 3), ("d", 2), ("e", 1)):
        trajectories.record(answer(id, created=NOW - days * DAY))
    assert await trajectories.retain() == 2
    assert [t.id for t in await trajectories.all()] == ["e", "d", "c"]
    assert await trajectories.retain() == 0


async def test_what_nothing_is_learned_of_stays_in_the_log_alone(store: Store) -> None:
    trajectories = Trajectories(store, most_learnable=1)
    trajectories.record(answer("computed", asked="long " * 1000, learnable=False, error="Lost."))
    for number, id in enumerate(("older", "newer")):
        trajectories.record(answer(id, created=NOW + number, lesson="l1", stages={"decode": 5.0}))
    assert await trajectories.retain() == 0
    assert [t.id for t in await trajectories.all()] == [t.id for t in await trajectories.of_lesson("l1")] == ["newer"]
    newer, older, computed = sorted(await trajectories.find(), key=lambda t: ("newer", "older", "computed").index(t.id))
    assert (newer.answered, older.answered, computed.answered) == ("Seven.", "", "")
    assert (older.asked, older.stages, len(computed.asked), computed.error) == (
        "How many sheep?", {"decode": 5.0}, LOGGED_TEXT, "Lost.",
    )  # fmt: skip
    for id in ("older", "computed"):
        assert await trajectories.get(id) is None
        assert await trajectories.change(id, lambda t: replace(t, feedback="good")) is None
        await trajectories.rate(id, 0.5)
    assert {t.id for t in await trajectories.find(rating=0.5)} == {"older", "computed"}


async def test_a_deleted_conversation_takes_its_answers_trajectories_with_it(store: Store) -> None:
    memory = await Memory.open(store)
    kept, gone = [await memory.sessions.start(title) for title in ("Sheep", "Wolves")]
    for session in (kept, gone):
        await memory.sessions.add_turns(session.id, Turn("user", "How many?"), Turn("assistant", "Seven."))
        memory.trajectories.record(answer(session.title, session=session.id))
    memory.trajectories.record(answer("waits", session=gone.id))
    await memory.sessions.delete(gone.id)
    assert [t.id for t in await memory.trajectories.all()] == ["Sheep"]


async def test_what_older_versions_kept_of_an_answers_tokens_goes_with_the_answer(store: Store) -> None:
    trajectories = Trajectories(store, most_learnable=1)
    for number, id in enumerate(("deleted", "set aside", "stays")):
        trajectories.record(answer(id, created=NOW + number))
        await store.put_blob(f"trajectory:{id}/trace", b"tokens")
    await trajectories.delete("deleted")
    await trajectories.retain()
    assert [t.id for t in await trajectories.all()] == ["stays"]
    assert await store.keys_starting_with(BLOB, "trajectory:") == [(BLOB, "trajectory:stays/trace")]
