"""A background loop over a real memory that trains a tiny model within a second: for the tests of consolidation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from app.consolidation.service import ConsolidationService
from app.generation.resident_adapters import ResidentAdapters
from app.lessons import imprints as lesson_imprints
from app.records.memory import Memory
from app.records.revisions import Run
from app.runtime import Learner, Runtime, RuntimeConfig
from py_core.learning.augmentation import Mix
from py_core.learning.consolidation_job import Recipe, Texts
from py_core.learning.lesson_examples import Portions
from py_core.loading import Model
from py_core.routing.embedder import SentenceEmbedder
from py_core.store.sqlite import SQLiteRows
from py_core.training.trainer import StepReport

BASE = "0" * 64
FACTS = {"Cat?": "Tom.", "Boat?": "Ida."}
MIX = Mix(plain=4, framed=0, opened=0, synonyms=0, mixed=0, keywords=0)
RECIPE = Recipe(
    portions=Portions(a_step=4, rehearsed=2, rounds=40, rounds_again=60, least_steps=4, text_weight=0.5, mix=MIX),
    rank=4, rate=0.03, rate_again=0.03, harm=5.0, answer_tokens=4, wordings=1, save_every=3, elastic=10.0,
)  # fmt: skip
FEW_STEPS = replace(RECIPE.portions, rounds=8)
TEXTS = Texts(("The moon is far away.", "It rains."), ("Hello",), ("A quiet morning by the sea.",))
Opened = Callable[..., Awaitable[ConsolidationService]]


@asynccontextmanager
async def memories(
    model: Model, embedder: SentenceEmbedder, folder: Path, patch: pytest.MonkeyPatch
) -> AsyncIterator[Opened]:
    """Opens the same memory each time, or another one by its name, as another start of the program does."""
    (folder / "generic.txt").write_text("Hello there\n")
    patch.setattr(lesson_imprints, "GENERIC_TEXTS", folder / "generic.txt")
    closing = list[tuple[ConsolidationService, Runtime]]()

    async def open_one(recipe: Recipe = RECIPE, name: str = "memory", texts: Texts = TEXTS) -> ConsolidationService:
        learner = Learner(model, BASE, embedder=lambda: embedder)
        runtime = await Runtime.open(RuntimeConfig(lambda: SQLiteRows.open(folder / f"{name}.sqlite"), learner=learner))
        assert runtime.learning is not None
        service = await ConsolidationService.open(
            runtime.learning, ResidentAdapters(model.engine), recipe=recipe, texts=texts
        )
        closing.append((service, runtime))
        return service

    yield open_one
    for service, runtime in closing:
        service.close()
        if service.adapter is not None:
            await service._adapters.forget(service.adapter.name)
        await runtime.close()


async def taught(service: ConsolidationService, facts: dict[str, str] | None = None) -> list[str]:
    learning = service.learning
    return [(await learning.teach(*fact)).lesson.id for fact in (FACTS if facts is None else facts).items()]


def memory_of(service: ConsolidationService) -> Memory:
    return service.learning.memory


async def after_steps(service: ConsolidationService, count: int) -> asyncio.Task[Run | None]:
    """A run that has done this number of steps, or has ended."""
    steps, enough = list[int](), asyncio.Event()

    def stepped(report: StepReport) -> None:
        steps.append(report.step)
        if len(steps) == count:
            enough.set()

    task = asyncio.ensure_future(service.consolidate(stepped=stepped))
    waiting = asyncio.ensure_future(enough.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return task


async def numbers(service: ConsolidationService, run: Run) -> bytes:
    data = await memory_of(service).revisions.weights(run)
    assert data is not None
    return data
