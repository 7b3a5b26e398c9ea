"""Answers that are computed in a conversation, with the real memory, embedder, router and gate, and a tiny model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.chat.conversation import Conversation
from app.chat.exact_answers import EXACT_POLICY
from app.chat.turn_events import stored_turns
from app.generation.assistant import Assistant
from app.memory.policy_words import told_policies
from app.page.conversation import TalkApi
from app.page.talk import PageTalk
from app.protocol import Computation, Delta, Done, Event, Route, Stored
from app.routing.factory import RouterParts
from app.runtime import Runtime
from py_core.loading import Model
from tests.cli.command_line import printed, sonata

OpenModel = Callable[..., Awaitable[Model]]
SUM, RESULT = "What is 17 * 23?", "17 × 23 = 391"


@pytest.fixture
async def model(tiny_path: Path, open_model: OpenModel) -> Model:
    return await open_model(tiny_path)


@pytest.fixture
def router(parts: RouterParts) -> RouterParts:
    return parts


@pytest.fixture
def learner(model: Model) -> Model:
    return model


@pytest.fixture
def conversation(model: Model, runtime: Runtime) -> Conversation:
    return Conversation(Assistant(model, max_tokens=8), runtime)


async def all_of(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


async def test_a_sum_is_computed_and_neither_router_nor_model_is_asked(conversation: Conversation) -> None:
    events = await all_of(conversation.respond(SUM))
    assert [type(event) for event in events] == [Computation, Delta, Done, Stored]
    computed, delta, done, stored = events
    assert computed == Computation("arithmetic", RESULT, "Computed exactly, without rounding.")
    assert delta.text == done.text == stored.answer == RESULT
    assert done.reason == "end"
    assert done.new_tokens == 0
    assert stored.request == ""  # no model made it, so there is nothing to judge


async def test_a_stored_answer_knows_that_it_was_computed(conversation: Conversation, runtime: Runtime) -> None:
    told = await all_of(conversation.respond(SUM))
    stored = told[-1]
    branches = await runtime.memory.sessions.branches(stored.chat)
    question, answer = stored_turns(stored.chat, branches)
    assert (question.content, question.events) == (SUM, ())
    assert answer.events == (*told[:-2], Done("end"), replace(stored, answer=""))  # as it was stated


async def test_the_model_reads_a_computed_answer_as_its_own(model: Model, conversation: Conversation) -> None:
    *_, stored = await all_of(conversation.respond(SUM))
    await all_of(conversation.respond("double that"))
    read = model.tokenizer.decode(conversation.assistant.sequence.tokens)
    assert SUM in read
    assert RESULT in read
    conversation.reset()
    await conversation.resume(stored.chat)
    await all_of(conversation.respond("now halve it"))
    assert RESULT in model.tokenizer.decode(conversation.assistant.sequence.tokens)


async def test_try_again_asks_the_model(conversation: Conversation, runtime: Runtime) -> None:
    await all_of(conversation.respond(SUM))
    events = await all_of(conversation.retry())
    assert not any(isinstance(event, Computation) for event in events)
    stored = events[-1]
    assert isinstance(stored, Stored)
    assert stored.request
    answer = stored_turns(stored.chat, await runtime.memory.sessions.branches(stored.chat))[-1]
    assert not any(isinstance(event, Computation) for event in answer.events)
    assert answer.events[-1] == replace(stored, answer="")
    assert len(answer.siblings) == 2


async def test_an_edited_message_is_computed_in_its_place(conversation: Conversation, model: Model) -> None:
    await all_of(conversation.respond("hello"))
    await all_of(conversation.respond(SUM))
    events = await all_of(conversation.respond("6 * 7", after=1))
    assert isinstance(events[0], Computation)
    assert [turn.content for turn in conversation.turns][-2:] == ["6 * 7", "6 × 7 = 42"]
    await all_of(conversation.respond("and now?"))
    assert SUM not in model.tokenizer.decode(conversation.assistant.sequence.tokens)


async def test_a_switch_turns_the_tools_off(conversation: Conversation, runtime: Runtime) -> None:
    await runtime.memory.policies.edit(EXACT_POLICY, False)
    events = await all_of(conversation.respond(SUM))
    assert isinstance(events[0], Route)
    assert not any(isinstance(event, Computation) for event in events)
    (words,) = [words for policy, words in told_policies(runtime.memory) if policy.name == EXACT_POLICY]
    assert (str(words.title), str(words.value), words.can_edit) == ("Exact answers", "off", True)
    await runtime.memory.policies.edit(EXACT_POLICY, True)
    assert isinstance((await all_of(conversation.respond(SUM)))[0], Computation)


async def test_a_table_is_computed_as_soon_as_it_is_attached(conversation: Conversation, runtime: Runtime) -> None:
    table = b"\xef\xbb\xbfregion;amount\r\nEast;1.234,50\r\nWest;2,25\r\nEast;0,50\r\n"
    file = await runtime.files.attach(None, "sales.csv", "text/csv", table)
    assert not any(isinstance(event, Computation) for event in await all_of(conversation.respond("total of East")))
    await conversation.resume(file.session)
    events = await all_of(conversation.respond("What is the total of East?"))
    assert [type(event) for event in events] == [Computation, Delta, Done, Stored]
    assert events[1].text == "The sum of amount is 1,235 (2 of 3 rows: region = “East”)."
    assert isinstance((await all_of(conversation.respond(SUM)))[0], Computation)
    events = await all_of(conversation.respond("Why is East so low?"))
    assert not any(isinstance(event, Computation) for event in events)
    await runtime.files.detach(file.id)
    assert not any(isinstance(event, Computation) for event in await all_of(conversation.respond("total of East")))


async def test_the_page_is_told_of_the_tool(model: Model) -> None:
    api = TalkApi(PageTalk(Runtime(), lambda: Assistant(model)))
    events = await all_of(api.respond("5 miles in km"))
    assert [type(event) for event in events] == [Computation, Delta, Done]
    assert events[0].kind == "unit"


def test_the_tools_are_not_imported_before_a_message_needs_them() -> None:
    code = (
        "import sys, app.chat.conversation, app.page.session; from app.chat.exact_answers import exact_answer; "
        "from app.runtime import Runtime; s = Runtime(); "
        "before = [m for m in sys.modules if m.startswith('py_core.tools')]; "
        "exact_answer(s, 'tell me about owls'); "
        "assert before == [], before; assert 'py_core.tools.toolbox' not in sys.modules; "
        "assert exact_answer(s, '6*7').value == '42'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_line_computes() -> None:
    assert printed(sonata("compute", "17*23")) == f"{RESULT}\nComputed exactly, without rounding.\n"
    refused = sonata("compute", "tell me about owls")
    assert refused.returncode == 1
    assert refused.stderr == "No exact tool recognises what to compute here. In a chat the model answers this.\n"
