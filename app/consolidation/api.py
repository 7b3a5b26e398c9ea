"""The page's requests about learning: feedback, lessons, the loops and what they did, as plain data.

web/learning/client.js calls its methods with JSON. Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Literal

from app.consolidation.idle_learning import IdleLearning
from app.lessons.feedback import Feedback
from app.lessons.forgotten_lessons import ForgottenLessons
from app.lessons.service import Learned, LearningService
from app.lessons.talk import OFFERS
from app.records.lessons import KIND as LESSON
from app.records.lessons import Lesson
from app.records.memory import Memory
from app.records.revisions import Run
from py_core.adapters.lora import LoraAdapter
from py_core.learning.trajectories import KIND as TRAJECTORY
from py_core.messages import Message, Words
from py_core.routing.embedder import EmbedderError
from py_core.store.errors import StoreError
from py_core.text_search import has_all, terms_of

if TYPE_CHECKING:
    from app.consolidation.views import (
        Judged,
        LearnedLesson,
        LessonPage,
        LessonView,
        Opinion,
        Overview,
        TaughtLesson,
        TrainingView,
    )
    from app.lessons.views import Story
    from app.models.views import AdapterView
    from app.runtime import Runtime

LEAST_SIMILARITY = 0.35
"""Lessons that are less similar to the search text are not shown."""
MEANT = 200
PLOTTED = 30
"""The most lessons and trainings that are plotted."""
UNPREPARED = Message(
    "learning.new-model",
    "Sonata gets to know this model in a pause; until then it repeats what you taught word for word.",
)
OPENING = Message("learning.loading", "Sonata is still loading what it needs to learn. Try again in a moment.")
NO_READER = Message("learning.no-reader", "Sonata has no reader of facts for this model, so no facts are read.")
Filter = Literal["now", "off", "history"]


class LearningApi:
    """Each public method is called by the page."""

    def __init__(
        self, runtime: Runtime, leaves_out: Callable[[], Words] = lambda: "",
        chosen: Callable[[], LoraAdapter | None] = lambda: None,
        leave_out: Callable[[Sequence[Lesson]], Awaitable[None]] | None = None,
        forgotten: ForgottenLessons | None = None,
    ) -> None:  # fmt: skip
        """leaves_out, chosen: Assistant.leaves_out and Assistant.adapter of the model that runs. leave_out: as of
        Conversation.leave_out, of the page's conversation. forgotten: on the page."""
        self._runtime, self._leaves_out, self._chosen, self._leave_out = runtime, leaves_out, chosen, leave_out
        self._feedback = Feedback(runtime)
        self._forgotten = forgotten or ForgottenLessons(runtime)

    # ---- an answer, by its id ----

    async def good(self, id: str) -> None:
        await self._feedback.good(id)

    async def bad(self, id: str) -> Judged:
        return {"off": bool((await self._feedback.bad(id)).lesson_off)}

    async def take_back(self, id: str) -> None:
        await self._feedback.take_back(id)

    async def should_have_said(self, id: str, question: str, answer: str) -> TaughtLesson:
        return _learned(await self._feedback.should_have_said(id, question, answer))

    async def remember_answer(self, id: str, question: str, answer: str) -> TaughtLesson:
        return _learned(await self._feedback.remember_answer(id, question, answer))

    async def opinions(self, ids: list[str]) -> dict[str, Opinion]:
        """Return the feedback on these answers, by id."""
        await self._memory.writer.flush()
        records = await self._memory.store.get_many([(TRAJECTORY, id) for id in ids])
        return {record.id: record.body["feedback"] for record in records if record.body["feedback"]}

    # ---- lessons ----

    async def teach(self, question: str, answer: str) -> TaughtLesson:
        return _learned(await self._learning.teach(question, answer))

    async def offer_no_more(self, chat: str) -> None:
        """Stop offering, in this conversation, to remember facts that are told in passing."""
        await self._memory.sessions.edit(chat, state={OFFERS: False})

    async def undo_teaching(self, id: str) -> None:
        await self._learning.undo(id)

    async def lesson(self, id: str) -> LessonView | None:
        lesson = await self._memory.lessons.get(id)
        return None if lesson is None else _lesson(lesson)

    async def lesson_story(self, id: str) -> Story | None:
        """Return what a lesson changed (app/lessons/story.py); None if it was forgotten."""
        from app.lessons.story import story_of  # late, as in app/runtime.py

        lesson = await self._memory.lessons.get(id)
        return None if lesson is None else await story_of(lesson, self._memory, self._runtime.learning)

    async def lessons(self, filter: Filter = "now", search: str = "", offset: int = 0, limit: int = 50) -> LessonPage:
        """Return the newest lessons first, or, with a search text, those that hold its words, then the most similar."""
        found = {one.id: one for one in reversed(await self._memory.lessons.all()) if _is_shown(one, filter)}
        similar: dict[str, float] = {}
        order = list(found)
        if search.strip():
            similar = await self._similar(search)
            terms = terms_of(search)
            literal = [id for id, one in found.items() if has_all(terms, f"{one.question} {one.answer}")]
            literal.sort(key=lambda id: -similar.get(id, 0.0))
            order = [id for id in dict.fromkeys([*literal, *similar]) if id in found]
        shown = order[offset : offset + limit]
        return {"total": len(order), "items": [_lesson(found[id], similar.get(id)) for id in shown]}

    async def edit_lesson(self, id: str, question: str, answer: str) -> TaughtLesson:
        learned = await self._learning.edit(id, question, answer)
        if learned is None:
            raise StoreError("record", "lessons.forgotten", "This was forgotten.")
        return _learned(learned)

    async def switch_lesson(self, id: str, on: bool) -> None:
        await self._memory.lessons.edit(id, on=on)

    async def forget(self, ids: list[str]) -> None:
        lessons = [lesson for id in ids if (lesson := await self._memory.lessons.get(id)) is not None]
        if self._runtime.learning is not None:
            await self._runtime.learning.forget(*ids)
        else:
            await self._memory.lessons.delete(*ids)
        self._forgotten.note(lessons)
        if self._leave_out is not None:
            await self._leave_out(lessons)

    async def restore(self, ids: list[str]) -> int:
        """Return how many came back as history only: newer answers to the same questions were taught meanwhile."""
        lessons = [lesson for id in ids if (lesson := self._forgotten.take(id)) is not None]
        restore = self._runtime.learning.restore if self._runtime.learning else self._memory.lessons.restore
        restored = [await restore(lesson) for lesson in lessons]
        return sum(after.replaced_by != before.replaced_by for before, after in zip(lessons, restored, strict=True))

    # ---- the loops ----

    async def overview(self) -> Overview:
        from app.consolidation.history import events, periods  # late, as in app/runtime.py

        runtime, memory = self._runtime, self._memory
        lessons = await memory.lessons.all()
        learning, idle = runtime.learning, runtime.idle
        runs = await memory.revisions.runs(learning.base_sha256) if learning is not None else []
        words: dict[str, list[Words]] = {
            "instant": [_instant_words(lessons), await self._unprepared_words()],
            "background": [_background_words(runs), self._leaves_out()],
            "deep": self._deep_words(),
            "reading": [] if learning is None or learning.reads else [NO_READER],
        }
        in_pauses = [name for name in idle.names if name != "preparation"] if idle is not None else []
        loops = ["instant", "reading", *in_pauses]
        return {
            "problem": runtime.learning_stage.why,
            "idle": None if idle is None else idle.status,
            "loops": [
                {
                    "name": name,
                    "on": self._is_on(name),
                    "words": list(filter(None, words.get(name, ()))),
                    "runs": name in in_pauses,
                }
                for name in loops
            ],
            "lessons": await self._learned_lately(lessons),
            "trainings": [_training(run) for run in runs[-PLOTTED:]],
            "answers": periods(await memory.trajectories.all()),
            "events": await events(memory, learning.base_sha256 if learning is not None else ""),
        }

    async def adapters(self) -> list[AdapterView]:
        """Return the adapters that answers use besides the model's weights: app/models/adapter_views.py."""
        from app.models.adapter_views import adapter_views  # late, as in app/runtime.py

        return await adapter_views(self._runtime, self._chosen())

    async def switch_adapter(self, id: str, on: bool) -> None:
        """Switch the use of a training's adapter in answers; id: of its run."""
        await self._memory.revisions.switch(id, on)
        if self._runtime.consolidation is not None:
            await self._runtime.consolidation.refresh()

    async def learn_now(self, name: str) -> None:
        """Run a loop once, however little there is to learn."""
        self._idle.learn_now(name)

    async def pause(self) -> None:
        """Stop learning in pauses until `resume`."""
        self._idle.pause()

    async def resume(self) -> None:
        self._idle.resume()

    async def set_loop(self, name: str, on: bool) -> None:
        """name: as in `overview`."""
        await self._memory.policies.set(f"learning.{name}", on, confidence=1.0, source="user")

    # ---- helpers ----

    def _is_on(self, loop: str) -> bool:
        return self._memory.policies.is_on(f"learning.{loop}")

    def _deep_words(self) -> list[Words]:
        from app.consolidation.deep_loop import last_report  # late, as in app/runtime.py

        report = last_report(self._memory)
        if report is None:
            return []
        said: list[Words] = [
            Message(
                "learning.deep-loop",
                "Last time it looked at {answers}, and kept what {groups} of them showed.",
                answers=_answers(report.trajectories),
                groups=_groups(report.strategies),
            )
        ]
        if report.suggestions:
            questions = ", ".join(f"“{one.question}”" for one in report.suggestions)
            said.append(
                Message("learning.questions", "You could teach an answer to: {questions}.", questions=questions)
            )
        return said

    async def _unprepared_words(self) -> Words:
        learning = self._runtime.learning
        is_known = learning is None or await learning.imprints.is_prepared(self._memory)
        return "" if is_known else UNPREPARED

    async def _learned_lately(self, lessons: Sequence[Lesson]) -> list[LearnedLesson]:
        """The latest lessons that this model has learned, the oldest first."""
        learning = self._runtime.learning
        if learning is None:
            return []
        found: list[LearnedLesson] = []
        for lesson in [one for one in lessons if not one.replaced_by][-PLOTTED:]:
            if (nll := await learning.imprint_nll(lesson)) is not None:
                found.append({"question": lesson.question, "nllBefore": nll[0], "nllAfter": nll[1]})
        return found

    async def _similar(self, search: str) -> dict[str, float]:
        learning = self._runtime.learning
        if learning is None:
            return {}
        (meaning,) = await learning.embedder.meanings([search])
        found = await self._memory.search.search(LESSON, meaning.vector, MEANT)
        return {record.id: float(cosine) for record, cosine in found if cosine >= LEAST_SIMILARITY}

    @property
    def _memory(self) -> Memory:
        return self._runtime.memory

    @property
    def _idle(self) -> IdleLearning:
        if self._runtime.idle is None:
            raise EmbedderError(self._runtime.learning_stage.why or OPENING)
        return self._runtime.idle

    @property
    def _learning(self) -> LearningService:
        if self._runtime.learning is None:
            raise EmbedderError(self._runtime.learning_stage.why or OPENING)
        return self._runtime.learning


def _instant_words(lessons: Sequence[Lesson]) -> Words:
    known = sum(lesson.answers for lesson in lessons)
    uses = sum(lesson.uses for lesson in lessons)
    if not lessons:
        return Message("learning.nothing-taught", "You have taught nothing yet.")
    return Message(
        "learning.in-use",
        "{known} in use; {uses} came from what you taught.",
        known=_facts(known),
        uses=_answers(uses),
    )


def _background_words(runs: Sequence[Run]) -> Words:
    if not runs:
        return ""
    return Message(
        "learning.last-training",
        "The last training used {facts} that you taught. {why}",
        facts=_facts(len(runs[-1].lessons)),
        why=runs[-1].why,
    )


def _training(run: Run) -> TrainingView:
    return {
        "created": run.created, "verdict": run.verdict, "why": run.why,
        "losses": list(run.steps.get("cross_entropy", ())), "probe": run.probe, "recall": run.recall,
        "norm": run.norm, "tokens": run.tokens, "seconds": run.seconds,
    }  # fmt: skip


def _facts(count: int) -> Message:
    if count == 1:
        return Message("learning.fact", "1 fact")
    return Message("learning.facts", "{count} facts", count=f"{count:,}")


def _answers(count: int) -> Message:
    if count == 1:
        return Message("learning.answer", "1 answer")
    return Message("learning.answers", "{count} answers", count=f"{count:,}")


def _groups(count: int) -> Message:
    if count == 1:
        return Message("learning.group", "1 group")
    return Message("learning.groups", "{count} groups", count=f"{count:,}")


def _is_shown(lesson: Lesson, filter: Filter) -> bool:
    if filter == "history":
        return bool(lesson.replaced_by)
    return not lesson.replaced_by and (filter == "now" or not lesson.on)


def _lesson(lesson: Lesson, similarity: float | None = None) -> LessonView:
    return {
        "id": lesson.id, "question": lesson.question, "answer": lesson.answer, "source": lesson.source, "on": lesson.on,
        "replacedBy": lesson.replaced_by, "quality": lesson.quality, "uses": lesson.uses, "created": lesson.created,
        "lastUsed": lesson.last_used, "similarity": similarity,
    }  # fmt: skip


def _learned(learned: Learned) -> TaughtLesson:
    return {
        "lesson": _lesson(learned.lesson),
        "ms": learned.milliseconds,
        "nllBefore": learned.nll_before,
        "nllAfter": learned.nll_after,
        "replaced": None if learned.replaced is None else _lesson(learned.replaced),
        "known": not learned.is_new,
    }
