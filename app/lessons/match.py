"""The lessons for a message: the candidates, and the lesson that answers it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.generation.learned_answer import AnswerHead
from app.protocol import ConsideredLesson, Done, LessonName, Recall
from app.records.lessons import Lesson
from py_core.adapters.lora import LoraAdapter


@dataclass(frozen=True)
class Candidate:
    """A lesson that was compared with a message. score: the gate's, a logit."""

    lesson: Lesson
    score: float

    @property
    def confidence(self) -> float:
        """Return the probability that the lesson answers the message, as the gate sees it."""
        return 1 / (1 + math.exp(-self.score))


@dataclass(frozen=True)
class LessonMatch:
    """The lesson that answers a message. heads: its imprint, for Assistant.respond. considered: the best first.

    read: the lessons that the model read, if the gate was not sure; `done` is the answer of this lesson, given then.
    """

    lesson: Lesson
    confidence: float
    heads: tuple[AnswerHead, ...]
    considered: tuple[Candidate, ...]
    milliseconds: float
    read: tuple[Lesson, ...] = ()
    done: Done | None = None

    def details(self) -> dict[str, Any]:
        """Return what is kept with the answer: {id, question, confidence}, and `read` if lessons were read."""
        lesson = self.lesson
        told: dict[str, Any] = {"id": lesson.id, "question": lesson.question, "confidence": self.confidence}
        if self.read:
            told["read"] = [{"id": one.id, "question": one.question} for one in self.read]
        return told


@dataclass(frozen=True)
class UnsureMatch:
    """No lesson surely answers a message, but one of `facts` may: the model can read them, with the adapter `reader`
    (Assistant.read). considered: as in LessonMatch."""

    facts: tuple[Candidate, ...]
    reader: LoraAdapter
    considered: tuple[Candidate, ...]
    milliseconds: float

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Return the question and the answer of each fact."""
        return [(one.lesson.question, one.lesson.answer) for one in self.facts]

    def match(self, at: int, done: Done) -> LessonMatch:
        """Return the match for the fact with this number, whose answer the model gave. The time of reading is part of
        `done`."""
        best = self.facts[at]
        read = tuple(one.lesson for one in self.facts)
        return LessonMatch(best.lesson, best.confidence, (), self.considered, self.milliseconds, read, done)


def recall_event(match: LessonMatch) -> Recall:
    considered = [ConsideredLesson(one.lesson.id, one.lesson.question, one.confidence) for one in match.considered]
    return Recall(
        match.lesson.id, match.lesson.question, match.confidence, lesson_names(match.read),
        tuple(considered), match.milliseconds,
    )  # fmt: skip


def lesson_names(lessons: Sequence[Lesson]) -> tuple[LessonName, ...]:
    return tuple(LessonName(one.id, one.question) for one in lessons)
