"""Learning in idle time: when it starts, pauses, ends and continues. A tiny model is trained, with real locks."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.consolidation import idle_learning
from app.consolidation.idle_learning import IdleLearning
from app.consolidation.idle_work import IdleStatus, Loop, Progress, Report
from app.consolidation.one_learner import FileLock
from app.records.kinds import KINDS
from app.records.policies import Policies
from py_core.backends.numpy.backend import load_numpy
from py_core.store.store import Store
from py_core.store.volatile import VolatileRows
from py_core.training.checkpoint import Checkpoint
from py_core.training.schedule import Schedule
from py_core.training.trainer import StepReport, Trainer
from tests.training.small_training import SETTINGS, SmallTraining, opened, same
from tests.training.test_training_turns import answer

LONG = dataclasses.replace(SETTINGS, schedule=Schedule(0.02, 40))
PATIENCE = 60


class Lessons:
    """The work of a loop: trains the tiny model with the available data, and stores its progress."""

    def __init__(self, small: SmallTraining) -> None:
        self.small, self.there, self.kept = small, 0, Checkpoint(small.fresh.state)
        self.steps: list[int] = []
        self.runs = self.sessions = 0
        self.stepped = asyncio.Event()
        self.breaks: str = ""

    async def waiting(self) -> int:
        return self.there

    async def is_begun(self) -> bool:
        return self.kept.step > 0

    async def run(self, report: Report) -> None:
        self.runs += 1
        if self.breaks:
            raise ValueError(self.breaks)

        def on_step(one: StepReport) -> None:
            self.steps.append(one.step)
            self.stepped.set()
            report(100 * (one.step + 1), 100 * LONG.schedule.steps, "trains")

        training = await self.small.open()
        self.sessions += 1
        trainer = Trainer(training, self.small.batches, LONG, self.kept, on_step)
        try:
            self.ended = await trainer.run()
            self.there, self.kept = 0, Checkpoint(self.small.fresh.state)
        except asyncio.CancelledError:
            self.kept = await trainer.checkpoint()
            raise
        finally:
            self.sessions -= 1
            training.close()

    async def step(self) -> None:
        self.stepped.clear()
        async with asyncio.timeout(PATIENCE):
            await self.stepped.wait()


class Idle:
    """An IdleLearning over its own memory, and its reports."""

    def __init__(self, work: Lessons, policies: Policies, lock: Path, **changes: object) -> None:
        self.work, self.policies, self.open = work, policies, True
        self.loop = Loop("background", work, enough=3, what="lessons")
        self.told = asyncio.Event()
        self.learning = IdleLearning(
            [self.loop], lambda: self.policies if self.open else None, work.small.engine.idle_held, FileLock(lock),
            self.told.set, **{"idle_seconds": 0.0, **changes},
        )  # fmt: skip
        self.learning.start()

    async def until(self, state: str, words: str = "") -> IdleStatus:
        async with asyncio.timeout(PATIENCE):
            while self.learning.status.state != state or words not in str(self.learning.status.sentence):
                self.told.clear()
                await self.told.wait()
        return self.learning.status

    def teach(self, count: int) -> None:
        self.work.there += count
        self.learning.look_again()


@pytest.fixture
async def policies() -> Policies:
    return await Policies.open(await Store.open(VolatileRows(), kinds=KINDS))


@pytest.fixture
async def work(tmp_path: Path) -> Lessons:
    return Lessons(await opened(tmp_path, load_numpy))


@pytest.fixture
async def idle(work: Lessons, policies: Policies, tmp_path: Path) -> AsyncIterator[Idle]:
    made = Idle(work, policies, tmp_path / "lock")
    yield made
    await made.learning.close()


async def test_it_learns_once_there_is_enough_and_says_how_far_it_is(idle: Idle) -> None:
    assert str((await idle.until("learned")).sentence) == "There are no new lessons to learn from."
    idle.teach(2)
    said = str((await idle.until("waiting")).sentence)
    assert said == "Sonata learns in a pause once there are 3 new lessons; so far: 2."
    assert idle.work.runs == 0
    idle.teach(1)
    await idle.work.step()
    await idle.work.step()
    status = await idle.until("running")
    assert (status.loop, status.total) == ("background", 4000)
    assert 0 < status.done < status.total
    assert status.seconds_left
    assert str(status.sentence).startswith("Sonata is learning: it trains. ")
    assert "% is done, about " in str(status.sentence)
    await idle.until("learned")
    assert idle.work.steps == list(range(40))
    # The next run has to wait, unless the user asks for it.
    idle.teach(3)
    assert str((await idle.until("waiting")).sentence) == "Sonata has just learned; it will continue later."
    idle.learning.learn_now("background")
    await idle.until("learned")
    assert idle.work.runs == 2
    with pytest.raises(KeyError):
        idle.learning.learn_now("deeper")


async def test_a_message_holds_it_where_it_stands_and_it_ends_with_the_same_numbers(idle: Idle) -> None:
    small = idle.work.small
    alone = await small.trainer(await small.open(), settings=LONG).run()
    said = await answer(small.engine)
    idle.teach(3)
    for _ in range(3):
        await idle.work.step()
        with idle.learning.busy():
            steps = len(idle.work.steps)
            assert await answer(small.engine) == said
            assert await answer(small.engine) == said
            held = await idle.until("held")
            assert str(held.sentence).startswith("Learning waits while you use Sonata.")
            assert len(idle.work.steps) == steps
    await idle.until("learned")
    assert idle.work.runs == 1, "it was only held"
    same(idle.work.ended, alone)


async def test_typing_holds_it_for_some_seconds(work: Lessons, policies: Policies, tmp_path: Path) -> None:
    now = 0.0
    idle = Idle(work, policies, tmp_path / "lock", idle_seconds=10.0, clock=lambda: now)
    idle.teach(3)
    assert (
        str((await idle.until("held")).sentence) == "There is something to learn. Learning waits while you use Sonata."
    )
    now = 10.0
    idle.learning.look_again()
    await work.step()
    idle.learning.note_activity()
    await idle.until("held")
    now = 19.0
    idle.learning.note_activity()
    now, steps = 28.0, len(work.steps)
    idle.learning.look_again()
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(work.steps) == steps
    assert idle.learning.status.state == "held"
    now = 29.0
    idle.learning.look_again()
    await work.step()
    assert idle.learning.status.seconds_left == 0, "while it was held no time counts"
    # If paused for long, it is ended to free its memory, and continues from there later.
    idle.learning.note_activity()
    now += idle_learning.HELD_SECONDS
    idle.learning.note_activity()
    await idle.until("held", "There is something to learn")
    assert work.sessions == 0
    now += 10.0
    idle.learning.look_again()
    await idle.until("learned")
    assert work.runs == 2
    assert work.steps == list(range(40))
    await idle.learning.close()
    same(work.ended, await work.small.trainer(await work.small.open(), settings=LONG).run())


async def test_switch_battery_and_pause_end_it_and_it_goes_on_from_there(idle: Idle) -> None:
    learning, work, policies = idle.learning, idle.work, idle.policies
    idle.teach(3)
    await work.step()
    learning.note_battery(0.29, charging=False)
    assert str((await idle.until("battery")).sentence) == "The battery is at 29%: learning waits until it is charged."
    assert work.sessions == 0
    assert work.kept.step > 0
    learning.note_battery(0.29, charging=True)
    await work.step()
    learning.pause()
    assert "What was learned so far is kept" in str((await idle.until("paused")).sentence)
    learning.resume()
    await work.step()
    await policies.edit("learning.background", False)
    learning.look_again()
    await idle.until("off")
    assert work.sessions == 0
    idle.open = False
    await policies.edit("learning.background", True)
    learning.look_again()
    assert str((await idle.until("waiting")).sentence) == "The memory is not open."
    idle.open = True
    learning.look_again()
    await idle.until("learned")
    assert work.steps == list(range(40)), "no step twice"
    assert work.runs == 4
    assert policies.look("learning.background.last").source == "background"


async def test_it_can_be_closed_at_the_very_end_of_an_answer(idle: Idle) -> None:
    idle.teach(3)
    await idle.work.step()
    for _ in range(20):
        await asyncio.sleep(0)  # it waits for news now
    with idle.learning.busy():
        pass
    async with asyncio.timeout(PATIENCE / 6):
        await idle.learning.close()
    assert idle.work.sessions == 0
    assert idle.work.kept.step > 0


async def test_only_one_of_two_programs_learns(idle: Idle, work: Lessons, policies: Policies, tmp_path: Path) -> None:
    other = Idle(Lessons(await opened(tmp_path, load_numpy)), policies, tmp_path / "lock")
    idle.teach(3)
    await work.step()
    other.teach(3)
    assert (
        str((await other.until("elsewhere")).sentence) == "Another tab or program of yours is learning; this one waits."
    )
    assert other.work.runs == 0
    await idle.learning.close()
    assert work.kept.step > 0, "it was ended in the middle"
    other.learning.look_again()
    await other.work.step()
    await other.learning.close()


async def test_trouble_is_told_and_it_is_not_tried_again_and_again(idle: Idle) -> None:
    idle.work.breaks = "The disk is full. Delete something."
    idle.teach(3)
    assert str((await idle.until("failed")).sentence) == "The disk is full. Delete something."
    idle.learning.look_again()
    for _ in range(50):
        await asyncio.sleep(0)
    assert idle.work.runs == 1
    idle.work.breaks = ""
    idle.learning.resume()
    await idle.until("learned")


def test_time_left_counts_only_the_time_that_it_works() -> None:
    now = 0.0
    progress = Progress(lambda: now)
    assert progress.seconds_left is None
    progress.report(100, 1100)
    now = 10.0
    progress.stand_still()
    now = 100.0
    progress.go_on()
    now = 110.0
    progress.report(300, 1100)
    assert progress.seconds_left == pytest.approx(20 * 800 / 200)
    assert str(progress.told_after("It learns.")) == "It learns. 27% is done, about 80 seconds left."
    progress.report(1090, 1100)
    assert str(progress.told_after("It learns.")) == "It learns. 99% is done, about a second left."
