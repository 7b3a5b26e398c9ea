"""A chat with adapters: a change between two messages keeps the conversation, and the memory records the adapter of
each answer."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.chat.conversation import Conversation
from app.generation.assistant import Assistant
from app.memory.api import MemoryApi
from app.protocol import Delta, Done
from app.runtime import Runtime, RuntimeConfig
from py_core.adapters.lora import AdapterError, LoraAdapter
from py_core.backends.checks import MAX_ADAPTERS
from py_core.loading import Model
from py_core.sampling import SamplingParams
from py_core.store.sqlite import SQLiteRows
from tests.tiny.adapters import drawn

OpenModel = Callable[..., Awaitable[Model]]


@pytest.fixture
async def model(tiny_path: Path, open_model: OpenModel) -> Model:
    """A TinyLlama that never ends by itself."""
    return await open_model(tiny_path, end_tokens=())


@pytest.fixture
async def adapters(model: Model) -> list[LoraAdapter]:
    """One adapter more than the backend has room for."""
    return [drawn(model.graph, seed, rank=4) for seed in range(MAX_ADAPTERS + 1)]


def new_assistant(model: Model) -> Assistant:
    return Assistant(model, SamplingParams(), max_tokens=12)


async def ask(assistant: Assistant, text: str) -> tuple[str, Done]:
    events = [event async for event in assistant.respond(text)]
    assert isinstance(events[-1], Done)
    return "".join(event.text for event in events if isinstance(event, Delta)), events[-1]


async def test_a_change_of_adapter_counts_from_the_next_message_and_keeps_the_conversation(
    model: Model, adapters: list[LoraAdapter]
) -> None:
    changing, plain, changed = new_assistant(model), new_assistant(model), new_assistant(model)
    one = adapters[0]
    await changed.use_adapter(one)
    first, done = await ask(changing, "One")
    assert (first, done.adapter) == ((await ask(plain, "One"))[0], "")
    await changing.use_adapter(one)
    second, done = await ask(changing, "Two")
    assert done.adapter == one.name
    assert done.prompt_tokens == (await ask(plain, "Two"))[1].prompt_tokens  # it reads the whole conversation
    changed.reset(changing.messages[:2])
    assert (await ask(changed, "Two"))[0] == second
    plain.reset(changing.messages[:2])
    assert (await ask(plain, "Two"))[0] != second
    await changing.use_adapter(None)
    plain.reset(changing.messages)
    third, done = await ask(changing, "Three")
    assert (third, done.adapter) == ((await ask(plain, "Three"))[0], "")


async def test_a_chosen_adapter_without_room_for_the_learned_one_says_that_it_leaves_it_out(model: Model) -> None:
    assistant, learned = new_assistant(model), drawn(model.graph, 1, rank=8)
    large, small = drawn(model.graph, 2, rank=16), drawn(model.graph, 3, rank=8)
    await assistant.adapters.use_learned(learned)
    await assistant.use_adapter(small)
    assert assistant.leaves_out == ""
    await assistant.use_adapter(large)
    assert large.name in str(assistant.leaves_out)
    assert "too large to be used together with what was trained in pauses" in str(assistant.leaves_out)
    await assistant.use_adapter(None)
    assert assistant.leaves_out == ""
    await assistant.use_adapter(large)
    await assistant.adapters.use_learned(None)
    assert assistant.leaves_out == ""


async def test_an_adapter_that_is_deleted_ends_its_answer_and_answers_no_more(
    model: Model, adapters: list[LoraAdapter]
) -> None:
    assistant, one = new_assistant(model), adapters[0]
    await assistant.use_adapter(one)
    begun = asyncio.Event()

    async def answer() -> Done:
        events = []
        async for event in assistant.respond("Hello"):
            events.append(event)
            begun.set()
        return events[-1]

    answering = asyncio.create_task(answer())
    await begun.wait()
    assistant.leave_adapter(one.name)
    await assistant.adapters.forget(one.name)
    done = await answering
    assert done.reason == "stopped"
    assert done.new_tokens < 12
    assert (assistant.adapter, assistant.adapters.find(one.name)) == (None, None)
    assert (await ask(assistant, "Again"))[1].adapter == ""


async def test_more_adapters_than_there_is_room_for_take_turns(model: Model, adapters: list[LoraAdapter]) -> None:
    assistant = new_assistant(model)
    said = []
    for adapter in [*adapters, adapters[0]]:
        await assistant.use_adapter(adapter)
        assistant.reset()
        said.append((await ask(assistant, "Hello"))[0])
    assert said[-1] == said[0]
    assert len(set(said)) == len(adapters)
    there = [adapter.name for adapter in adapters if assistant.adapters.find(adapter.name)]
    assert there == [adapter.name for adapter in (adapters[0], *adapters[2:])]
    # The conversation's own adapter stays, however many others were chosen since.
    for adapter in adapters[1:]:
        await assistant.use_adapter(adapter)
    assert assistant.adapters.find(adapters[0].name)
    # Another adapter of the same name replaces it.
    other = dataclasses.replace(adapters[1], name=adapters[0].name)
    await assistant.use_adapter(other)
    assistant.reset()
    assert (await ask(assistant, "Hello"))[0] == said[1]


async def test_an_adapter_that_does_not_fit_leaves_the_one_before(model: Model, adapters: list[LoraAdapter]) -> None:
    assistant = new_assistant(model)
    await assistant.use_adapter(adapters[0])
    with pytest.raises(AdapterError, match="made for another model"):
        await assistant.use_adapter(LoraAdapter("odd", {"blk.9.attn_q.weight": next(iter(adapters[0].pairs.values()))}))
    assert (await ask(assistant, "Hello"))[1].adapter == adapters[0].name


async def test_log_and_messages_say_which_adapter_answered(
    model: Model, adapters: list[LoraAdapter], tmp_path: Path
) -> None:
    runtime = await Runtime.open(RuntimeConfig(lambda: SQLiteRows.open(tmp_path / "memory.sqlite")))
    assistant = new_assistant(model)
    conversation = Conversation(assistant, runtime)
    await assistant.use_adapter(adapters[0])
    assert [event async for event in conversation.respond("Hello")]
    await assistant.use_adapter(None)
    assert [event async for event in conversation.respond("And now?")]
    log = (await MemoryApi(runtime).log())["items"]
    assert [(entry["text"], entry["adapter"]) for entry in log] == [("And now?", None), ("Hello", adapters[0].name)]
    assert [turn.details.get("adapter") for turn in conversation.turns] == [None, adapters[0].name, None, None]
    await assistant.use_adapter(adapters[1])
    assert [event async for event in conversation.retry()]
    await assistant.use_adapter(None)
    assert [event async for event in conversation.retry()]
    assert "adapter" not in conversation.turns[-1].details  # that of the previous answer was deleted with it
    await runtime.close()
