"""Patterns, policies and conversations, on every backend."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.records.kinds import KINDS
from app.records.policies import Policies, Policy
from app.records.sessions import Sessions, Turn
from py_core.hnsw.vector_index import VectorIndex
from py_core.routing.patterns import Pattern, Patterns
from py_core.store.errors import StoreError
from py_core.store.kinds import ANY
from py_core.store.records import Record
from py_core.store.store import Store
from py_core.store.vectors import VectorSearch
from py_core.store.volatile import VolatileRows
from py_core.store.write_batch import BatchedWriter
from tests.store.places import ANY_BODY, Place


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


async def test_a_pattern_is_kept_and_edited_and_deleted(store: Store) -> None:
    patterns = Patterns(store)
    await patterns.keep(Pattern("fix", "fix the crash", vector(1, 0, 0), "debugger"))
    await patterns.keep(Pattern("test", "write a test", vector(0, 1, 0.1), "tester", "example", 0.75))
    fix, test = await patterns.all()
    assert (fix.text, fix.agent, fix.weight, fix.uses) == ("fix the crash", "debugger", 1.0, 0)
    assert (test.text, test.source, test.weight) == ("write a test", "example", 0.75)

    edited = await patterns.edit("fix", agent="coder", vector=vector(0, 0, 1))
    assert edited is not None
    assert (edited.agent, edited.text, edited.created) == ("coder", "fix the crash", fix.created)
    assert [r.id for r, _ in await VectorSearch(store).search("pattern", vector(0, 0, 1), 1)] == ["fix"]
    await patterns.delete("fix")
    assert await patterns.get("fix") is None
    assert await patterns.edit("fix", agent="x") is None
    assert await patterns.use("fix") is None


async def test_a_pattern_that_is_kept_again_has_its_uses_and_dates(store: Store) -> None:
    patterns = Patterns(store)
    await patterns.keep(Pattern("p", "a", vector(1, 0), "coder"))
    before = await patterns.get("p")
    await asyncio.gather(*(patterns.use("p") for _ in range(5)))
    used = await patterns.get("p")
    await patterns.keep(Pattern("p", "a", vector(1, 0), "tester").after_outcome(good=True))
    again = await patterns.get("p")
    assert before
    assert used
    assert again
    assert (again.agent, again.weight) == ("tester", pytest.approx(1.05))
    assert (again.uses, again.created, again.last_used) == (5, before.created, used.last_used)


def test_a_pattern_of_the_users_that_is_not_used_fades_to_half() -> None:
    day = 86400.0
    said = Pattern("p", "a", vector(1, 0), "coder", weight=1.5, last_used=100 * day)
    strengths = [said.strength((100 + days) * day) for days in (-1, 0, 0.9, 15, 30, 3000)]
    assert strengths == pytest.approx([1.5, 1.5, 1.5, 1.5 * 0.5**0.5, 0.75, 0.75])
    shipped = Pattern("e", "a", vector(1, 0), "coder", "example", 1.5)
    assert shipped.strength(3000 * day) == 1.5


async def test_stored_qualities_are_the_weights_that_they_were_made_of() -> None:
    """Version 2 stored half of the router's weight as a quality."""
    rows = VolatileRows({"schema": "2"})
    old = await Store.open(rows, schema=2, kinds=ANY_BODY)
    bodies = {
        id: {"text": id, "agent": "coder", "quality": quality, "uses": 3, "source": "user", "last_used": 5.0}
        for id, quality in (("usual", 0.5), ("strong", 0.9), ("weak", 0.25), ("none", 0.0))
    }
    await old.put_many(Record("pattern", id, body, vector(1, 0), 1.0) for id, body in bodies.items())

    found = {pattern.id: pattern for pattern in await Patterns(await Store.open(rows, kinds=ANY_BODY)).all()}

    assert {id: pattern.weight for id, pattern in found.items()} == pytest.approx(
        {"usual": 1.0, "strong": 1.8, "weak": 0.5, "none": 0.5}
    )
    assert all((p.text, p.uses, p.created, p.last_used) == (id, 3, 1.0, 5.0) for id, p in found.items())


async def test_policies_of_an_older_memory_were_set_when_they_were_used_last() -> None:
    """Version 4 stored neither the number of observations behind a policy, nor its time."""
    rows = VolatileRows({"schema": "4"})
    old = await Store.open(rows, schema=4, kinds=ANY_BODY)
    await old.put(Record("policy", "p", {"value": 3, "confidence": 0.5, "source": "deep", "last_used": 7.0}))

    policies = await Policies.open(await Store.open(rows, kinds=KINDS))

    assert policies.all() == [Policy("p", 3, 0.5, "deep", 7.0, observations=0, changed=7.0)]


@pytest.mark.parametrize("lasting", ["sqlite", "sqlite encrypted"], indirect=True)
async def test_a_search_follows_what_another_writes(lasting: Place) -> None:
    """A tab gets changes by message: test_indexeddb.py."""
    here, there = await lasting.open(), await lasting.open()
    search = VectorSearch(here)
    await here.put(Record("pattern", "a", {}, vector(1, 0)))
    assert [r.id for r, _ in await search.search("pattern", vector(1, 0), 5)] == ["a"]
    await there.put(Record("pattern", "b", {}, vector(1, 0)))
    await there.delete("pattern", "a")
    assert [r.id for r, _ in await search.search("pattern", vector(1, 0), 5)] == ["b"]


@pytest.mark.parametrize("scanned", [0, 100])
@settings(max_examples=50, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 7) | st.none()), max_size=40))
def test_the_index_is_what_its_inserts_and_deletes_say(scanned: int, steps: list[tuple[str, int | None]]) -> None:
    index, model = VectorIndex(2, scanned=scanned), dict[str, int]()
    changes = list[bool]()
    index.changed = changes.append
    for id, angle in steps:
        told = len(changes)
        if angle is None:
            index.delete(id)
            assert changes[told:] == [True] * (id in model)
            model.pop(id, None)
        else:
            index.insert(id, vector(np.cos(angle / 3), np.sin(angle / 3)))
            assert changes[told:] == [False] * (model.get(id) != angle)
            model[id] = angle
        assert (set(index), len(index)) == (set(model), len(model))
        found = index.search(vector(1, 0), 20)
        assert {i for i, _ in found} == set(model)
        assert [s for _, s in found] == sorted((s for _, s in found), reverse=True)
        assert all(abs(s - np.cos(model[i] / 3)) < 1e-5 for i, s in found)
        evens = index.search(vector(1, 0), 2, lambda id: model[id] % 2 == 0)
        best = sorted((v for v in model.values() if v % 2 == 0), key=lambda v: -np.cos(v / 3))[:2]
        assert [model[i] for i, _ in evens] == best


async def test_vectors_of_other_lengths_and_none_are_not_found(store: Store) -> None:
    vectors = {"two": vector(1, 0), "three": vector(1, 0, 0), "none": None}
    await store.put_many(Record("pattern", name, {}, each) for name, each in vectors.items())
    search = VectorSearch(store)
    assert [r.id for r, _ in await search.search("pattern", vector(1, 0), 5)] == ["two"]
    assert [r.id for r, _ in await search.search("pattern", vector(1, 0, 0), 5)] == ["three"]
    assert await search.search("pattern", vector(1, 0, 0, 0), 5) == []
    assert await search.search("session", vector(1, 0), 5) == []


async def test_policies_keep_their_type_confidence_and_source(place: Place) -> None:
    store = await place.open()
    policies = await Policies.open(store)
    for name, value in (("on", True), ("count", 3), ("rate", 0.25), ("mode", "fast"), ("weights", [1.0, 2.5])):
        await policies.set(name, value, confidence=0.75, source="learned", observations=12)
    await policies.set("count", 4, confidence=1.0, source="user")

    again = await Policies.open(store)
    assert again.get("count", 0) == 4
    assert again.get("on", False) is True
    assert again.get("weights", [0.0]) == [1.0, 2.5]
    assert again.get("rate", 0) == 0  # not an integer
    assert again.get("nothing", "default") == "default"
    seen = again.look("mode")
    assert seen is not None
    assert (seen.value, seen.confidence, seen.source, seen.observations) == ("fast", 0.75, "learned", 12)
    assert seen.changed == seen.last_used > 0
    with pytest.raises(StoreError, match="holds text, not a whole number"):
        await again.edit("mode", 1)
    assert (await again.edit("rate", 1)).value == 1.0
    with pytest.raises(StoreError, match="from 0 to 1"):
        await again.set("mode", "slow", confidence=1.5, source="user")
    await again.delete("mode")
    assert (await Policies.open(store)).look("mode") is None


async def test_the_policy_used_longest_ago_goes_first(place: Place) -> None:
    clock = Clock()
    store = await place.open(clock=clock)
    writer = BatchedWriter(store)
    policies = await Policies.open(store, writer, capacity=3)
    for name in ("a", "b", "c"):
        await policies.set(name, name, confidence=1.0, source="user")
    assert policies.get("a", "") == "a"
    await writer.flush()
    policies = await Policies.open(store, writer, capacity=3)  # the use of a is remembered
    await policies.set("d", "d", confidence=1.0, source="user")
    assert [policy.name for policy in policies.all()] == ["d", "a", "c"]
    assert await store.count("policy") == 3


async def test_a_conversation_goes_on_where_it_was(store: Store) -> None:
    sessions = Sessions(store)
    session = await sessions.start("Rain", adapter="mine")
    other = await sessions.start("Sun")
    turns = [Turn("user", "Will it rain?"), Turn("assistant", "Yes.", details={"agent": "planner"})]
    state = {"tokens": 12}
    await sessions.add_turns(session.id, *turns, state=state)
    await sessions.add_turns(session.id, Turn("user", "Thanks"))
    await sessions.edit(session.id, title="Weather")

    found = await sessions.get(session.id)
    assert found is not None
    assert (found.title, found.turns, found.adapter, found.state) == ("Weather", 3, "mine", state)
    assert [(t.role, t.content, t.details) for t in await sessions.path(session.id)] == [
        ("user", "Will it rain?", {}),
        ("assistant", "Yes.", {"agent": "planner"}),
        ("user", "Thanks", {}),
    ]
    assert [s.id for s in await sessions.all()] == [session.id, other.id]

    await sessions.delete(session.id)
    assert await sessions.path(session.id) == []
    assert await store.count("turn") == 0
    with pytest.raises(StoreError, match="Start a new one"):
        await sessions.add_turns(session.id, Turn("user", "?"))


async def test_turns_added_in_two_tabs_at_once_are_all_kept(store: Store) -> None:
    sessions = Sessions(store)
    session = await sessions.start()
    await asyncio.gather(*(sessions.add_turns(session.id, Turn("user", str(n))) for n in range(8)))
    assert sorted(turn.content for turn in await sessions.path(session.id)) == [str(n) for n in range(8)]


async def test_a_style_that_an_older_version_learned_is_gone_once_a_memory_opens(lasting: Place) -> None:
    old = await lasting.open(kinds=ANY)
    liked = {
        "base_sha256": "0" * 64,
        "verdict": "accepted",
        "why": "It helps.",
        "sources": ["lesson:l1"],
        "weights": "1 A",
    }
    on = {"value": True, "confidence": 1.0, "source": "user", "last_used": 1.0, "observations": 0, "changed": 1.0}
    await old.put_many(
        [Record("style", "0" * 16, liked), *(Record("policy", id, on) for id in ("learning.style", "x"))]
    )
    await old.close()
    store = await lasting.open(kinds=KINDS)
    assert [(record.kind, record.id) async for record in store.scan()] == [("policy", "x")]
    assert (await store.keys_starting_with("style", ""), store.unreadable, store.suspicion) == ([], set(), None)
