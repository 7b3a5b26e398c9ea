"""A training goes on with the same numbers where its device was lost or its worker died: tiny models, real devices."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from py_core.backends.wasm.backend import load_wasm
from py_core.backends.webgpu import backend as webgpu_backend
from py_core.backends.webgpu.backend import load_webgpu
from py_core.learning.checkpoint import Checkpoint
from py_core.learning.schedule import Schedule
from tests.gpu.test_lost_device import FragileHost
from tests.learning.small_training import SETTINGS, SmallTraining, cut_short, opened, same
from tests.learning.test_training_turns import LENGTH, answer
from tests.wasm.forgetful_host import ForgetfulHost

FOUR_STEPS = dataclasses.replace(SETTINGS, schedule=Schedule(0.02, 4))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webgpu_backend, "_PAUSE_SECONDS", 0.01)


async def on(host: FragileHost, folder: Path) -> SmallTraining:
    """Submissions count from the first of the training on."""
    small = await opened(folder, partial(load_webgpu, host))
    host.submits, host.armed = 0, True
    return small


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, int]:
    """What is learned without a loss, and with how many submissions."""

    async def train() -> tuple[Checkpoint, int]:
        host = FragileHost()
        small = await on(host, tmp_path_factory.mktemp("training"))
        try:
            return await small.trainer(await small.open(), settings=FOUR_STEPS).run(), host.submits
        finally:
            small.engine.close()

    return asyncio.run(train())


async def test_a_training_goes_on_with_the_same_numbers(undisturbed: tuple[Checkpoint, int], tmp_path: Path) -> None:
    expected, submits = undisturbed
    host = FragileHost(submits // 2, submits)
    small = await on(host, tmp_path)
    try:
        same(await small.trainer(await small.open(), settings=FOUR_STEPS).run(), expected)
        assert host.reopened == 2
        assert small.troubles[0].startswith("The device went away. The training goes on after step")
        assert [report.step for report in small.reports] == [0, 1, 2, 3]
    finally:
        small.engine.close()


async def test_a_device_that_a_chat_lost_is_lost_to_the_training_as_well(
    undisturbed: tuple[Checkpoint, int], tmp_path: Path
) -> None:
    expected, submits = undisturbed
    host = FragileHost(submits, waited_for=True)
    small = await on(host, tmp_path)
    try:
        trainer = small.trainer(await small.open(), settings=FOUR_STEPS)
        assert await cut_short(trainer.run(), 300)
        host.lose()
        assert len(await answer(small.engine)) == LENGTH
        same(await trainer.run(), expected)
        assert host.reopened == 2, "by the chat, and then in the midst of the training"
    finally:
        small.engine.close()


async def test_a_worker_that_died_changes_no_number(tmp_path: Path, kernel_wasm: Callable[[bool], Path]) -> None:
    found = []
    for deaths in (0, 3):
        host = ForgetfulHost(kernel_wasm(True))
        small = await opened(tmp_path, partial(load_wasm, host))
        trainer = small.trainer(await small.open(), settings=FOUR_STEPS)
        while host.deaths < deaths:
            assert await cut_short(trainer.run(), 12)
            host.die()
        found.append(await trainer.run())
        assert len(small.troubles) == deaths
        small.engine.close()
    same(*found)
