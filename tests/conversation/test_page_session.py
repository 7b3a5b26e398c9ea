"""Several pages use one model: each has its own conversation, and answers come at the same time."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from app.generation.answer_adapters import AnswerAdapters
from app.generation.assistant import Assistant
from app.page.session import PageSession
from app.runtime import Runtime, RuntimeConfig
from py_core.adapters.lora import LoraAdapter
from py_core.backends.base import BackendError
from py_core.loading import Model
from py_core.memory.volatile import VolatileRows
from py_core.sampling import SamplingParams
from tests.tiny_adapters import drawn

OpenModel = Callable[..., Awaitable[Model]]
LONG = 40  # tokens of an answer: enough turns of the scheduler for two to overlap


@pytest.fixture
async def model(tiny_path: Path, open_model: OpenModel) -> Model:
    return await open_model(tiny_path, end_tokens=())


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    async def rows() -> VolatileRows:
        return VolatileRows()

    opened = await Runtime.open(RuntimeConfig(rows))
    yield opened
    await opened.close()


class Pages:
    """Sessions of one model."""

    def __init__(self, model: Model, runtime: Runtime) -> None:
        self.model, self.runtime = model, runtime
        self.adapters = AnswerAdapters(model.engine)

    def new(self) -> PageSession:
        return PageSession(self.runtime, lambda: Assistant(self.model, SamplingParams(), LONG, self.adapters))


@pytest.fixture
def pages(model: Model, runtime: Runtime) -> Pages:
    return Pages(model, runtime)


class Heard(list[dict[str, Any]]):
    """The events of one answer."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()

    def __call__(self, event: str) -> None:
        self.append(json.loads(event))
        if self[-1]["type"] == "delta":
            self.has_begun.set()

    @property
    def text(self) -> str:
        return "".join(event["text"] for event in self if event["type"] == "delta")

    def value(self, kind: str) -> Any:
        return next(event for event in self if event["type"] == kind)


async def ask(page: PageSession, text: str) -> Heard:
    heard = Heard()
    await page.respond(text, heard)
    return heard


async def test_answers_at_the_same_time_are_those_that_each_page_gets_alone(pages: Pages) -> None:
    alone = [(await ask(pages.new(), question)).text for question in ("One", "Two")]
    first, second = pages.new(), pages.new()
    heard = await asyncio.gather(ask(first, "One"), ask(second, "Two"))
    assert [one.text for one in heard] == alone
    # Each goes on with what it said itself.
    third = pages.new()
    await ask(third, "One")
    assert (await ask(first, "More")).text == (await ask(third, "More")).text


async def test_both_answers_advance_before_one_of_them_is_complete(pages: Pages) -> None:
    first, second = Heard(), Heard()
    running = [asyncio.create_task(page.respond("Hello", heard)) for page, heard in zip(
        (pages.new(), pages.new()), (first, second), strict=True
    )]  # fmt: skip
    await first.has_begun.wait()
    await second.has_begun.wait()
    assert not any(task.done() for task in running)
    await asyncio.gather(*running)


async def test_stop_ends_the_answer_of_its_own_page_alone(pages: Pages) -> None:
    stopping, other = pages.new(), pages.new()
    alone = (await ask(pages.new(), "Hello")).text
    heard, kept = Heard(), Heard()
    running = [
        asyncio.create_task(stopping.respond("Stop this", heard)),
        asyncio.create_task(other.respond("Hello", kept)),
    ]
    await heard.has_begun.wait()
    stopping.stop()
    await asyncio.gather(*running)
    assert heard.value("done")["reason"] == "stopped"
    assert (kept.text, kept.value("done")["reason"]) == (alone, "length")


async def test_a_new_chat_of_one_page_leaves_the_others_as_they_are(pages: Pages) -> None:
    first, second = pages.new(), pages.new()
    await ask(first, "One")
    await ask(second, "One")
    await first.new_chat()
    assert (first.talk().turns, len(second.talk().turns)) == ([], 2)


async def test_a_conversation_in_two_pages_is_one_and_nothing_that_is_said_is_lost(pages: Pages) -> None:
    first, second = pages.new(), pages.new()
    stored = (await ask(first, "One")).value("stored")["chat"]
    turns = json.loads(await second.resume(stored))["value"]
    assert turns[0]["content"] == "One"
    await ask(second, "Two")
    told = (await ask(first, "Three")).value("stored")
    assert (told["chat"], told["turns"]) == (stored, 6)  # it follows what was said in the other
    await asyncio.gather(ask(first, "Four"), ask(second, "Five"))  # both at once: variants, the newest is shown
    memory = pages.runtime.memory
    assert memory is not None
    session = await memory.sessions.get(stored)
    assert session is not None
    assert session.turns == 10


async def test_a_page_that_goes_away_gives_back_its_sequences_and_its_answer_ends(pages: Pages) -> None:
    engine = pages.model.engine
    staying = pages.new()
    alone = (await ask(staying, "Hello")).text
    await staying.new_chat()
    before = len(engine._sequences)
    for _ in range(3):
        going, heard = pages.new(), Heard()
        answering = asyncio.create_task(going.respond("Hello", heard))
        await heard.has_begun.wait()
        await going.close()
        await answering
        assert heard.value("done")["reason"] == "stopped"
        assert len(engine._sequences) == before
    assert (await ask(staying, "Hello")).text == alone


async def test_each_page_answers_with_the_adapter_that_it_chose(pages: Pages) -> None:
    one = dataclasses.replace(drawn(pages.model.graph, 1, rank=4), name="one")
    plain, changed = pages.new(), pages.new()
    alone = (await ask(pages.new(), "Hello")).text
    await changed.talk().assistant.use_adapter(one)
    with_adapter, without = await asyncio.gather(ask(changed, "Hello"), ask(plain, "Hello"))
    assert (without.text, with_adapter.text != alone) == (alone, True)


async def test_what_is_learned_in_pauses_answers_on_every_page_and_a_shared_choice_is_joined_once(pages: Pages) -> None:
    graph = pages.model.graph
    learned: LoraAdapter = dataclasses.replace(drawn(graph, 1, rank=4), name="learned")
    chosen = dataclasses.replace(drawn(graph, 2, rank=4), name="chosen")
    first, second = pages.new(), pages.new()
    alone = (await ask(first, "Hello")).text
    for page in (first, second):
        await page.talk().assistant.use_adapter(pages.adapters.opened("chosen") or chosen)
        await page.new_chat()
    await pages.adapters.use_learned(learned)
    heard = await asyncio.gather(ask(first, "Hello"), ask(second, "Hello"))
    assert heard[0].text == heard[1].text != alone
    assert [one.value("done")["reason"] for one in heard] == ["length", "length"]


async def test_an_adapter_that_is_deleted_ends_the_answers_that_it_gives_and_no_others(pages: Pages) -> None:
    one = dataclasses.replace(drawn(pages.model.graph, 1, rank=4), name="one")
    plain, changed = pages.new(), pages.new()
    await changed.talk().assistant.use_adapter(one)
    heard, kept = Heard(), Heard()
    running = [asyncio.create_task(changed.respond("Hello", heard)), asyncio.create_task(plain.respond("Hello", kept))]
    await heard.has_begun.wait()
    for page in (plain, changed):
        page.leave_adapter("one")
    await pages.adapters.forget("one")
    await asyncio.gather(*running)
    assert (heard.value("done")["reason"], kept.value("done")["reason"]) == ("stopped", "length")


async def test_a_page_that_asks_before_there_is_a_model_is_told_so(runtime: Runtime) -> None:
    def nothing() -> Assistant:
        raise BackendError("The model is not loaded yet.")

    page = PageSession(runtime, nothing)
    assert (await ask(page, "Hello"))[-1]["message"]["text"] == "The model is not loaded yet."
    await page.close()
