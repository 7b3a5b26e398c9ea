"""The page's data about learning, as plain data. Times are seconds since 1970.

An nll is the mean negative log-probability of the answer's tokens for the model that runs, in nats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from app.consolidation.idle_work import IdleStatus
from app.records.lessons import Source
from app.records.revisions import RunVerdict
from py_core.messages import Words

Opinion = Literal["good", "bad", "corrected"]
LoopName = Literal["instant", "background", "deep"]


class Judged(TypedDict):
    """off: whether the lesson that gave the answer was switched off by this."""

    off: bool


class LessonView(TypedDict):
    """replacedBy: the id of a newer lesson for the same question, "" for none. similarity: to the search text."""

    id: str
    question: str
    answer: str
    source: Source
    on: bool
    replacedBy: str
    quality: float
    uses: int
    created: float
    lastUsed: float
    similarity: float | None


class LessonPage(TypedDict):
    """total: of all that were found."""

    total: int
    items: list[LessonView]


class TaughtLesson(TypedDict):
    """nllBefore, nllAfter: None if the model learns it later, in a pause. replaced: the earlier answer to the same
    question. known: exactly the same was taught before."""

    lesson: LessonView
    ms: float | None
    nllBefore: float | None
    nllAfter: float | None
    replaced: LessonView | None
    known: bool


class LoopView(TypedDict):
    """runs: whether it runs in pauses, and can be asked to run now."""

    name: str
    on: bool
    words: list[Words]
    runs: bool


class LearnedLesson(TypedDict):
    """A lesson that the model has learned."""

    question: str
    nllBefore: float
    nllAfter: float


class TrainingView(TypedDict):
    """A run of the loop "background": app.records.revisions.Run."""

    created: float
    verdict: RunVerdict
    why: Words
    losses: list[float]
    probe: Mapping[str, float]
    recall: Mapping[str, float]
    norm: float
    tokens: int
    seconds: float


class LearningEvent(TypedDict):
    """A loop did something: "instant" (kind: taught, corrected, praised; text: the question), "background" (accepted,
    scaled, refused; count: new facts), "deep" (done; count: answers)."""

    created: float
    loop: LoopName
    kind: str
    count: int
    text: str


class Period(TypedDict):
    """Answers of a day or a week. created: its beginning; days: 1 or 7. count: its answers. good, bad, corrected: the
    person's feedback. quality: the mean of the answers that the person judged, 0 to 1. helped: answers from a lesson
    without a complaint."""

    created: float
    days: int
    count: int
    good: int
    bad: int
    corrected: int
    helped: int
    quality: float | None


class Overview(TypedDict):
    """The content of the Learning view. problem: why nothing can be learned now. idle: the loop that learns in pauses,
    and its progress. lessons: the latest that this model has learned; all lists have the oldest first."""

    problem: Words | None
    idle: IdleStatus | None
    loops: list[LoopView]
    lessons: list[LearnedLesson]
    trainings: list[TrainingView]
    answers: list[Period]
    events: list[LearningEvent]
