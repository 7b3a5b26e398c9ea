"""The background loop over a memory: lessons move into an adapter of the model that runs.

    service = await ConsolidationService.open(learning, assistant.adapters, assistant.adapters.use_learned)
    run = await service.consolidate()      # cancel it at any time: the next call continues there
    run.verdict, run.why

A run that ends writes one record, with the adapter's new revision if there is one; until then the old one answers.
A revision answers while every lesson that it knows is there and on. When a lesson is deleted, the numbers of each
revision that knows it are deleted, too (app/records/revisions.py), and the plain model answers at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial

import numpy as np

from app.consolidation.desk import WorkDesk, work_blob
from app.consolidation.follower import MemoryFollower
from app.consolidation.idle_work import BACKGROUND_POLICY, Report, unheard
from app.consolidation.texts import shipped_texts
from app.generation.assistant import SYSTEM_PROMPT
from app.generation.resident_adapters import ResidentAdapters
from app.lessons.service import LearningService
from app.records import lessons, revisions
from app.records.lessons import Lesson
from app.records.revisions import Run, fisher_blob
from py_core.adapters.lora import LoraAdapter
from py_core.engine.scheduler import Priority
from py_core.formats.safetensors import SafetensorsError, read_safetensors, write_safetensors
from py_core.learning.consolidation import Consolidation, layout_of
from py_core.learning.consolidation_job import Job, Outcome, Recipe, Start, Texts
from py_core.learning.imprint_maker import lesson_tokens
from py_core.learning.lesson_examples import TaughtAnswer
from py_core.messages import Message, UserError
from py_core.training.trainer import StepReport

RECIPE = Recipe()
_KINDS = frozenset({lessons.KIND, revisions.KIND, revisions.WEIGHTS, "policy"})

AnswerWith = Callable[[LoraAdapter | None], Awaitable[None]]


class RefusedBeforeError(UserError, ValueError):
    """The same training was refused, and nothing is new since; the message says what to do."""


async def _nothing(adapter: LoraAdapter | None) -> None:
    """Do nothing: no engine uses the adapter."""


class ConsolidationService:
    """Made by `open`. Its methods may raise StoreError, BackendError, EmbedderError."""

    def __init__(
        self, learning: LearningService, adapters: ResidentAdapters,
        answer_with: AnswerWith = _nothing,
        recipe: Recipe = RECIPE, texts: Texts | None = None,
    ) -> None:  # fmt: skip
        self.learning, self.recipe, self.texts = learning, recipe, texts or shipped_texts()
        self.current: Run | None = None
        """The run whose revision answers; None if the plain model does."""
        self.adapter: LoraAdapter | None = None
        self._adapters, self._answer_with = adapters, answer_with
        self._running = asyncio.Lock()
        self._follower = MemoryFollower(learning.memory, _KINDS, self._renew)

    @classmethod
    async def open(
        cls, learning: LearningService, adapters: ResidentAdapters,
        answer_with: AnswerWith = _nothing,
        recipe: Recipe = RECIPE, texts: Texts | None = None,
    ) -> ConsolidationService:  # fmt: skip
        """The last revision answers from now on. answer_with: called with its adapter, now and whenever it changes.
        adapters: those on the backend."""
        service = cls(learning, adapters, answer_with, recipe, texts)
        await service.refresh()
        return service

    def close(self) -> None:
        """Stop following the memory."""
        self._follower.close()

    @property
    def is_on(self) -> bool:
        return self.learning.memory.policies.is_on(BACKGROUND_POLICY)

    # ---- which revision answers ----

    async def refresh(self) -> None:
        """Choose the revision that answers: after changes of the lessons, an import, a passphrase."""
        await self._follower.refresh()

    async def _renew(self) -> None:
        run = await self._usable() if self.is_on else None
        if (run.id if run else "") != (self.current.id if self.current else ""):
            await self._take(run)

    async def _usable(self) -> Run | None:
        """Return the last run with a revision, if it is on and every lesson that it knows is there and on."""
        with_revision = [run for run in await self._runs() if run.revision]
        if not with_revision or not with_revision[-1].has_weights or not with_revision[-1].on:
            return None
        there = {lesson.id for lesson in await self.learning.memory.lessons.all() if lesson.on}
        return with_revision[-1] if there.issuperset(with_revision[-1].lessons) else None

    async def _take(self, run: Run | None) -> None:
        before, adapter = self.adapter, None
        if run is not None:
            adapter = await self.adapter_of(run)
            if adapter is None:
                run = None  # of another recipe's shape, or damaged: the plain model answers
        self.current, self.adapter = run, adapter
        await self._answer_with(adapter)
        number = None
        if adapter is not None:
            number = partial(self._adapters.number, adapter)
            await number()  # so that a lack of room shows now
        self.learning.use_revision(run.revision if run else 0, number)
        if before is not None:
            await self._adapters.forget(before.name)

    async def adapter_of(self, run: Run) -> LoraAdapter | None:
        """Return a run's adapter; None if its numbers cannot be read or have another layout."""
        if self.current is not None and self.current.id == run.id:
            return self.adapter
        parameters = await self._parameters(run)
        if parameters is None:
            return None
        layout = layout_of(self.learning.model.graph, self.recipe)
        return layout.adapter(parameters, f"learned {run.revision}", self.learning.base_sha256)

    async def _runs(self) -> list[Run]:
        return await self.learning.memory.revisions.runs(self.learning.base_sha256)

    async def _parameters(self, run: Run) -> np.ndarray | None:
        """float32 (layout.size,); None if they cannot be read or have another layout."""
        data = await self.learning.memory.revisions.weights(run)
        layout = layout_of(self.learning.model.graph, self.recipe)
        return _numbers(data, "parameters", layout.size)

    # ---- the loop: see app/consolidation/idle_work.py ----

    async def waiting(self) -> int:
        """Return how many lessons are new to the revision to continue from; 0 if their training was refused before."""
        start, new, old = await self._to_learn()
        return 0 if await self._refused_before(start, self._recipe_of([*new, *old], seed=0)) else len(new)

    async def is_begun(self) -> bool:
        """Return True if a run was interrupted."""
        return await self.learning.memory.store.get_blob(work_blob(self.learning, "plan")) is not None

    async def run(self, report: Report) -> None:
        """Learn what there is, in idle time."""
        await self.consolidate(report=report)

    async def consolidate(
        self, minutes: float | None = None, *, seed: int = 0, report: Report = unheard,
        stepped: Callable[[StepReport], None] = lambda report: None,
        trouble: Callable[[Message], None] = lambda said: None, priority: Priority = Priority.IDLE,
    ) -> Run | None:  # fmt: skip
        """Learn the lessons that are new, and decide. None if there is nothing new. Raises RefusedBeforeError.

        minutes: the run ends with TimeoutError after this time; like any interrupted run, the next call continues it.
        report: gets about how many tokens ran, of how many, and for what. stepped: called for each step. trouble: gets
        sentences for the user. priority: Priority.BACKGROUND if a person waits for it.
        """
        async with self._running, asyncio.timeout(None if minutes is None else 60 * minutes):
            start, new, old = await self._to_learn()
            if not new:
                return None
            recipe_of_it = self._recipe_of([*new, *old], seed)
            if (refused := await self._refused_before(start, recipe_of_it)) is not None:
                raise RefusedBeforeError(
                    "training.refused-before",
                    "This training would be the same as an earlier one, which was refused: {why} "
                    "Teach something new or forget a lesson, and try again. Until then lessons "
                    "answer as they do now.",
                    why=refused.why,
                )
            job = await self._job(start, new, old)
            desk = WorkDesk(self.learning, self._adapters, report, stepped, trouble)
            desk.will_imprint(len(await self.learning.memory.lessons.all()))
            model, base = self.learning.model, self.learning.base_sha256
            consolidation = Consolidation(model, base, job, self.recipe, self.texts, desk, seed, priority)
            outcome = await consolidation.run()
            run = await self._store(outcome, start if job.start else None, [one.id for one in job.new], recipe_of_it)
        await self.refresh()
        if run.revision:
            with self.learning.imprints.telling(desk.get_to_know):
                await self.learning.relearn(desk.follow, priority=priority)
        return run

    async def _to_learn(self) -> tuple[Run | None, list[Lesson], list[Lesson]]:
        """Return the run to continue from, the lessons that it does not know, and the lessons that it knows."""
        on = [one for one in await self.learning.memory.lessons.all() if one.on]
        there, taught = {one.id for one in on}, [one for one in on if one.answers]
        usable = [run for run in await self._runs() if run.has_weights and run.on and there.issuperset(run.lessons)]
        start = usable[-1] if usable else None
        known = set(start.lessons) if start else set()
        return start, [one for one in taught if one.id not in known], [one for one in taught if one.id in known]

    async def _job(self, start: Run | None, new: Sequence[Lesson], old: Sequence[Lesson]) -> Job:
        begin = None
        if start is not None and (parameters := await self._parameters(start)) is not None:
            fisher = await self.learning.memory.store.get_blob(fisher_blob(start))
            begin = Start(parameters, _numbers(fisher, "fisher", len(parameters)), start.probe)
        taught = [await self._taught(lesson) for lesson in (*new, *old)]
        if begin is None:
            return Job(taught)
        return Job(taught[: len(new)], taught[len(new) :], begin)

    async def _taught(self, lesson: Lesson) -> TaughtAnswer:
        tokens = await lesson_tokens(self.learning.model, SYSTEM_PROMPT, lesson.question, lesson.answer)
        return TaughtAnswer(lesson.id, lesson.question, tuple(tokens.answer), lesson.quality)

    async def _refused_before(self, start: Run | None, recipe: Mapping[str, object]) -> Run | None:
        """Return the refused run that a training would repeat: it would be refused again."""
        parent = start.revision if start else 0
        refused = [run for run in await self._runs() if run.verdict == "refused" and run.parent == parent]
        return next((run for run in refused if run.recipe == recipe), None)

    def _recipe_of(self, lessons: Sequence[Lesson], seed: int) -> dict[str, object]:
        """Return all that a training of these lessons depends on except its start: as JSON, for its record."""
        told = json.dumps(sorted([one.id, one.quality] for one in lessons))
        digest = hashlib.sha256(told.encode()).hexdigest()[:16]
        return {**_json(asdict(self.recipe)), "seed": seed, "lessons": digest}

    async def _store(
        self, outcome: Outcome, start: Run | None, new: Sequence[str], recipe: Mapping[str, object]
    ) -> Run:  # fmt: skip
        capabilities = self.learning.model.engine.capabilities
        steps: Mapping[str, list[float]] = {
            "cross_entropy": [one.loss.cross_entropy for one in outcome.steps],
            "divergence": [one.loss.divergence for one in outcome.steps],
            "penalty": [one.loss.penalty for one in outcome.steps],
            "norm": [one.norm for one in outcome.steps],
            "rate": [one.rate for one in outcome.steps],
            "tokens": [float(one.tokens) for one in outcome.steps],
        }
        run = Run(
            base_sha256=self.learning.base_sha256, verdict=outcome.verdict, why=outcome.why,
            parent=start.revision if start else 0, scale=outcome.scale,
            lessons=(*(start.lessons if start else ()), *new), new=tuple(new),
            model=self.learning.model.config.name, backend=capabilities.backend, recipe=recipe,
            probe=_finite(outcome.probe), recall=_finite(outcome.recall),
            steps={name: [min(one, 1e300) for one in row] for name, row in steps.items()},
            norm=outcome.norm, tokens=outcome.tokens, seconds=outcome.seconds,
        )  # fmt: skip
        memory = self.learning.memory
        if not {lesson.id for lesson in await memory.lessons.all() if lesson.on}.issuperset(run.lessons):
            run = replace(
                run,
                verdict="refused",
                why=Message(
                    "training.lesson-taken-away", "A lesson was forgotten in the meantime. Everything stays as it was."
                ),
                recipe={},  # its result was not judged, so the same training may be done again
            )
            return await memory.revisions.keep(run, None)
        weights = None
        if outcome.parameters is not None:
            weights = write_safetensors({"parameters": outcome.parameters.astype(np.float16)})
        run = await memory.revisions.keep(run, weights)
        if outcome.fisher is not None and run.revision:
            scale = float(outcome.fisher.max()) or 1.0  # its numbers are too small for float16
            arrays: dict[str, np.ndarray] = {
                "fisher": (outcome.fisher / scale).astype(np.float16),
                "scale": np.array([scale], np.float32),
            }
            await memory.store.put_blob(fisher_blob(run), write_safetensors(arrays))
        return run


def _numbers(data: bytes | None, name: str, size: int) -> np.ndarray | None:
    """A vector of a safetensors file, float32 (size,); None if the file has no such vector."""
    try:
        arrays = read_safetensors(data)[0] if data else {}
    except SafetensorsError:
        return None
    vector = arrays.get(name)
    if vector is None or vector.shape != (size,):
        return None
    scale = float(arrays["scale"][0]) if "scale" in arrays else 1.0
    numbers = vector.astype(np.float32) * np.float32(scale)
    return numbers if np.isfinite(numbers).all() else None


def _finite(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) if math.isfinite(value) else 1e300 for name, value in figures.items()}


def _json(value: object) -> dict[str, object]:
    """Return the value as JSON has it, with lists for tuples."""
    assert isinstance(value, dict)
    return {name: list(one) if isinstance(one, tuple) else one for name, one in value.items()}
