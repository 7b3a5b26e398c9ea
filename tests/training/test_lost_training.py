"""A training continues with the same numbers if its device was lost or its worker died: tiny models, real devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path

from py_core.backends.wasm.backend import load_wasm
from py_core.backends.webgpu.backend import load_webgpu
from py_core.training.schedule import Schedule
from tests.backends.backend_pairs import NO_PAUSE
from tests.backends.dying_host import WorkersDie
from tests.backends.webgpu.test_lost_device import FragileHost
from tests.training.small_training import SETTINGS, cut_short, opened, same
from tests.training.test_training_turns import answer

FOUR_STEPS = dataclasses.replace(SETTINGS, schedule=Schedule(0.02, 4), elastic=0.1)
"""With an anchor, which has to be restored with the rest."""


async def test_a_lost_device_changes_neither_a_chats_words_nor_what_is_learned(tmp_path: Path) -> None:
    host = FragileHost()
    small = await opened(tmp_path, partial(load_webgpu, host, settings=NO_PAUSE))
    try:
        said = await answer(small.engine)
        host.submits = 0
        alone = await small.trainer(await small.open(), small.held, FOUR_STEPS).run()
        reports = [report.step for report in small.reports]
        small.reports.clear()

        # Once during a chat's turn, and once in the middle of a step.
        trainer = small.trainer(await small.open(), small.held, FOUR_STEPS)
        assert await cut_short(trainer.run(), 300)
        host.lose()
        assert await answer(small.engine) == said
        host.breaks, host.armed = (host.submits + 5,), True
        same(await trainer.run(), alone)
        assert host.reopened == 2
        assert str(small.troubles[-1]).startswith("The device was lost. Training continues after step")
        assert [report.step for report in small.reports] == reports == [0, 1, 2, 3]
    finally:
        small.engine.close()


async def test_a_worker_that_died_changes_no_number(tmp_path: Path, kernel_wasm: Callable[..., Path]) -> None:
    found = []
    for deaths in (0, 3):
        host = WorkersDie(kernel_wasm())
        small = await opened(tmp_path, partial(load_wasm, host))
        trainer = small.trainer(await small.open(), small.held, FOUR_STEPS)
        for _ in range(deaths):
            assert await cut_short(trainer.run(), 12)
            host.lose(1)
        found.append(await trainer.run())
        assert found[-1].state.anchor is not None
        assert len(small.troubles) == deaths
        small.engine.close()
    same(*found)
