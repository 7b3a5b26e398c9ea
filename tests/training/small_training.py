"""A tiny model on a backend, and a training of it that takes a few seconds: two losses, several packs a step."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from py_core.adapters.parameters import ParameterLayout, parameter_layout
from py_core.backends.protocols import Backend
from py_core.engine.engine import Engine
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader
from py_core.models.graph import Graph
from py_core.models.registry import describe_model
from py_core.training.batches import Batches, shuffled
from py_core.training.checkpoint import Checkpoint, Origin
from py_core.training.packing import TrainingExample, answer_example, base_example
from py_core.training.schedule import Schedule
from py_core.training.session import Training, TrainingState
from py_core.training.trainer import StepReport, Trainer, TrainerSettings, fresh_start
from tests.training.cases import CASES

SEED = 5
SETTINGS = TrainerSettings(Schedule(rate=0.02, steps=6, warm_up=2), divergence=0.5, decay=0.01, save_every=2)


def examples(count: int = 6) -> list[TrainingExample]:
    """Questions behind one instruction, and texts that the model should continue as its base does."""
    draw = np.random.default_rng(1)
    system = draw.integers(0, 100, 9).tolist()
    facts = [answer_example([*system, *row[:4]], row[4:]) for row in draw.integers(0, 100, (count, 7)).tolist()]
    return facts + [base_example(row[:5], row[5:]) for row in draw.integers(0, 100, (count // 2, 14)).tolist()]


@dataclass
class SmallTraining:
    """`reports` and `troubles` are those of all trainers together."""

    engine: Engine
    graph: Graph
    layout: ParameterLayout
    batches: Batches = field(default_factory=lambda: shuffled(examples(), 4, SEED))
    reports: list[StepReport] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    @property
    def origin(self) -> Origin:
        return Origin(self.layout, "some model", SETTINGS.recipe(SEED))

    @property
    def fresh(self) -> Checkpoint:
        return fresh_start(self.layout, SEED)

    @property
    def held(self) -> Checkpoint:
        """The start of a second task: random parameters, with random Fisher information that anchors it to them."""
        draw = np.random.default_rng(SEED)
        moved = self.fresh.state.parameters + 0.1 * draw.standard_normal(self.layout.size).astype(np.float32)
        fisher = draw.random(self.layout.size, np.float32)
        return Checkpoint(dataclasses.replace(TrainingState.of(moved), fisher=fisher).next_task())

    def trainer(
        self, training: Training, start: Checkpoint | None = None, settings: TrainerSettings = SETTINGS,
        batches: Batches | None = None,
    ) -> Trainer:  # fmt: skip
        return Trainer(
            training, batches or self.batches, settings, start or self.fresh, self.reports.append, self.troubles.append
        )

    async def open(self) -> Training:
        return await self.engine.open_training(self.layout)


async def opened(folder: Path, load_backend: BackendLoader, layers: int = 2) -> SmallTraining:
    source = FileSource(CASES["llama"].changed(num_hidden_layers=layers).write(folder / "tiny.gguf"))
    header = await read_header(source)
    config, graph = describe_model(header)
    backend: Backend = await load_backend(source, header, config, graph, None)
    return SmallTraining(Engine(backend, ()), graph, parameter_layout(graph, 2, 2.0))


async def cut_short(work: Coroutine[Any, Any, object], turns: int) -> bool:
    """Cancel the work after this number of turns of the event loop, with numpy always at the same place; False if it
    ended."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


def same(ours: Checkpoint, expected: Checkpoint) -> None:
    """Asserts that both are equal bit by bit."""
    for name in ("parameters", "first_moment", "second_moment", "fisher", "anchor"):
        np.testing.assert_array_equal(getattr(ours.state, name), getattr(expected.state, name), name)
    assert ours.state.steps == expected.state.steps
    assert (ours.step, ours.halvings, ours.dropped) == (expected.step, expected.halvings, expected.dropped)
