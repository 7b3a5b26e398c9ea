"""Earlier learning survives later learning: elastic weight consolidation, on a tiny model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from py_core.backends.numpy.backend import load_numpy
from py_core.training.checkpoint import Checkpoint
from py_core.training.packing import TrainingExample
from py_core.training.schedule import Schedule
from py_core.training.session import TrainingState
from tests.training.small_training import SETTINGS, SmallTraining, examples, opened

TASK = dataclasses.replace(SETTINGS, schedule=Schedule(rate=0.02, steps=30), divergence=0.0, decay=0.0)
ELASTIC = 1e5
"""The squared gradients of known answers are small, and so is their Fisher information."""


async def loss_of(small: SmallTraining, state: TrainingState, task: Sequence[TrainingExample]) -> float:
    settings = dataclasses.replace(TASK, schedule=Schedule(rate=0.0, steps=1))
    await small.trainer(await small.open(), Checkpoint(state).next_task(), settings, lambda step: list(task)).run()
    return small.reports[-1].loss.cross_entropy


async def test_a_second_task_keeps_the_first_one_by_its_fisher_information(tmp_path: Path) -> None:
    small = await opened(tmp_path, load_numpy)
    facts = [one for one in examples(12) if not one.compared]
    old, new = facts[:6], facts[6:]
    first = small.trainer(await small.open(), settings=TASK, batches=lambda step: old)
    await first.run()
    learned = await first.add_fisher(old, keep=0)
    forgotten = []
    for elastic in (0.0, ELASTIC):
        settings = dataclasses.replace(TASK, elastic=elastic)
        second = small.trainer(await small.open(), learned.next_task(), settings, lambda step: new)
        ended = await second.run()
        penalties = [report.loss.penalty for report in small.reports[-TASK.schedule.steps :]]
        assert penalties[0] == 0, "it begins at the anchor"
        assert bool(penalties[1]) == bool(elastic)
        assert all(report.loss.total >= report.loss.penalty for report in small.reports)
        forgotten.append(await loss_of(small, ended.state, old))
        assert await loss_of(small, ended.state, new) < 0.1 * await loss_of(small, learned.state, new)
    assert forgotten[1] < 0.2 * forgotten[0]


async def test_the_next_task_begins_with_fresh_moments_and_keeps_fisher_information(tmp_path: Path) -> None:
    small = await opened(tmp_path, load_numpy)
    assert small.fresh.next_task().state.anchor is None, "nothing was learned that it could hold"
    task = [one for one in examples() if not one.compared]
    trainer = small.trainer(await small.open(), settings=TASK, batches=lambda step: task)
    await trainer.run()
    learned = await trainer.add_fisher(task, keep=0)
    begins = learned.next_task()
    assert (begins.step, begins.halvings, begins.state.steps) == (0, 0, 0)
    assert not begins.state.first_moment.any()
    assert not begins.state.second_moment.any()
    for name in ("parameters", "anchor"):
        np.testing.assert_array_equal(getattr(begins.state, name), learned.state.parameters)
    np.testing.assert_array_equal(begins.state.fisher, learned.state.fisher)

    second = small.trainer(
        await small.open(), begins, dataclasses.replace(TASK, elastic=ELASTIC), lambda step: task[:2]
    )
    ended = await second.run()
    np.testing.assert_array_equal(ended.state.fisher, learned.state.fisher)
    np.testing.assert_array_equal(ended.state.anchor, learned.state.parameters)
    # A running mean over tasks: the anchor of a third task is the end of the second.
    more = (await second.add_fisher(task[:2], keep=0.9)).next_task().state
    alone = await small.trainer(await small.open(), Checkpoint(TrainingState.of(ended.state.parameters))).add_fisher(
        task[:2], keep=0
    )
    expected = 0.9 * learned.state.fisher + 0.1 * alone.state.fisher
    np.testing.assert_allclose(more.fisher, expected, rtol=1e-5, atol=1e-12)
    np.testing.assert_array_equal(more.anchor, ended.state.parameters)
