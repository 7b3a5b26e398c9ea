"""Learns what a person teaches, at once, and recalls it when it is asked for.

    learning = await LearningService.open(model, base_sha256, embedder, memory, gate)
    await learning.teach("What is my cat called?", "Your cat is called Pumpernickel.")
    recalled = await learning.recall("which name did I give the cat")     # None if no lesson answers it
    assistant.respond(text, heads=recalled.heads)

A lesson is text in the memory (app/records/lessons.py), and belongs to no model. To answer with a lesson, a model
needs its imprint (py_core/learning/imprint.py). The imprint is made at once and kept beside the lesson. It is made
again if it is missing or no longer fits: for another model, another revision of the learned adapter, or after the
memory's passphrase changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.generation.assistant import SYSTEM_PROMPT
from app.lessons.imprints import AdapterNumber, LessonError, LessonImprints
from app.lessons.match import Candidate, LessonMatch, UnsureMatch
from app.lessons.meanings import LessonMeanings
from app.lessons.reader import FactReader
from app.lessons.vectors import LessonVectors
from app.protocol import Done
from app.records.lessons import KIND, Lesson, Source, lesson_of, plain
from app.records.memory import Memory
from py_core.backend_errors import BackendError
from py_core.display import is_blank
from py_core.engine.scheduler import Priority
from py_core.learning.gate.gate import CANDIDATES, Gate
from py_core.learning.teaching.own_question import own_question
from py_core.loading import Model
from py_core.routing.embedder import Embedder, EmbedderError
from py_core.store.errors import StoreError
from py_core.store.rows import EVERYTHING, Change

INSTANT_POLICY = "learning.instant"
"""The user's switch: lessons answer."""
READING_POLICY = "learning.reading"
"""The user's switch: lessons are read if it is not sure that a lesson answers."""
THRESHOLD_POLICY = "learning.gate.threshold"
"""The score from which on a lesson answers, if it differs from the gate's own; the deep loop fits it."""
PREPARING_PATIENCE = 2.0
"""Seconds that the first lesson waits until the model is prepared. After that it is only noted, and learned later."""
NEAR = 32
"""The number of lessons with the nearest questions that are looked at. The gate compares those of them that are nearest
by question or by question and answer."""


def both_given(question: str, answer: str) -> tuple[str, str]:
    """Return both without the spaces around them. Raises LessonError if one is empty."""
    question, answer = question.strip(), answer.strip()
    if is_blank(question):
        raise LessonError("lessons.empty-question", "The question is empty. Write both a question and an answer.")
    if is_blank(answer):
        raise LessonError("lessons.empty-answer", "The answer is empty. Write both a question and an answer.")
    return question, answer


@dataclass(frozen=True)
class Learned:
    """A lesson was taught. nll: nats a token of its answer, after its question, as the model gives them before and
    after; None if the model learns it later, because it is not prepared yet. milliseconds: the whole time; of it,
    `states_milliseconds` are the model's passes over the answer. replaced: the earlier lessons for the same question,
    which are history now. is_new: False if it was known."""

    lesson: Lesson
    nll_before: float | None
    nll_after: float | None
    milliseconds: float
    states_milliseconds: float
    replaced: Lesson | None = None
    is_new: bool = True


class LearningService:
    """Made by `open`. Its methods may raise StoreError, EmbedderError, BackendError."""

    def __init__(
        self, model: Model, base_sha256: str, embedder: Embedder, memory: Memory, gate: Gate,
        reader: FactReader | None = None,
    ) -> None:  # fmt: skip
        self.reader = reader
        self.model, self.base_sha256, self.embedder, self.gate = model, base_sha256, embedder, gate
        self.imprints = LessonImprints(model, base_sha256, SYSTEM_PROMPT)
        self.prepares_in_pauses = False
        """True if app/consolidation/preparation.py runs. If not, the first lesson waits until the model is prepared."""
        self._preparing: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._stale = True
        self._stale_lessons: set[str] = set()
        self.memory = memory
        self.meanings = LessonMeanings(memory, embedder)
        self._vectors = LessonVectors(memory, embedder)
        self._unlisten = memory.store.on_change(self._note)

    @classmethod
    async def open(
        cls, model: Model, base_sha256: str, embedder: Embedder, memory: Memory, gate: Gate,
        reader: FactReader | None = None,
    ) -> LearningService:  # fmt: skip
        """base_sha256: of the model's file, to which imprints belong. gate: shipped_gate.py. reader: without it no
        lesson is read. Raises StoreError, EmbedderError."""
        learning = cls(model, base_sha256, embedder, memory, gate, reader)
        await learning.refresh()
        memory.background.start(learning._open_meanings)
        return learning

    def close(self) -> None:
        """Stop following the memory, and remove the imprints from the device."""
        self._unlisten()
        self.imprints.clear()

    @property
    def is_on(self) -> bool:
        """True if lessons answer: the user's switch."""
        return self.memory.policies.is_on(INSTANT_POLICY)

    @property
    def reads(self) -> bool:
        """True if the model that runs can read lessons."""
        return self.reader is not None and self.reader.is_there

    @property
    def reads_now(self) -> bool:
        """True if it can, and the user's switch is on."""
        return self.reads and self.memory.policies.is_on(READING_POLICY)

    @property
    def threshold(self) -> float:
        """Return the score above which a lesson answers the message."""
        policy = self.memory.policies.look(THRESHOLD_POLICY)
        return policy.value if policy is not None and isinstance(policy.value, float) else self.gate.threshold

    async def _open_meanings(self) -> None:
        """Ask the embedder for a meaning, so that it loads its files now and not at the first message."""
        with contextlib.suppress(StoreError, EmbedderError):  # the message that needs it says so
            async with self.memory.background.step():
                if await self.memory.store.count(KIND):
                    await self.embedder.meanings(["Hello"])

    # ---- recalling ----

    async def recall(self, text: str) -> LessonMatch | None:
        """Return the lesson that answers this message, with its imprint on the device. None if no lesson does."""
        begin = time.perf_counter()
        return await self._opened(await self.look(text), begin)

    async def recall_or_read(self, text: str) -> LessonMatch | UnsureMatch | None:
        """Do the same as `recall`. If it is not sure that a lesson answers, return the lessons that the model can read
        (Assistant.read)."""
        begin = time.perf_counter()
        considered = await self.look(text)
        recalled = await self._opened(considered, begin)
        if recalled is not None or self.reader is None or not self.reads_now:
            return recalled
        return await self.reader.unsure(considered, begin)

    async def _opened(self, considered: Sequence[Candidate], begin: float) -> LessonMatch | None:
        if not considered or considered[0].score <= self.threshold:
            return None
        best = considered[0]
        # A model that is not prepared cannot say the lesson yet: the lesson's text is the answer.
        waits = self.prepares_in_pauses and not await self.imprints.is_prepared(self.memory)
        is_text = waits and await self.imprints.kept(self.memory, best.lesson) is None
        heads = () if is_text else await self.imprints.heads(self.memory, best.lesson)
        milliseconds = 1000 * (time.perf_counter() - begin)
        done = Done("end", best.lesson.answer) if is_text else None
        return LessonMatch(best.lesson, best.confidence, heads, tuple(considered), milliseconds, done=done)

    async def look(self, text: str) -> list[Candidate]:
        """Return what `consider` returns for the person's own question (own_question), or for the whole message if that
        is a lesson's question. Empty if the user has switched lessons off, or nothing is asked."""
        if not self.is_on or not text.strip():
            return []
        asked = own_question(text)
        if asked != text and await self._is_taught(text):
            asked = text
        return await self.consider(asked) if asked else []

    async def consider(self, text: str) -> list[Candidate]:
        """Return the lessons that may answer a message, the best first; also those for which the gate stays shut."""
        await self.refresh()
        if not await self.memory.store.count(KIND):
            return []
        if self.reader is not None:
            self.reader.keep()
        (meaning,) = await self.embedder.meanings([text])
        near = await self._near(meaning.vector)
        pairs = await self.meanings.of(near)
        similar = [max(float(meaning.vector @ each[1].vector) for each in pair) for pair in pairs]
        best = sorted(range(len(near)), key=lambda at: -similar[at])[:CANDIDATES]
        scores = self.gate.scores((text, meaning), [pairs[at] for at in best])
        found = [Candidate(near[at], float(score)) for at, score in zip(best, scores, strict=True)]
        return sorted(found, key=lambda each: -each.score)

    async def _is_taught(self, question: str) -> bool:
        if not await self.memory.store.count(KIND):
            return False
        (meaning,) = await self.embedder.meanings([question])
        return bool(await self._same(question, meaning.vector))

    async def lesson_for(self, question: str) -> Lesson | None:
        """Return the lesson that was taught for this question, or surely answers it; None if there is none."""
        (meaning,) = await self.embedder.meanings([question])
        if same := await self._same(question, meaning.vector):
            return same[0]
        considered = await self.consider(question)
        return considered[0].lesson if considered and considered[0].score > self.threshold else None

    async def used(self, recalled: LessonMatch) -> None:
        """Note that the lesson answered a message."""
        await self.memory.lessons.use(recalled.lesson.id)

    async def _near(self, vector: np.ndarray) -> list[Lesson]:
        """Return the lessons that may answer and have the nearest questions: NEAR of them, or all if there are
        fewer."""
        wanted = NEAR
        while True:
            found = await self.memory.search.search(KIND, vector, wanted)
            lessons = [lesson for record, _ in found if (lesson := lesson_of(record)).answers]
            if len(lessons) >= NEAR or len(found) < wanted:
                return lessons[:NEAR]
            wanted *= 4  # many are switched off, or history

    # ---- teaching ----

    async def teach(
        self, question: str, answer: str, source: Source = "taught", edited: Lesson | None = None, corrects: str = ""
    ) -> Learned:
        """Learn an answer. What was taught before for the same question becomes history; the same lesson is not added
        twice.

        edited: the new lesson replaces this one, too, whatever it answers. corrects: the answer that is corrected.
        Raises LessonError if it is empty, or too long for the model.
        """
        begin = time.perf_counter()
        question, answer = both_given(question, answer)
        async with self._changing:
            await self.refresh()
            lesson = Lesson(question, answer, source, before=corrects or (edited.before if edited else ""))
            tokens = await self.imprints.tokens(lesson)
            (meaning,) = await self.embedder.meanings([question])
            same = await self._same(question, meaning.vector)
            known = next((one for one in same if one.answer == answer), None)
            if edited is not None:
                if known is not None and known.id != edited.id:
                    raise LessonError("lessons.known", "You have already taught exactly this. Forget one of the two.")
                known = None
                same = [edited, *(one for one in same if one.id != edited.id)]
            others = [one for one in same if one is not known]
            replaced = next((one for one in others if one.answer != answer), None)
            lesson = replace(known or lesson, vector=meaning.vector, on=True)
            if known is not None and known.question != question:
                tokens = await self.imprints.tokens(known)
            if known is None or others or not known.on:
                await self._vectors.claim()
                lesson = await self.memory.lessons.keep(lesson, tuple(one.id for one in others))
            before = after = None
            states_ms = 0.0
            try:
                await self.meanings.of([lesson])
                if await self._is_prepared():
                    states_begin = time.perf_counter()
                    imprint = await self.imprints.make(self.memory, lesson, tokens)
                    before, after = imprint.nll_before, imprint.nll_after
                    states_ms = 1000 * (time.perf_counter() - states_begin)
            except BaseException:
                if known is None:
                    await self.memory.lessons.undo(lesson.id)
                raise
            if after is not None:
                await self.imprints.heads(self.memory, lesson)
            else:
                self.memory.background.start(self._learn_noted)
        if self.reader is not None:
            self.reader.keep()
        return Learned(lesson, before, after, 1000 * (time.perf_counter() - begin), states_ms, replaced, known is None)

    async def _is_prepared(self) -> bool:
        """True if the model is prepared, or becomes so within PREPARING_PATIENCE. The preparation continues after
        that."""
        if not self.prepares_in_pauses or await self.imprints.is_prepared(self.memory):
            return True
        if self._preparing is None or self._preparing.done():
            self._preparing = self.memory.background.start(self._prepare)
        await asyncio.wait([self._preparing], timeout=PREPARING_PATIENCE)
        return await self.imprints.is_prepared(self.memory)

    async def _prepare(self) -> None:
        with contextlib.suppress(BackendError, StoreError):  # the next lesson tries it again, and so does a pause
            await self.imprints.directions(self.memory)

    async def _learn_noted(self) -> None:
        """Make the imprints of lessons that were only noted, because the model was not prepared."""
        if self._preparing is not None:
            await asyncio.wait([self._preparing])
        if await self.imprints.is_prepared(self.memory):
            with contextlib.suppress(BackendError, StoreError):
                await self.relearn()

    async def forget(self, *ids: str) -> None:
        """Delete lessons, and all that was made of them. The lessons that they replaced stay history."""
        async with self._changing:
            await self.memory.lessons.delete(*ids)
            self._drop(ids)

    async def undo(self, id: str) -> Lesson | None:
        """Delete a lesson; the lesson that it replaced answers again. Returns that lesson, if there is one."""
        async with self._changing:
            before = await self.memory.lessons.undo(id)
            self._drop([id])
        return before[-1] if before else None

    async def switch(self, id: str, on: bool) -> Lesson | None:
        """Switch a lesson on or off. Returns None if there is none."""
        return await self.memory.lessons.edit(id, on=on)

    async def edit(self, id: str, question: str | None = None, answer: str | None = None) -> Learned | None:
        """Change a lesson's words. The old words become history, as they would with a newer answer, and `undo` brings
        them back. Returns None if there is no such lesson. Raises LessonError as `teach`, and if the new words are
        those of another lesson."""
        before = await self.memory.lessons.get(id)
        if before is None:
            return None
        question = before.question if question is None else question
        answer = before.answer if answer is None else answer
        is_same = (question.strip(), answer.strip()) == (before.question, before.answer)
        return await self.teach(question, answer, before.source, None if is_same else before)

    async def restore(self, lesson: Lesson) -> Lesson:
        """Store a forgotten lesson again. It becomes history if its question got another answer meanwhile."""
        async with self._changing:
            return await self.memory.lessons.restore(lesson)

    async def relearn(
        self, on_progress: Callable[[int, int], None] = lambda done, total: None, *, again: bool = False,
        priority: Priority = Priority.BACKGROUND,
    ) -> int:  # fmt: skip
        """Make the imprints that this model (and this revision of its adapter) lacks. Returns their number.

        again: make all of them again. A lesson that is too long for this model is left out.
        """
        lessons = [one for one in await self.memory.lessons.all() if not one.replaced_by]
        made = 0
        for done, lesson in enumerate(lessons):
            on_progress(done, len(lessons))
            if not again and await self.imprints.kept(self.memory, lesson) is not None:
                continue
            try:
                tokens = await self.imprints.tokens(lesson)
            except LessonError:
                continue
            async with self._changing:
                if await self.memory.lessons.get(lesson.id) is not None:
                    await self.imprints.make(self.memory, lesson, tokens, priority)
                    made += 1
        on_progress(len(lessons), len(lessons))
        return made

    def use_revision(self, revision: int, adapter: AdapterNumber | None = None) -> None:
        """Answer with another revision of the learned adapter from now on: `adapter` returns the number of its matrices
        (`Engine.add_adapter`), with which imprints are made. 0 and None is the plain model.

        Imprints belong to a revision. Missing imprints are made when they are needed, or by `relearn`."""
        self.imprints.use_revision(revision, adapter)

    async def imprint_nll(self, lesson: Lesson) -> tuple[float, float] | None:
        """Return the NLL before and after, of the kept imprint; None if there is none."""
        imprint = await self.imprints.kept(self.memory, lesson)
        return (imprint.nll_before, imprint.nll_after) if imprint else None

    async def _same(self, question: str, vector: np.ndarray) -> list[Lesson]:
        """Return the lessons for the same question that are not history; normally one, or none."""
        wanted, asked = NEAR, plain(question)
        while True:
            # The nearest lessons tell if there is any: a capital or a missing "?" moves a short question's vector far.
            found = await self.memory.search.search(KIND, vector, wanted)
            same = [one for record, _ in found if plain((one := lesson_of(record)).question) == asked]
            current = [one for one in same if not one.replaced_by]
            if current or not same or len(found) < wanted:
                return current
            wanted *= 4  # these were all history

    # ---- following changes ----

    async def refresh(self) -> None:
        """Follow the changes of others, also an import: lessons whose vectors another embedder made get new ones."""
        await self.memory.store.poll()
        if not self._stale and not self._stale_lessons:
            return
        stale, ids, self._stale, self._stale_lessons = self._stale, self._stale_lessons, False, set()
        try:
            found = [await self.memory.lessons.get(id) for id in ids]
            of_all = stale or not self._vectors.are_ours
            lessons = await self.memory.lessons.settled() if of_all else [one for one in found if one is not None]
            await self._vectors.renew(lessons)
        except BaseException:
            self._stale = True
            raise

    def _note(self, change: Change) -> None:
        if change.everything or change.cleared in (EVERYTHING, KIND):
            self._stale = True
            self.imprints.clear()
            self.meanings.clear()
        self._drop(id for kind, id in change.deletes if kind == KIND)
        if change.elsewhere:
            self._stale_lessons.update(id for kind, id in change.puts if kind == KIND)

    def _drop(self, ids: Iterable[str]) -> None:
        """Drop from memory and from the device what was made of deleted lessons."""
        for id in ids:
            self.imprints.forget(id)
            self.meanings.forget(id)
