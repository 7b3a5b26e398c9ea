"""The person's judgement of an answer, by the answer's id, and requests to remember something.

    feedback = Feedback(runtime)
    await feedback.bad(stored.request)
    await feedback.should_have_said(stored.request, "Who is my dentist?", "Your dentist is Dr. Quill.")
    feedback.proposal("my dentist is Dr. Quill")    # Told: shown to the person, then
    await feedback.remember("my dentist is Dr. Quill")

If a lesson gave the answer, it counts more or less from then on, and is switched off if it was wrong too often.
Otherwise the patterns that chose the agent count more or less. What changed is kept with the answer's trajectory, and
`take_back` undoes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from app.lessons.imprints import LessonError
from app.lessons.service import Learned, LearningService
from app.records.memory import Memory
from app.routing.service import Reweighed
from py_core.learning.quality import kept_share, rated
from py_core.learning.teaching.lessons import Told, lesson_of
from py_core.learning.trajectories import Opinion, Trajectory
from py_core.messages import Message, UserError

if TYPE_CHECKING:
    from app.runtime import Runtime

STEP = 0.25
"""The step by which a judged answer raises or lowers the quality of the lesson that gave it. The quality is 1 plus the
steps of all its judged answers, so that each can be taken back exactly, in any order."""
LEAST_QUALITY = 0.5
"""A lesson that falls to this quality is switched off: a new lesson at its second bad answer without a good one."""
NOTHING_TOLD = Message(
    "feedback.nothing-to-remember",
    "There is nothing to remember in this. Write a sentence such as: my dentist is Dr. Quill.",
)
OPENING = Message("learning.loading", "Sonata is still loading what it needs to learn. Try again in a moment.")
UNKNOWN = Message(
    "feedback.unknown-answer",
    "Sonata does not know how this answer came about, so you cannot judge it. Ask again, and judge the new answer.",
)

Effect = Mapping[str, Any]


class FeedbackError(UserError, ValueError):
    """The feedback cannot be taken; the message says what to do."""


@dataclass(frozen=True)
class JudgedTrajectory:
    """An answer, as it counts now. lesson_off: the id of the lesson that its judgement switched off, "" for none."""

    trajectory: Trajectory
    lesson_off: str = ""


class Feedback:
    """One for the runtime. Its methods may raise StoreError, EmbedderError; methods that teach also LessonError, and
    BackendError."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._judging = asyncio.Lock()

    async def good(self, id: str) -> JudgedTrajectory:
        """Note that the answer was good. Raises FeedbackError if nothing is known of it."""
        return await self._judge(id, "good")

    async def bad(self, id: str) -> JudgedTrajectory:
        """Note that the answer was bad. Raises FeedbackError if nothing is known of it."""
        return await self._judge(id, "bad")

    async def take_back(self, id: str) -> None:
        """Undo all feedback on this answer, also what was learned from it."""
        async with self._judging:
            trajectory = await self._memory.trajectories.get(id)
            if trajectory is not None and trajectory.feedback:
                await self._undo(trajectory)

    async def should_have_said(self, id: str, question: str, answer: str) -> Learned:
        """Learn this answer to such questions. The answer that was given counts as bad, if it is known. `take_back`
        forgets what was learned."""
        async with self._judging:
            before = await self._memory.trajectories.get(id)
            learned = await self._learning.teach(
                question, answer, "corrected", corrects=before.answered if before else ""
            )
            if before is not None:
                taught = _taught(learned, before)
                if before.feedback:
                    before = await self._undo(before, but=taught)
                effects = await self._effects(before, good=False) if before.lesson != learned.lesson.id else []
                await self._note(before, "corrected", [*effects, *taught], kept_share(before.answered, answer))
        return learned

    async def remember_answer(self, id: str, question: str, answer: str) -> Learned:
        """Learn the answer that was given as the answer to such questions. It counts as good, if it is known.
        `take_back` forgets what was learned."""
        async with self._judging:
            learned = await self._learning.teach(question, answer, "praised")
            before = await self._memory.trajectories.get(id)
            if before is not None:
                taught = _taught(learned, before)
                if before.feedback:
                    before = await self._undo(before, but=taught)
                await self._note(before, "good", [*await self._effects(before, good=True), *taught])
        return learned

    @staticmethod
    def proposal(text: str) -> Told:
        """Return the question and the answer that `remember` would learn from this text. The person sees them first.
        Raises LessonError if there is nothing to remember."""
        told = lesson_of(text)
        if told is None:
            raise LessonError(NOTHING_TOLD)
        return told

    async def remember(self, text: str) -> Learned:
        """Learn a statement, for example "my dentist is Dr. Quill"."""
        told = self.proposal(text)
        return await self._learning.teach(told.question, told.answer, "taught")

    # ---- the effects ----

    async def _judge(self, id: str, opinion: Literal["good", "bad"]) -> JudgedTrajectory:
        async with self._judging:
            trajectory = await self._memory.trajectories.get(id)
            if trajectory is None:
                raise FeedbackError(UNKNOWN)
            if trajectory.feedback == opinion:
                return JudgedTrajectory(trajectory)
            if trajectory.feedback:
                trajectory = await self._undo(trajectory)
            effects = await self._effects(trajectory, opinion == "good")
            off = [effect["id"] for effect in effects if effect.get("off")]
            return JudgedTrajectory(await self._note(trajectory, opinion, effects), *off)

    async def _effects(self, trajectory: Trajectory, good: bool) -> list[Effect]:
        """Let the lesson that gave the answer, or the patterns of its route, count more or less. Returns what that
        changed."""
        if trajectory.lesson:
            return await self._judge_lesson(trajectory, good)
        routing, patterns = self._runtime.routing, trajectory.route.get("patterns", [])
        if routing is None or not patterns:
            return []
        return [{"kind": "pattern", **one._asdict()} for one in await routing.learn(patterns, good)]

    async def _judge_lesson(self, trajectory: Trajectory, good: bool) -> list[Effect]:
        lesson = await self._memory.lessons.get(trajectory.lesson)
        if lesson is None:
            return []
        effect = {"kind": "lesson", "id": lesson.id, "good": good, "off": False}
        quality = _quality([*await self._judged(trajectory), effect])
        effect["off"] = lesson.on and not good and quality <= LEAST_QUALITY
        await self._memory.lessons.edit(lesson.id, quality=quality, on=lesson.on and not effect["off"])
        return [effect]

    async def _judged(self, but: Trajectory) -> list[Effect]:
        """Return the judgements of the other answers of the same lesson."""
        others = [other for other in await self._memory.trajectories.of_lesson(but.lesson) if other.id != but.id]
        return [effect for other in others for effect in other.effects if effect["kind"] == "lesson"]

    async def _note(
        self, trajectory: Trajectory, opinion: Opinion, effects: Sequence[Effect], kept: float | None = None
    ) -> Trajectory:
        def noted(now: Trajectory) -> Trajectory:
            return rated(replace(now, feedback=opinion, effects=tuple(effects), kept=kept))

        changed = await self._memory.trajectories.change(trajectory.id, noted)
        quality = changed.quality if changed is not None and opinion else None
        await self._memory.trajectories.rate(trajectory.id, quality)
        return changed or trajectory

    async def _undo(self, trajectory: Trajectory, but: Sequence[Effect] = ()) -> Trajectory:
        """Undo the effects on a trajectory. but: effects that stay."""
        undo = self._runtime.learning.undo if self._runtime.learning else self._memory.lessons.undo
        for effect in reversed(trajectory.effects):
            if effect["kind"] == "taught" and effect not in but:
                await undo(effect["id"])
            elif effect["kind"] == "lesson":
                await self._undo_lesson(trajectory, effect)
        weights = [
            Reweighed(effect["pattern"], effect["before"], effect["after"])
            for effect in trajectory.effects
            if effect["kind"] == "pattern"
        ]
        if weights and self._runtime.routing is not None:
            await self._runtime.routing.unlearn(weights)
        return await self._note(trajectory, "", ())

    async def _undo_lesson(self, trajectory: Trajectory, effect: Effect) -> None:
        lesson = await self._memory.lessons.get(effect["id"])
        if lesson is not None:
            others = await self._judged(trajectory)
            quality = _quality(others)
            was_judged_off = any(one["off"] for one in (*others, effect))
            on = lesson.on or (was_judged_off and lesson.quality <= LEAST_QUALITY < quality)
            await self._memory.lessons.edit(lesson.id, quality=quality, on=on)

    @property
    def _memory(self) -> Memory:
        return self._runtime.memory

    @property
    def _learning(self) -> LearningService:
        if self._runtime.learning is None:
            raise LessonError(self._runtime.learning_stage.why or OPENING)
        return self._runtime.learning


def _taught(learned: Learned, judged: Trajectory) -> list[Effect]:
    """Return what was learned, if it came from this judgement, or from an earlier one of the same answer."""
    effect = {"kind": "taught", "id": learned.lesson.id}
    return [effect] if learned.is_new or effect in judged.effects else []


def _quality(judged: Sequence[Effect]) -> float:
    steps = sum(1 if effect["good"] else -1 for effect in judged)
    return min(max(1.0 + STEP * steps, 0.0), 1.0)
