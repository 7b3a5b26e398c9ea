"""A chat in the middle of a training: both get the same as alone, and the chat does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from py_core.backends.numpy import training as numpy_training
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.numpy.training import NumpyTraining
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.engine.engine import Engine, Timings
from py_core.loading import BackendLoader
from py_core.sampling import SamplingParams
from py_core.training.session import AfterPiece, Loss, Pack
from py_core.training.trainer import Trainer
from tests.training.small_training import SETTINGS, cut_short, opened, same

PROMPT = list(range(30, 50))
LENGTH = 24


@pytest.fixture(params=["numpy", "wasm"])
def load_backend(request: pytest.FixtureRequest, kernel_wasm: Callable[..., Path]) -> BackendLoader:
    return partial(load_wasm, WasmtimeHost(kernel_wasm())) if request.param == "wasm" else load_numpy


async def answer(engine: Engine, prompt: Sequence[int] = PROMPT) -> list[int]:
    sequence = engine.new_sequence()
    await engine.prefill(sequence, prompt, Timings())
    generated = engine.generate(sequence, LENGTH, SamplingParams(), Timings())
    said = [token async for ids in generated for token in ids]
    engine.free(sequence)
    return said


async def test_an_answer_in_the_middle_changes_neither_its_words_nor_what_is_learned(
    tmp_path: Path, load_backend: BackendLoader
) -> None:
    small = await opened(tmp_path, load_backend)
    try:
        said = await answer(small.engine)
        alone = await small.trainer(await small.open()).run()
        answers: list[asyncio.Task[list[int]]] = []
        # Each is requested at the end of a step, and given in the middle of the next.
        on_step = lambda report: answers.append(asyncio.ensure_future(answer(small.engine)))  # noqa: E731
        trainer = Trainer(await small.open(), small.batches, SETTINGS, small.fresh, on_step)
        same(await trainer.run(), alone)
        assert [await one for one in answers] == [said] * SETTINGS.schedule.steps
    finally:
        small.engine.close()


class CountedTraining(NumpyTraining):
    """Counts the pieces of all sessions, and signals when one of `awaited` is done: the first of a pack's 17."""

    pieces = 0
    awaited: ClassVar[dict[int, asyncio.Event]] = {pieces: asyncio.Event() for pieces in (1, 52, 86)}

    async def accumulate(self, pack: Pack, after_piece: AfterPiece | None = None) -> Loss:
        async def after() -> None:
            CountedTraining.pieces += 1
            if self.pieces in self.awaited:
                self.awaited[self.pieces].set()
            assert after_piece
            await after_piece()

        return await super().accumulate(pack, after)


async def test_an_answer_begins_after_the_piece_that_is_under_way_and_is_not_held_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numpy_training, "NumpyTraining", CountedTraining)
    small = await opened(tmp_path, load_numpy, layers=8)
    training = asyncio.ensure_future(small.trainer(await small.open()).run())
    for pieces, done in CountedTraining.awaited.items():
        await done.wait()
        await answer(small.engine)
        # Here a piece is a turn of the event loop: a few pass before the prompt is read, and before the answer.
        assert CountedTraining.pieces <= pieces + 4
    assert not training.done()
    await training
    assert CountedTraining.pieces % 17 == 0


async def test_a_training_that_is_held_stands_still_until_nobody_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numpy_training, "NumpyTraining", CountedTraining)
    monkeypatch.setattr(CountedTraining, "awaited", {20: asyncio.Event()})
    monkeypatch.setattr(CountedTraining, "pieces", 0)
    small = await opened(tmp_path, load_numpy)
    alone = await small.trainer(await small.open()).run()
    CountedTraining.pieces = 0
    trainer = small.trainer(await small.open())
    training = asyncio.ensure_future(trainer.run())
    await CountedTraining.awaited[20].wait()
    with small.engine.idle_held():
        with small.engine.idle_held():
            said = await answer(small.engine)
        assert await answer(small.engine) == said, "others get the model"
        assert CountedTraining.pieces <= 21, "the piece that was under way"
    same(await training, alone)
    # Held before it begins, or cancelled while it is held, nothing blocks others.
    with small.engine.idle_held():
        waiting = asyncio.ensure_future(small.open())
        assert await cut_short(small.open(), 3)
        assert await answer(small.engine) == said
        assert not waiting.done()
    same(await small.trainer(await waiting).run(), alone)
