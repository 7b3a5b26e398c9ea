"""A learned style is deleted together with anything that it was learned from, on every backend."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.records.kinds import KINDS
from app.records.lessons import Lesson, Lessons
from app.records.styles import Style, Styles, packed
from py_core.adapters.head import HeadAdapter
from py_core.learning.trajectories import Trajectories, Trajectory
from py_core.messages import Message
from py_core.store.records import Record
from py_core.store.store import Store
from py_core.store.volatile import VolatileRows
from tests.store.places import ANY_BODY

BASE = "a" * 64


def pair(rank: int = 2, width: int = 6) -> HeadAdapter:
    draw = np.random.default_rng(1)
    return HeadAdapter(*(draw.standard_normal(shape).astype(np.float32) for shape in ((rank, width), (width, rank))))


async def learned(store: Store) -> tuple[Styles, Lesson, Lesson]:
    """A style of two lessons and an answer; the second lesson was only measured."""
    lessons, trajectories, styles = Lessons(store), Trajectories(store), Styles(store)
    taught, measured = [await lessons.keep(Lesson(word, "Yes.", "corrected")) for word in ("one?", "two?")]
    trajectories.record(Trajectory("answer", "three?", "No.", "chat", feedback="good"))
    await trajectories.get("answer")
    sources = (f"lesson:{taught.id}", "trajectory:answer")
    style = Style(BASE, "accepted", "It helps.", 0, sources, (f"lesson:{measured.id}",), weights=packed(pair()))
    assert await styles.keep(style)
    return styles, taught, measured


async def test_it_is_kept_with_its_numbers_and_a_newer_one_takes_its_place(store: Store) -> None:
    styles, taught, _ = await learned(store)
    found = await styles.get(BASE)
    assert found is not None
    assert found.adapter is not None
    np.testing.assert_allclose(found.adapter.a, pair().a, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found.adapter.b, pair().b, rtol=1e-3, atol=1e-3)
    assert await styles.keep(replace(found, why="Another.", sources=(f"lesson:{taught.id}",)))
    assert [record.body["why"] for record in await store.query("style")] == ["Another."]
    assert await styles.get("b" * 64) is None


async def test_why_it_was_kept_is_the_same_message_afterwards_and_a_damaged_one_is_refused(store: Store) -> None:
    styles, *_ = await learned(store)
    found = await styles.get(BASE)
    assert found is not None
    measured = Message("style.measured", "Perplexity: {harm}.", harm="+1%")
    why = Message("style.learned", "Learned from {count} answers. {measured}", count=3, measured=measured)
    assert await styles.keep(replace(found, why=why))
    (record,) = await store.query("style")
    kept = await styles.get(BASE)
    assert kept is not None
    assert kept.why == why
    assert KINDS.problem_of(record) is None
    for damaged in (3, {"code": "a.b"}, {"code": "a.b", "text": "{x}", "values": {"x": {"text": "no code"}}}):
        assert KINDS.problem_of(replace(record, body=record.body | {"why": damaged}))


@pytest.mark.parametrize("what", ["a lesson", "one that was measured", "an answer", "all lessons"])
async def test_it_is_deleted_with_any_record_that_it_was_learned_from(store: Store, what: str) -> None:
    styles, taught, measured = await learned(store)
    told: list[tuple[str, str]] = []
    store.on_change(lambda change: told.extend(change.deletes))
    if what == "all lessons":
        await store.clear("lesson")
    elif what == "an answer":
        await store.delete("trajectory", "answer")  # by whatever deletes records
    else:
        await Lessons(store).delete((taught if what == "a lesson" else measured).id)
    assert await styles.get(BASE) is None
    assert ("style", BASE[:16]) in told


async def test_it_stays_where_something_else_is_deleted(store: Store) -> None:
    styles, _, _ = await learned(store)
    other = await Lessons(store).keep(Lesson("four?", "Yes."))
    await Lessons(store).delete(other.id)
    await store.put(Record("policy", "p", {"value": 1, "confidence": 1.0, "source": "user", "last_used": 0.0}))
    await store.delete("policy", "p")
    assert await styles.get(BASE) is not None


async def test_what_was_forgotten_while_it_was_learned_leaves_no_style(store: Store) -> None:
    styles, taught, _ = await learned(store)
    found = await styles.get(BASE)
    assert found is not None
    await Lessons(store).delete(taught.id)
    assert not await styles.keep(found)
    assert await styles.get(BASE) is None


@pytest.mark.parametrize("weights", ["", "2", "2 x", "0 AAAA", "2 AAAAAAAA", "x AAAAAAAA", "1 AH4AfgB+AH4="])
async def test_damaged_numbers_are_no_adapter(weights: str) -> None:
    """The last ones are not numbers; the ones before are not the shape of two matrices, or not a text of numbers."""
    assert Style(BASE, "accepted", "", weights=weights).adapter is None


@given(st.integers(1, 4), st.integers(1, 40), st.floats(-3e4, 3e4))
def test_numbers_of_any_shape_come_back(rank: int, width: int, value: float) -> None:
    adapter = pair(rank, width)
    adapter.a[0, 0] = value
    found = Style(BASE, "accepted", "", weights=packed(adapter)).adapter
    assert found is not None
    assert (found.a.shape, found.b.shape) == ((rank, width), (width, rank))
    np.testing.assert_allclose(found.a, adapter.a, rtol=1e-3, atol=1e-3)


async def test_numbers_that_are_too_large_to_be_kept_are_no_adapter() -> None:
    adapter = pair()
    adapter.a[0, 0] = 1e9
    with np.errstate(over="ignore"):
        assert Style(BASE, "accepted", "", weights=packed(adapter)).adapter is None


async def test_no_power_cut_leaves_a_style_without_what_it_was_learned_from() -> None:
    """Asserts that the rows never hold a style without its sources."""
    rows = VolatileRows()
    seen: list[set[str]] = []
    apply = rows.apply

    async def watched(batch) -> None:
        await apply(batch)
        seen.append({row.kind for row in await rows.scan(None, None, 100)})

    rows.apply = watched  # type: ignore[method-assign]
    store = await Store.open(rows, kinds=ANY_BODY)
    _, taught, measured = await learned(store)
    await Lessons(store).delete(taught.id, measured.id)
    assert not [kinds for kinds in seen if "style" in kinds and "lesson" not in kinds]
    assert "style" not in seen[-1]
