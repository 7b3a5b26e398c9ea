"""Several pages use one model: each has its own conversation, and answers run at the same time."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from app.generation.answer_adapters import AnswerAdapters
from app.generation.answer_settings import CALLS_POLICY, PYTHON_POLICY
from app.generation.assistant import Assistant
from app.page.session import PageSession
from app.runtime import Runtime, RuntimeConfig
from py_core.adapters.lora import LoraAdapter
from py_core.backend_errors import BackendError
from py_core.loading import Model
from py_core.sampling import SamplingParams
from py_core.store.volatile import VolatileRows
from tests.tiny.adapters import drawn

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
        self.sessions = list[PageSession]()

    def new(self) -> PageSession:
        page = PageSession(self.runtime, lambda: Assistant(self.model, SamplingParams(), LONG, self.adapters), self)
        self.sessions.append(page)
        return page

    async def forget_adapter(self, name: str) -> None:
        for page in self.sessions:
            page.talk.leave_adapter(name)
        await self.adapters.forget(name)


@pytest.fixture
def pages(model: Model, runtime: Runtime) -> Pages:
    return Pages(model, runtime)


class Heard(list[dict[str, Any]]):
    """The events of one answer."""

    def __init__(self, listens: bool = True) -> None:
        self.has_begun, self.listens = asyncio.Event(), listens

    def __call__(self, event: str) -> bool:
        self.append(json.loads(event))
        if self[-1]["type"] == "delta":
            self.has_begun.set()
        return self.listens

    async def answer_of(self, page: PageSession, text: str) -> None:
        assert await page.stream("conversation", "respond", json.dumps({"text": text}), self) == '{"value": null}'

    @property
    def text(self) -> str:
        return "".join(event["text"] for event in self if event["type"] == "delta")

    def value(self, kind: str) -> Any:
        return next(event for event in self if event["type"] == kind)


async def ask(page: PageSession, text: str) -> Heard:
    heard = Heard()
    await heard.answer_of(page, text)
    return heard


async def test_answers_at_the_same_time_are_those_that_each_page_gets_alone(pages: Pages) -> None:
    alone = [(await ask(pages.new(), question)).text for question in ("One", "Two")]
    first, second = pages.new(), pages.new()
    heard = await asyncio.gather(ask(first, "One"), ask(second, "Two"))
    assert [one.text for one in heard] == alone
    # Each continues its own conversation.
    third = pages.new()
    await ask(third, "One")
    assert (await ask(first, "More")).text == (await ask(third, "More")).text


async def test_both_answers_advance_before_one_of_them_is_complete(pages: Pages) -> None:
    first, second = Heard(), Heard()
    running = [asyncio.create_task(heard.answer_of(page, "Hello")) for page, heard in zip(
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
        asyncio.create_task(heard.answer_of(stopping, "Stop this")),
        asyncio.create_task(kept.answer_of(other, "Hello")),
    ]
    await heard.has_begun.wait()
    stopping.apis.conversation.stop()
    await asyncio.gather(*running)
    assert heard.value("done")["reason"] == "stopped"
    assert (kept.text, kept.value("done")["reason"]) == (alone, "length")


async def test_a_new_chat_of_one_page_leaves_the_others_as_they_are(pages: Pages) -> None:
    first, second = pages.new(), pages.new()
    await ask(first, "One")
    await ask(second, "One")
    await first.apis.conversation.begin()
    assert (first.talk.conversation().turns, len(second.talk.conversation().turns)) == ([], 2)


async def test_a_conversation_in_two_pages_is_one_and_nothing_that_is_said_is_lost(pages: Pages) -> None:
    first, second = pages.new(), pages.new()
    stored = (await ask(first, "One")).value("stored")["chat"]
    turns = await second.apis.conversation.resume(stored)
    assert turns[0].content == "One"
    await ask(second, "Two")
    told = (await ask(first, "Three")).value("stored")
    assert (told["chat"], told["turns"]) == (stored, 6)  # it follows the messages in the other
    await asyncio.gather(
        ask(first, "Four"), ask(second, "Five")
    )  # both at once: they become variants, and the newest is shown
    memory = pages.runtime.memory
    assert memory is not None
    session = await memory.sessions.get(stored)
    assert session is not None
    assert session.turns == 10


async def test_a_page_that_goes_away_gives_back_its_sequences_and_its_answer_ends(pages: Pages) -> None:
    engine = pages.model.engine
    staying = pages.new()
    alone = (await ask(staying, "Hello")).text
    await staying.apis.conversation.begin()
    before = len(engine._sequences)
    for _ in range(3):
        going, heard = pages.new(), Heard()
        answering = asyncio.create_task(heard.answer_of(going, "Hello"))
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
    await changed.talk.conversation().assistant.use_adapter(one)
    with_adapter, without = await asyncio.gather(ask(changed, "Hello"), ask(plain, "Hello"))
    assert (without.text, with_adapter.text != alone) == (alone, True)


async def test_what_is_learned_in_pauses_answers_on_every_page_and_a_shared_choice_is_joined_once(pages: Pages) -> None:
    graph = pages.model.graph
    learned: LoraAdapter = dataclasses.replace(drawn(graph, 1, rank=4), name="learned")
    chosen = dataclasses.replace(drawn(graph, 2, rank=4), name="chosen")
    first, second = pages.new(), pages.new()
    alone = (await ask(first, "Hello")).text
    for page in (first, second):
        await page.talk.conversation().assistant.use_adapter(pages.adapters.opened("chosen") or chosen)
        await page.apis.conversation.begin()
    await pages.adapters.use_learned(learned)
    heard = await asyncio.gather(ask(first, "Hello"), ask(second, "Hello"))
    assert heard[0].text == heard[1].text != alone
    assert [one.value("done")["reason"] for one in heard] == ["length", "length"]


async def test_an_adapter_that_is_deleted_ends_the_answers_that_it_gives_and_no_others(pages: Pages) -> None:
    one = dataclasses.replace(drawn(pages.model.graph, 1, rank=4), name="one")
    plain, changed = pages.new(), pages.new()
    await changed.talk.conversation().assistant.use_adapter(one)
    heard, kept = Heard(), Heard()
    running = [
        asyncio.create_task(heard.answer_of(changed, "Hello")),
        asyncio.create_task(kept.answer_of(plain, "Hello")),
    ]
    await heard.has_begun.wait()
    await plain.apis.model.forget_adapter("one")
    await asyncio.gather(*running)
    assert (heard.value("done")["reason"], kept.value("done")["reason"]) == ("stopped", "length")


async def test_a_page_that_asks_before_there_is_a_model_is_told_so(runtime: Runtime) -> None:
    def nothing() -> Assistant:
        raise BackendError("The model is not loaded yet.")

    page = PageSession(runtime, nothing, None)
    assert (await ask(page, "Hello"))[-1]["message"]["text"] == "The model is not loaded yet."
    await page.close()


async def test_a_page_that_leaves_an_answer_stops_it(pages: Pages) -> None:
    page, heard = pages.new(), Heard(listens=False)
    await heard.answer_of(page, "Hello")
    assert "done" not in {event["type"] for event in heard}
    assert not page.talk.asked


class Asked(list[dict[str, Any]]):
    """The calls that a page is asked to run. answer: what it says to each at once; None for nothing."""

    def __init__(self, page: PageSession, answer: str | None) -> None:
        self.page, self.says, self.one = page, answer, asyncio.Event()
        self.listening = asyncio.create_task(page.stream("tools", "asks", "{}", self))

    def __call__(self, told: str) -> bool:
        self.append(json.loads(told))
        self.one.set()
        if self.says is not None:
            self.page.apis.tools.answer(self[-1]["id"], self.says, self.says.startswith("No"))
        return True


async def with_tools(pages: Pages, answer: str | None) -> tuple[PageSession, Asked]:
    """A page that runs a tool."""
    await pages.runtime.memory.policies.edit(CALLS_POLICY, True)
    page = pages.new()
    asked = Asked(page, answer)
    await asyncio.sleep(0)
    page.apis.tools.offer("echo", [{"name": "echo", "parameters": {"type": "object"}}])
    return page, asked


async def called(page: PageSession) -> Any:
    return json.loads(await page._calls.call("conversation", "callTool", '{"name": "echo", "given": {"code": "1"}}'))


async def test_a_tool_of_a_page_is_run_by_that_page_and_its_result_is_cut(pages: Pages) -> None:
    (first, of_first), (second, of_second) = await with_tools(pages, "1" * 30_000), await with_tools(pages, "No.")
    result = (await called(first))["value"]
    assert result["result"].startswith("1" * 20_000 + "\n(The result is longer")
    assert not result["failed"]
    assert (await called(second))["value"] == {"result": "No.", "failed": True}
    assert [(one["source"], one["arguments"]) for one in of_first] == [("echo", {"code": "1"})]
    assert len(of_second) == 1
    second.apis.tools.offer("echo", [])
    assert (await called(second))["error"]["kind"] == "UserError"


async def test_a_call_ends_with_a_stop_and_with_the_page(pages: Pages) -> None:
    page, asked = await with_tools(pages, None)
    running = asyncio.create_task(called(page))
    await asked.one.wait()
    page.apis.conversation.stop()
    assert (await running)["value"] == {"result": "It was stopped.", "failed": True}
    await asyncio.sleep(0)
    assert [one["isOver"] for one in asked] == [False, True]
    asked.one.clear()
    running = asyncio.create_task(called(page))
    await asked.one.wait()
    page.talk.offered.close()
    assert (await running)["value"] == {"result": "The page that runs this tool is gone.", "failed": True}
    assert await asked.listening == '{"value": null}'
    assert (await called(page))["value"]["failed"]


async def test_python_is_a_tool_of_the_page_only_if_its_setting_is_on(pages: Pages) -> None:
    page, asked = await with_tools(pages, "42")
    call = '{"name": "python", "given": {"code": "6 * 7"}}'
    assert "UserError" in await page._calls.call("conversation", "callTool", call)
    await pages.runtime.memory.policies.edit(PYTHON_POLICY, True)
    assert json.loads(await page._calls.call("conversation", "callTool", call))["value"]["result"] == "42"
    assert [(one["source"], one["name"], one["arguments"]) for one in asked] == [
        ("python", "python", {"code": "6 * 7"})
    ]
    await pages.runtime.memory.policies.edit(CALLS_POLICY, False)
    assert "UserError" in await page._calls.call("conversation", "callTool", call)


async def asked_of_api(page: PageSession, heard: Heard, **body: Any) -> str:
    """Ask the API by the page's call; returns the whole body."""
    asked = json.dumps({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": LONG, **body})
    given = {"method": "POST", "path": "/v1/chat/completions", "body": asked}
    assert await page.stream("api", "request", json.dumps(given), heard) == '{"value": null}'
    return "".join(part["text"] for part in heard)


async def test_the_page_answers_requests_of_the_api_and_ends_those_that_nobody_waits_for(pages: Pages) -> None:
    class Parts(Heard):
        def __call__(self, part: str) -> bool:
            self.append(json.loads(part))
            return self.listens

    page, whole = pages.new(), Parts()
    answer = json.loads(await asked_of_api(page, whole))
    assert [part["status"] for part in whole if part["status"]] == [200]
    events = (await asked_of_api(page, Parts(), stream=True)).split("\n\n")
    deltas = [json.loads(event.removeprefix("data: "))["choices"][0]["delta"] for event in events[:-2]]
    assert "".join(delta.get("content", "") for delta in deltas) == answer["choices"][0]["message"]["content"]
    refused = Parts()
    assert "max_tokens" in await asked_of_api(page, refused, max_tokens=0)
    assert [part["status"] for part in refused] == [400]
    # One leaves while a whole answer is made, one page goes away in the middle of a stream.
    engine, left, gone = pages.model.engine, Parts(listens=False), pages.new()
    before = len(engine._sequences)
    await asked_of_api(page, left, max_tokens=2000, n=2)
    assert [part["status"] for part in left] == [None]
    answering = asyncio.create_task(asked_of_api(gone, Parts(), max_tokens=2000, stream=True))
    await asyncio.sleep(0.1)
    await gone.close()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert len(engine._sequences) == before
