"""Taught lessons, on every backend."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from app.records.lessons import KIND, Lesson, Lessons, lesson_of
from app.records.revisions import WEIGHTS, Revisions, Run
from py_core.store.store import Store
from py_core.store.vectors import VectorSearch


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


async def test_a_lesson_is_kept_found_by_its_question_used_and_deleted(store: Store) -> None:
    lessons = Lessons(store)
    boat = await lessons.keep(Lesson("What is the boat called?", "She is the Pelican.", vector=vector(1, 0)))
    await lessons.keep(Lesson("Who is my dentist?", "Dr. Quill.", "corrected", vector=vector(0, 1)))
    found = [lesson_of(record) for record, _ in await VectorSearch(store).search(KIND, vector(1, 0.1), 1)]
    assert found == [boat]
    assert found[0].created > 0
    assert found[0].answers

    used = await lessons.use(boat.id)
    assert used is not None
    assert (used.uses, used.quality) == (1, 1.0)
    off = await lessons.edit(boat.id, on=False)
    assert off is not None
    assert not off.answers
    await lessons.delete(boat.id)
    assert await lessons.get(boat.id) is None
    assert await lessons.use(boat.id) is None
    assert [lesson.question for lesson in await lessons.all()] == ["Who is my dentist?"]


async def test_a_newer_lesson_makes_history_of_the_one_that_it_replaces(store: Store) -> None:
    lessons = Lessons(store)
    old = await lessons.keep(Lesson("Where do I park?", "In row five.", uses=3))
    new = await lessons.keep(Lesson("Where do I park?", "In row nine."), replaces=(old.id, "gone"))
    history = await lessons.get(old.id)
    assert history == replace(old, replaced_by=new.id)
    assert history is not None
    assert (history.uses, history.created) == (3, old.created)
    assert not history.answers
    assert new.answers


async def test_undo_deletes_the_newer_lesson_and_the_one_before_answers_again(store: Store) -> None:
    lessons = Lessons(store)
    first = await lessons.keep(Lesson("Where do I park?", "In row five."))
    second = await lessons.keep(Lesson("Where do I park?", "In row nine."), replaces=(first.id,))
    third = await lessons.keep(Lesson("Where do I park?", "In row two."), replaces=(second.id,))
    assert await lessons.undo(third.id) == [second]
    assert [(one.id, one.answers) for one in await lessons.all()] == [(first.id, False), (second.id, True)]
    assert await lessons.undo(second.id) == [first]
    assert await lessons.undo(first.id) == []
    assert await lessons.all() == []


async def test_what_comes_back_after_its_question_got_another_answer_is_history(store: Store) -> None:
    lessons = Lessons(store)
    old = await lessons.keep(Lesson("Where do I park?", "In row five."))
    await lessons.delete(old.id)
    new = await lessons.keep(Lesson("where do I  park", "In row nine."))
    assert await lessons.restore(old) == replace(old, replaced_by=new.id)
    assert [one.id for one in await lessons.all() if one.answers] == [new.id]
    await lessons.undo(new.id)
    assert [one.id for one in await lessons.all() if one.answers] == [old.id]

    # Its question was changed, and taught again: undoing the change must not duplicate it.
    moved = await lessons.keep(Lesson("Where does my car stand?", "In row five."), replaces=(old.id,))
    newest = await lessons.keep(Lesson("Where do I park?", "In row one."))
    assert await lessons.undo(moved.id) == []
    assert [(one.id, one.replaced_by) for one in await lessons.all()] == [(old.id, newest.id), (newest.id, "")]


async def test_of_several_current_answers_to_a_question_the_newest_stays_so(store: Store) -> None:
    lessons = Lessons(store)
    kept = [
        await lessons.keep(Lesson(question, answer))
        for question, answer in (("Who?", "Ada."), ("When?", "Now."), ("who", "Bob."), ("Who ?", "Cyd."))
    ]
    told = [(one.answer, one.replaced_by) for one in await lessons.settled()]
    assert told == [("Ada.", kept[2].id), ("Now.", ""), ("Bob.", kept[3].id), ("Cyd.", "")]
    assert [(one.answer, one.replaced_by) for one in await lessons.settled()] == told
    newest = await lessons.keep(Lesson("Who?", "Dan."), replaces=(kept[2].id, kept[3].id))
    assert [one.answer for one in await lessons.undo(newest.id)] == ["Cyd."]
    assert [one.answer for one in await lessons.all() if one.answers] == ["Now.", "Cyd."]


async def test_a_lesson_that_is_taken_back_takes_the_numbers_of_what_was_trained_on_it_along(store: Store) -> None:
    lessons, revisions = Lessons(store), Revisions(store)
    taught, other = await lessons.keep(Lesson("Who?", "Ada.")), await lessons.keep(Lesson("When?", "Now."))
    await revisions.keep(Run("0" * 64, "accepted", "", lessons=(taught.id, other.id)), b"numbers")
    assert await store.count(WEIGHTS) == 1
    await lessons.undo(taught.id)
    assert await store.count(WEIGHTS) == 0
    (run,) = await revisions.runs()
    assert not run.has_weights
