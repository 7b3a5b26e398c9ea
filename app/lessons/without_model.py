"""Lessons without a model: found by words, noted, and deleted together with what they replaced."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from app.lessons.service import Learned, both_given
from app.records.lessons import Lesson, plain
from app.records.memory import Memory
from py_core.learning.gate.lexicon import SMALL
from py_core.text_search import has_all, terms_of


def with_words(lessons: Sequence[Lesson], text: str) -> list[Lesson]:
    """The lessons whose question or answer contains each significant word of a text, or a word that begins with it. Of
    lessons that replaced each other only the newest."""
    terms = terms_of(text)
    wanted = [term for term in terms if term not in SMALL] or terms
    fits = {one.id: one for one in lessons if wanted and has_all(wanted, f"{one.question} {one.answer}")}
    return [lesson for lesson in fits.values() if lesson.replaced_by not in fits]


def with_older(lessons: Sequence[Lesson], found: Sequence[Lesson]) -> list[Lesson]:
    """These lessons, and all that they replaced."""
    ids = {lesson.id for lesson in found}
    while older := {lesson.id for lesson in lessons if lesson.replaced_by in ids} - ids:
        ids |= older
    return [lesson for lesson in lessons if lesson.id in ids]


async def note(memory: Memory, question: str, answer: str) -> Learned:
    """Store a lesson that each model learns when it is next used (LearningService). The answers that were taught for
    the same question become history, as in LearningService.teach. Raises LessonError, StoreError."""
    begin = time.perf_counter()
    question, answer = both_given(question, answer)
    every = await memory.lessons.all()
    same = [one for one in every if not one.replaced_by and plain(one.question) == plain(question)]
    known = next((one for one in same if one.answer == answer), None)
    others = [one for one in same if one is not known]
    replaced = next((one for one in others if one.answer != answer), None)
    lesson = known or Lesson(question, answer)
    if known is None or others or not known.on:
        lesson = await memory.lessons.keep(replace(lesson, on=True), tuple(one.id for one in others))
    return Learned(lesson, None, None, 1000 * (time.perf_counter() - begin), 0.0, replaced, known is None)
