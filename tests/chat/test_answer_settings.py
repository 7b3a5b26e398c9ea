"""The user's settings of answers: stored as policies, followed by the next answer, refused if they make no sense."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.chat.conversation import Conversation
from app.generation.answer_settings import (
    LARGE,
    PRESETS,
    AnswerSettings,
    answer_settings,
    kept_from_loops,
    sampling_of,
)
from app.generation.assistant import Assistant
from app.memory.api import MemoryApi
from app.protocol import Done
from app.runtime import Runtime
from py_core.loading import Model
from py_core.sampling import SamplingParams
from py_core.store.errors import StoreError

OpenModel = Callable[..., Awaitable[Model]]


@pytest.fixture
async def conversation(tiny_path: Path, open_model: OpenModel, runtime: Runtime) -> Conversation:
    model = await open_model(tiny_path, end_tokens=())
    return Conversation(Assistant(model, max_tokens=6), runtime)


async def ask(conversation: Conversation, text: str) -> Done:
    (done,) = [event async for event in conversation.respond(text) if isinstance(event, Done)]
    return done


def prompt_of(conversation: Conversation) -> str:
    assistant = conversation.assistant
    return assistant.model.tokenizer.decode(assistant.sequence.tokens)


async def test_instructions_are_in_the_prompt_from_the_next_message_on(
    conversation: Conversation, runtime: Runtime
) -> None:
    await ask(conversation, "Hello.")
    await MemoryApi(runtime).edit_policy("answers.instructions", "  Call me Zorbina. ")
    await ask(conversation, "And now?")
    assert prompt_of(conversation).count("Call me Zorbina.") == 1
    assert "Hello." in prompt_of(conversation)

    await MemoryApi(runtime).remove_policies(["answers.instructions"])
    await ask(conversation, "Again?")
    assert "Zorbina" not in prompt_of(conversation)


async def test_an_answer_is_as_long_as_was_chosen_at_most(conversation: Conversation, runtime: Runtime) -> None:
    assert (await ask(conversation, "Tell me more.")).new_tokens == 6
    await MemoryApi(runtime).edit_policy("answers.longest", 3)
    done = await ask(conversation, "Tell me more.")
    assert (done.reason, done.new_tokens) == ("length", 3)
    await MemoryApi(runtime).edit_policy("answers.longest", 1000)
    assert (await ask(conversation, "Tell me more.")).new_tokens == 6, "never more than the page allows"


async def test_tokens_are_drawn_as_was_chosen(conversation: Conversation, runtime: Runtime) -> None:
    greedy = (await ask(conversation, "Tell me a story.")).text
    conversation.reset()
    await MemoryApi(runtime).edit_policy("answers.sampling", '{"temperature": 50.0}')
    assert (await ask(conversation, "Tell me a story.")).text != greedy
    conversation.reset()
    await MemoryApi(runtime).edit_policy("answers.sampling", "agent")
    assert (await ask(conversation, "Tell me a story.")).text == greedy


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("answers.sampling", "wild", "Choose one of agent, precise, balanced, varied"),
        ("answers.sampling", '{"heat": 1}', "Choose one of"),
        ("answers.sampling", '{"temperature": -1}', "temperature is -1"),
        ("answers.sampling", '{"top_k": "x"}', "cannot be used"),
        ("answers.instructions", "x" * 4001, "Shorten them to 4,000"),
        ("answers.longest", 0, "1 or more"),
        ("answers.longest", True, "a number of tokens"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_a_sentence(
    runtime: Runtime, name: str, value: bool | int | str, why: str
) -> None:
    with pytest.raises(StoreError, match=why):
        await MemoryApi(runtime).edit_policy(name, value)
    assert runtime.memory.policies.look(name) is None


async def test_a_policy_that_cannot_be_read_stands_in_no_answers_way(runtime: Runtime) -> None:
    held = runtime.memory.policies
    for name, value in (("answers.sampling", "{"), ("answers.longest", "much"), ("answers.instructions", 3)):
        await held.set(name, value, confidence=1.0, source="user")
    assert answer_settings(held) == AnswerSettings()


def test_each_preset_has_a_name_and_a_part_of_the_fields_is_enough() -> None:
    assert [sampling_of(name) for name in PRESETS] == list(PRESETS.values())
    assert sampling_of('{"top_k": 3}') == SamplingParams(top_k=3)


def test_only_a_small_model_gets_a_penalty_that_nobody_asked_for() -> None:
    drawn = SamplingParams(temperature=0.5)
    assert kept_from_loops(drawn, LARGE - 1) == replace(drawn, frequency_penalty=0.2)
    assert kept_from_loops(drawn, LARGE) == drawn
    own = replace(drawn, repetition_penalty=1.1)
    assert kept_from_loops(own, LARGE - 1) == own
