"""The record of an answer: written at once, and completed by reading it again in the background, with a tiny model
and SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.chat import trajectory_recorder
from app.chat.conversation import Conversation
from app.generation.assistant import Assistant
from app.lessons.service import INSTANT_POLICY
from app.protocol import Delta, Stored
from app.runtime import Runtime
from py_core.backends.numpy.backend import NumpyBackend
from py_core.engine.engine import Timings
from py_core.engine.scheduler import Priority
from py_core.learning.trajectories import Trajectory
from py_core.loading import Model
from py_core.sampling import SamplingParams
from tests.runtime import begin_conversation

OpenModel = Callable[..., Awaitable[Model]]


class ReadsOnlyWhenAsked(NumpyBackend):
    """Its reading of an answer waits for `may_read`, and signals its start by `reads`."""

    may_read, reads = asyncio.Event(), asyncio.Event()

    async def hidden(self, *arguments: Any) -> dict[str, np.ndarray]:
        type(self).reads.set()
        await type(self).may_read.wait()
        return await super().hidden(*arguments)


@pytest.fixture
def deep_path(write_model: Callable[..., Path]) -> Path:
    return write_model(tied=False, layers=8)


def begin(model: Model, runtime: Runtime) -> Conversation:
    return begin_conversation(Assistant(model, SamplingParams(), max_tokens=6), runtime)


async def ask(conversation: Conversation, text: str = "One") -> str:
    """The answer's id."""
    *_, last = [event async for event in conversation.respond(text)]
    assert isinstance(last, Stored)
    return last.request


async def recorded(runtime: Runtime, id: str) -> Trajectory:
    found = await runtime.memory.trajectories.get(id)
    assert found is not None
    return found


async def test_the_log_probability_of_an_answer_is_what_the_model_says_of_its_tokens(
    deep_path: Path, open_model: OpenModel, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trajectory_recorder, "READ_AT_ONCE", 4)
    model = await open_model(deep_path, end_tokens=())
    conversation = begin(model, runtime)
    await ask(conversation, "Zero")
    id = await ask(conversation)
    await runtime.memory.background.settled()

    found = await recorded(runtime, id)
    tokens = list(conversation.assistant.sequence.tokens)
    start = found.prompt_tokens
    assert (found.asked, found.reason, found.new_tokens, len(tokens) - start) == ("One", "length", 6, 6)
    logprobs = await model.engine.token_logprobs(model.engine.new_sequence(), tokens, start)
    assert found.logprob == pytest.approx(float(logprobs.mean()), abs=2e-3)
    assert found.parts["coherent"] == pytest.approx(np.exp(logprobs.mean()), abs=2e-3)
    assert (found.parts["finished"], found.parts["fits"]) == (0.5, None)
    assert found.quality is not None
    assert found.session == (await runtime.memory.sessions.all())[0].id


async def test_a_person_who_goes_on_ends_the_reading_and_loses_nothing(
    tiny_path: Path, open_model: OpenModel, runtime: Runtime
) -> None:
    backend = type("Waits", (ReadsOnlyWhenAsked,), {"may_read": asyncio.Event(), "reads": asyncio.Event()})
    expected = begin(await open_model(tiny_path, end_tokens=()), Runtime())
    for text in ("One", "Two"):
        async for _ in expected.respond(text):
            pass
    conversation = begin(await open_model(tiny_path, backend, end_tokens=()), runtime)
    first = await ask(conversation)
    await backend.reads.wait()  # the reading of the first answer is under way, and would wait for ever
    second = await ask(conversation, "Two")
    assert [turn.content for turn in conversation.turns] == [turn.content for turn in expected.turns]
    backend.may_read.set()
    await runtime.memory.background.settled()
    assert runtime.problem is None
    cut_off, whole = await recorded(runtime, first), await recorded(runtime, second)
    assert (cut_off.logprob, cut_off.parts["coherent"], cut_off.parts["finished"]) == (None, None, 0.5)
    assert whole.logprob is not None


async def test_of_a_long_answer_the_beginning_is_read(
    tiny_path: Path, open_model: OpenModel, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trajectory_recorder, "MOST_READ", 4)
    model = await open_model(tiny_path, end_tokens=())
    conversation = begin(model, runtime)
    found = await recorded(runtime, await ask(conversation))
    await runtime.memory.background.settled()
    tokens, start = list(conversation.assistant.sequence.tokens), found.prompt_tokens
    logprobs = await model.engine.token_logprobs(model.engine.new_sequence(), tokens, start)
    found = await recorded(runtime, found.id)
    assert found.logprob == pytest.approx(float(logprobs[:4].mean()), abs=2e-3)


async def test_nothing_is_read_while_somebody_types(tiny_path: Path, open_model: OpenModel, runtime: Runtime) -> None:
    backend = type("Tells", (ReadsOnlyWhenAsked,), {"may_read": asyncio.Event(), "reads": asyncio.Event()})
    backend.may_read.set()
    model = await open_model(tiny_path, backend, end_tokens=())
    conversation, other = begin(model, runtime), model.engine.new_sequence()
    await model.engine.prefill(other, [1, 2, 3], Timings())
    with model.engine.idle_held():
        id = await ask(conversation)
        for _ in range(50):  # less urgent work runs between these
            await model.engine.last_logits(other, 2, Priority.BACKGROUND)
        assert not backend.reads.is_set()
    await runtime.memory.background.settled()
    assert (await recorded(runtime, id)).logprob is not None


async def test_another_try_and_a_stop_are_signs_that_lower_the_quality(
    tiny_path: Path, open_model: OpenModel, runtime: Runtime
) -> None:
    conversation = begin(await open_model(tiny_path, end_tokens=()), runtime)
    first = await ask(conversation)
    await runtime.memory.background.settled()
    before = await recorded(runtime, first)
    *_, stored = [event async for event in conversation.retry()]
    assert isinstance(stored, Stored)
    await runtime.memory.background.settled()
    after = await recorded(runtime, first)
    assert (after.again, (await recorded(runtime, stored.request)).again) == (True, False)
    assert after.quality is not None
    assert before.quality is not None
    assert after.quality == pytest.approx(0.6 * before.quality)
    async for event in conversation.respond("Two"):
        if isinstance(event, Delta):
            conversation.stop()
    await runtime.memory.background.settled()
    stopped = (await runtime.memory.trajectories.all(limit=1))[0]
    assert (stopped.reason, stopped.parts["finished"]) == ("stopped", 0.25)


async def test_with_learning_off_only_a_line_of_the_log_remains(
    tiny_path: Path, open_model: OpenModel, runtime: Runtime
) -> None:
    memory = runtime.memory
    conversation = begin(await open_model(tiny_path, end_tokens=()), runtime)
    await memory.policies.set(INSTANT_POLICY, False, confidence=1.0, source="user")
    await ask(conversation)
    assert await memory.trajectories.all() == []
    (logged,) = await memory.log.entries()
    assert (logged.asked, logged.answered, logged.learnable) == ("One", "", False)
    assert await memory.trajectories.get(logged.id) is None
