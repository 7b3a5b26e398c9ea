"""The trainer learns, continues where it was interrupted, and ends with a sentence if it cannot."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.adapters.parameters import ParameterLayout, Slot, parameter_layout
from py_core.backends.numpy.backend import NumpyBackend, load_numpy, load_weights
from py_core.backends.protocols import Progress
from py_core.engine.engine import Timings
from py_core.engine.scheduler import Priority, Scheduler
from py_core.engine.training_turns import TrainingInTurns
from py_core.formats.gguf import GGUFHeader
from py_core.formats.safetensors import write_safetensors
from py_core.formats.source import WeightSource
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.sampling import SamplingParams
from py_core.training.batches import shuffled
from py_core.training.checkpoint import Checkpoint, CheckpointError, Origin, read_checkpoint, write_checkpoint
from py_core.training.packing import WeightSums, answer_example, packed
from py_core.training.schedule import Schedule
from py_core.training.session import (
    AdamW,
    AfterPiece,
    Loss,
    Pack,
    StepResult,
    Training,
    TrainingLostError,
    TrainingState,
)
from py_core.training.trainer import MAX_DROPPED, MAX_LOSSES, TrainingError, fresh_start
from tests.training.small_training import SEED, SETTINGS, SmallTraining, cut_short, examples, opened, same

DAMAGED = 101
"""A token whose embedding is not a number. The drawn examples are without it."""

SHORT = dataclasses.replace(SETTINGS, schedule=Schedule(0.02, 2, warm_up=0))


async def with_a_damaged_token(
    source: WeightSource, header: GGUFHeader, config: ModelConfig, graph: Graph, progress: Progress | None
) -> NumpyBackend:
    weights = await load_weights(source, header, graph)
    weights["token_embd.weight"][DAMAGED] = np.nan
    return NumpyBackend(config, graph, weights)


class VanishingTraining:
    """A session that is lost at some of its calls, until it is restored: real losses of a GPU or a worker are tested
    elsewhere.

    `lost_at` counts calls of all methods, from 1 on.
    """

    def __init__(self, training: Training, lost_at: Sequence[int]) -> None:
        self._training, self._lost_at = training, lost_at
        self._calls, self._is_gone = 0, False
        self.max_rows = training.max_rows

    async def restore(self, state: TrainingState) -> None:
        self._is_gone = False
        await self._call()
        await self._training.restore(state)

    async def save(self) -> TrainingState:
        await self._call()
        return await self._training.save()

    async def accumulate(self, pack: Pack, after_piece: AfterPiece | None = None) -> Loss:
        await self._call()
        return await self._training.accumulate(pack, after_piece)

    async def states(self, pack: Pack, after_piece: AfterPiece | None = None) -> np.ndarray:
        await self._call()
        return await self._training.states(pack, after_piece)

    async def step(self, rule: AdamW) -> StepResult:
        await self._call()
        return await self._training.step(rule)

    async def clear(self) -> None:
        await self._call()
        await self._training.clear()

    async def add_fisher(self, keep: float, weight: float) -> None:
        await self._call()
        await self._training.add_fisher(keep, weight)

    async def gradient(self) -> np.ndarray:
        await self._call()
        return await self._training.gradient()

    def close(self) -> None:
        self._training.close()

    async def _call(self) -> None:
        self._calls += not self._is_gone
        if self._is_gone or self._calls in self._lost_at:
            self._is_gone = True
            size = len((await self._training.save()).parameters)
            await self._training.restore(TrainingState.of(np.full(size, np.nan, np.float32)))
            raise TrainingLostError("The device is gone.")


@pytest.fixture
async def small(tmp_path: Path) -> SmallTraining:
    return await opened(tmp_path, load_numpy)


async def test_what_is_taught_is_learned_and_the_rest_stays_close_to_the_base(small: SmallTraining) -> None:
    schedule = Schedule(rate=0.02, steps=40)
    both, facts = examples(), [one for one in examples() if not one.compared]
    end = []
    for taught, divergence in ((both, 1.0), (facts, 0.0)):
        settings = dataclasses.replace(SETTINGS, schedule=schedule, divergence=divergence)
        training = await small.open()
        await small.trainer(training, settings=settings, batches=lambda step, taught=taught: taught).run()
        # The distance from the base after that, also on the texts.
        watch = dataclasses.replace(settings, schedule=Schedule(rate=0.0, steps=1), divergence=1.0)
        start = Checkpoint(await training.save())
        await small.trainer(training, start, watch, lambda step: both).run()
        end.append(small.reports[-1].loss)
        training.close()
    before = small.reports[0].loss
    assert before.divergence == pytest.approx(0, abs=1e-4)
    assert before.cross_entropy > 3
    assert end[0].cross_entropy < 0.1 * before.cross_entropy
    assert 3 * end[0].divergence < end[1].divergence


async def test_with_what_was_trained_the_model_says_what_it_was_taught(small: SmallTraining) -> None:
    facts = [one for one in examples() if not one.compared]
    settings = dataclasses.replace(SETTINGS, schedule=Schedule(rate=0.02, steps=40))
    learned = await small.trainer(await small.open(), settings=settings, batches=lambda step: facts).run()
    number = await small.engine.add_adapter(small.layout.adapter(learned.state.parameters, "facts"))
    for adapter, right in ((number, True), (0, False)):
        said = []
        for fact in facts:
            sequence = small.engine.new_sequence()
            small.engine.use_adapter(sequence, adapter)
            await small.engine.prefill(sequence, fact.tokens[:-3], Timings())
            answer = small.engine.generate(sequence, 3, SamplingParams(), Timings())
            said.append(tuple([token async for ids in answer for token in ids]))
        assert (said == [fact.tokens[-3:] for fact in facts]) == right


async def test_a_training_is_a_loop_of_packs_and_steps(small: SmallTraining) -> None:
    """The same computation by hand, without a trainer."""
    facts = examples()[:6]
    settings = dataclasses.replace(SETTINGS, divergence=0.0)
    result = await small.trainer(await small.open(), settings=settings, batches=lambda step: facts).run()
    training = await small.engine.backend.open_training(small.layout)
    await training.restore(small.fresh.state)
    for step in range(6):
        loss = await training.accumulate(packed(facts, WeightSums.of(facts), 0, {}))
        rate = [0.02 / 3, 0.04 / 3, 0.02, 0.01 * (1 + math.cos(math.pi / 4)), 0.01, 0.01 * (1 - math.cos(math.pi / 4))]
        found = await training.step(AdamW(rate[step], decay=0.01))
        report = small.reports[step]
        assert (report.step, report.loss, report.norm) == (step, loss, found.norm)
        assert report.rate == pytest.approx(rate[step])
        assert report.tokens == 9 + 6 * 6, "the instruction runs once"
    np.testing.assert_allclose(result.state.parameters, (await training.save()).parameters, rtol=1e-6, atol=1e-9)
    assert np.abs(result.state.parameters - small.fresh.state.parameters).max() > 0.01


async def test_a_training_that_is_cut_short_goes_on_with_the_same_numbers(small: SmallTraining) -> None:
    settings = dataclasses.replace(SETTINGS, elastic=0.1)
    alone = await small.trainer(await small.open(), small.held, settings).run()
    reports = list(small.reports)
    small.reports.clear()
    training = await small.open()
    trainer, cuts = small.trainer(training, small.held, settings), 0
    while await cut_short(trainer.run(), 50 + 7 * cuts):
        cuts += 1
        checkpoint = await trainer.checkpoint()
        if cuts % 3:  # from a file, in another session; otherwise in the same one
            training.close()
            training = await small.open()
            file = write_checkpoint(checkpoint, small.origin)
            checkpoint = read_checkpoint(file, small.origin)
            assert write_checkpoint(checkpoint, small.origin) == file
            trainer = small.trainer(training, checkpoint, settings)
    assert cuts > 3
    same(await trainer.checkpoint(), alone)
    assert [report for report in small.reports if report in reports] == small.reports


async def test_no_moment_is_a_wrong_one_to_be_cut_short(small: SmallTraining) -> None:
    """Every turn of the loop within a step, including the optimizer's."""
    small.batches = shuffled(examples(2), 3, 1)
    settings = dataclasses.replace(SETTINGS, schedule=Schedule(0.02, 3))
    alone = await small.trainer(await small.open(), settings=settings).run()
    came = set()
    for turns in range(55, 88):
        trainer = small.trainer(await small.open(), settings=settings)
        assert await cut_short(trainer.run(), turns)
        checkpoint = await trainer.checkpoint()
        came.add(checkpoint.step)
        assert checkpoint.step == checkpoint.state.steps
        same(await small.trainer(await small.open(), checkpoint, settings).run(), alone)
        same(await trainer.run(), alone)
    assert len(came) > 1


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
async def test_a_step_that_is_not_finite_is_left_out_and_halves_the_rate(tmp_path: Path) -> None:
    small = await opened(tmp_path, with_a_damaged_token)
    good, bad = examples(), [answer_example([1, 2, DAMAGED], [4, 5])]
    result = await small.trainer(await small.open(), batches=lambda step: bad if step in (1, 4) else good).run()
    assert (result.step, result.state.steps, result.halvings, result.dropped) == (6, 4, 2, 0)
    assert [report.step for report in small.reports] == [0, 2, 3, 5]
    rates = [SETTINGS.schedule.at(step) for step in range(6)]
    assert [report.rate for report in small.reports] == [rates[0], rates[2] / 2, rates[3] / 2, rates[5] / 4]
    assert list(map(str, small.troubles)) == [
        f"Step {step} was skipped because its gradient is not finite. The learning rate is halved." for step in (2, 5)
    ]
    assert np.isfinite(result.state.parameters).all()


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
async def test_several_steps_in_a_row_that_are_not_finite_end_the_training(tmp_path: Path) -> None:
    small = await opened(tmp_path, with_a_damaged_token)
    good, bad = examples(), [answer_example([1, 2, DAMAGED], [4, 5])]
    trainer = small.trainer(await small.open(), batches=lambda step: bad if step else good)
    with pytest.raises(TrainingError, match=r"the gradients of 4 steps in a row .* Train with a smaller learning rate"):
        await trainer.run()
    assert len(small.troubles) == MAX_DROPPED - 1
    kept = await trainer.checkpoint()
    assert (kept.step, kept.state.steps) == (1 + MAX_DROPPED, 1)
    assert np.isfinite(kept.state.parameters).all()


@pytest.mark.parametrize(
    "lost_at", [[2, 9, 14], *(pytest.param(at, marks=pytest.mark.all) for at in ([1], [9], [6, 7]))]
)
async def test_after_a_loss_of_the_device_the_numbers_are_the_same(tmp_path: Path, lost_at: list[int]) -> None:
    small = await opened(tmp_path, load_numpy)
    alone = await small.trainer(await small.open()).run()
    reports = list(small.reports)
    small.reports.clear()
    backend = small.engine.backend
    assert isinstance(backend, NumpyBackend)
    training = VanishingTraining(await backend.open_training(small.layout), lost_at)
    same(await small.trainer(training).run(), alone)
    assert small.reports == reports
    assert len(small.troubles) == len(lost_at)
    assert all("The device was lost. Training continues after step" in str(said) for said in small.troubles)


async def test_what_was_cut_short_after_a_loss_goes_on_with_the_same_numbers(tmp_path: Path) -> None:
    small = await opened(tmp_path, load_numpy)
    small.batches = shuffled(examples(2), 3, 1)
    alone = await small.trainer(await small.open(), settings=SHORT).run()
    for turns in range(40, 75, 2):
        session = VanishingTraining(await small.engine.backend.open_training(small.layout), [8])
        in_turns = TrainingInTurns(session, Scheduler(small.engine.backend), Priority.BACKGROUND)
        trainer = small.trainer(in_turns, settings=SHORT)
        if await cut_short(trainer.run(), turns):
            checkpoint = await trainer.checkpoint()
            assert checkpoint.step == checkpoint.state.steps
        same(await trainer.run(), alone)


async def test_several_losses_in_a_row_end_the_training_and_keep_what_was_saved(tmp_path: Path) -> None:
    small = await opened(tmp_path, load_numpy)
    alone = await small.trainer(await small.open()).run()
    session = await small.engine.backend.open_training(small.layout)
    training = VanishingTraining(session, range(26, 26 + MAX_LOSSES))
    trainer = small.trainer(training)
    with pytest.raises(TrainingError, match=r"the device was lost 3 times in a row. .* up to step \d is kept"):
        await trainer.run()
    kept = await trainer.checkpoint()
    assert 0 < kept.step < 6
    same(await small.trainer(await small.open(), kept).run(), alone)
    same(await trainer.run(), alone)


async def test_fisher_is_the_mean_of_the_squares_of_each_examples_gradient(small: SmallTraining) -> None:
    facts = [one for one in examples() if not one.compared][:3]
    trainer = small.trainer(await small.open())
    trained = await trainer.run()
    first = await trainer.add_fisher(facts[:1], keep=0)
    second = await trainer.add_fisher(facts[1:], keep=0.25)
    training = await small.open()
    await training.restore(trained.state)
    squares = []
    for fact in facts:
        await training.clear()
        await training.accumulate(packed([fact], WeightSums.of([fact]), 0, {}))
        squares.append((await training.gradient()) ** 2)
    np.testing.assert_allclose(first.state.fisher, squares[0], rtol=1e-5, atol=1e-12)
    expected = 0.25 * squares[0] + 0.75 * (squares[1] + squares[2]) / 2
    np.testing.assert_allclose(second.state.fisher, expected, rtol=1e-5, atol=1e-12)
    np.testing.assert_array_equal(second.state.parameters, trained.state.parameters)
    # Cut short it adds nothing, and the earlier state remains.
    assert await cut_short(trainer.add_fisher(facts, keep=0.5), 12)
    same(await trainer.checkpoint(), second)
    again = await trainer.add_fisher(facts, keep=0.5)
    assert np.abs(again.state.fisher - second.state.fisher).max() > 0


async def test_fisher_is_the_same_after_a_loss_of_the_device(small: SmallTraining) -> None:
    facts = examples()[:3]
    trainer = small.trainer(await small.open(), settings=SHORT)
    await trainer.run()
    alone = await trainer.add_fisher(facts, keep=0.5)
    training = await small.engine.backend.open_training(small.layout)
    vanishing = VanishingTraining(training, [4])
    trainer = small.trainer(vanishing, settings=SHORT)
    await trainer.run()
    same(await trainer.add_fisher(facts, keep=0.5), alone)
    assert len(small.troubles) == 1


async def test_a_checkpoint_of_something_else_is_refused_with_a_sentence(small: SmallTraining) -> None:
    file = write_checkpoint(small.fresh, small.origin)
    same(read_checkpoint(file, small.origin), small.fresh)
    other_rank = parameter_layout(small.graph, 3, 2.0)
    for origin, said in (
        (dataclasses.replace(small.origin, base_sha256="another"), "of another model"),
        (dataclasses.replace(small.origin, layout=other_rank), "of other matrices, or of another rank"),
        (dataclasses.replace(small.origin, recipe=SETTINGS.recipe(SEED + 1)), "made with other settings"),
    ):
        with pytest.raises(CheckpointError, match=said):
            read_checkpoint(file, origin)
    elastic_unknown = {key: value for key, value in json.loads(SETTINGS.recipe(SEED)).items() if key != "elastic"}
    older = write_checkpoint(small.fresh, dataclasses.replace(small.origin, recipe=json.dumps(elastic_unknown)))
    with pytest.raises(CheckpointError, match=r"made with other settings\. .* or start again"):
        read_checkpoint(older, small.origin)
    held = write_checkpoint(small.held, small.origin)
    same(read_checkpoint(held, small.origin), small.held)
    damaged = dataclasses.replace(small.fresh.state, parameters=np.full(small.layout.size, np.nan, np.float32))
    for data in (
        write_checkpoint(Checkpoint(damaged), small.origin),
        write_checkpoint(Checkpoint(dataclasses.replace(small.fresh.state, anchor=damaged.parameters)), small.origin),
        write_checkpoint(Checkpoint(dataclasses.replace(small.fresh.state, anchor=np.zeros(3, "f"))), small.origin),
        write_checkpoint(Checkpoint(small.fresh.state, step=-1), small.origin),
        file[: len(file) // 2],
        b"",
    ):
        with pytest.raises(CheckpointError, match="start again"):
            read_checkpoint(data, small.origin)
    with pytest.raises(CheckpointError, match="not a checkpoint of a training"):
        read_checkpoint(write_safetensors({"parameters": damaged.parameters}), small.origin)


@given(st.data())
def test_a_damaged_checkpoint_is_refused_or_is_a_checkpoint(data: st.DataObject) -> None:
    layout = ParameterLayout(1, 1.0, {"blk.0.ffn_up.weight": Slot(0, 64, 3, 2)}, 128)
    origin = Origin(layout, "some model", SETTINGS.recipe(SEED))
    file = bytearray(write_checkpoint(fresh_start(layout, SEED), origin))
    for place in data.draw(st.sets(st.integers(0, len(file) - 1), min_size=1, max_size=3)):
        file[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(file)) | st.none())
    with contextlib.suppress(CheckpointError):
        read = read_checkpoint(bytes(file[:cut]), origin)
        assert np.isfinite(read.state.parameters).all()
        assert min(read.step, read.halvings, read.dropped, read.state.steps) >= 0


def test_a_recipe_tells_what_would_change_the_numbers() -> None:
    assert SETTINGS.recipe(1) == dataclasses.replace(SETTINGS, save_every=99).recipe(1)
    held, slow = dataclasses.replace(SETTINGS, elastic=0.5), dataclasses.replace(SETTINGS, decay=0.5)
    others = [SETTINGS.recipe(2), SHORT.recipe(1), slow.recipe(1), held.recipe(1)]
    assert SETTINGS.recipe(1) not in others
