"""Titles that the model makes of a conversation, in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.chat import titles
from app.chat.conversation import Conversation
from app.chat.titles import make_title, title_from
from app.generation.assistant import Assistant
from app.records.sessions import Session
from app.runtime import Runtime
from py_core.loading import Model
from py_core.sampling import SamplingParams
from tests.runtime import begin_conversation

OpenModel = Callable[..., Awaitable[Model]]
ASKED = "How do I keep basil alive on a windowsill?"


@pytest.mark.parametrize(
    ("said", "ended", "title"),
    [
        (" How to keep basil alive", True, "How to keep basil alive"),
        (' "Basil on the windowsill"\n\nThis title', False, "Basil on the windowsill"),
        (" Keeping basil: a guide to the art of", False, "Keeping basil"),
        (" basil. It is a herb that needs light and", False, "Basil"),
        (" How to keep basil alive on a windowsill and all the", False, ""),  # it goes on
        (" How to make a candle with wax", True, ""),  # of an empty conversation
        (" You write a short title for each message", True, ""),
        (" Basil " + "and windowsill " * 5, True, ""),  # too long
        ("", True, ""),
        (" ...", True, ""),
    ],
)
def test_a_title_is_short_and_of_what_was_said(said: str, ended: bool, title: str) -> None:
    assert title_from(said, ended, ASKED) == title


def test_a_title_may_be_in_any_script() -> None:
    assert title_from(" 今天天气", True, "今天的天气怎么样") == "今天天气"
    assert title_from(" ein Brot backen", True, "Wie backe ich ein Brot?") == "Ein Brot backen"
    assert title_from(" 猫猫狗狗", True, "今天的天气怎么样") == ""


@pytest.fixture
async def model(tiny_path: Path, open_model: OpenModel) -> Model:
    return await open_model(tiny_path, context=2048, end_tokens=())


def begin(model: Model, runtime: Runtime) -> Conversation:
    return begin_conversation(Assistant(model, SamplingParams(), max_tokens=6), runtime)


async def ask(conversation: Conversation, text: str) -> None:
    async for _ in conversation.respond(text):
        pass


async def only_session(runtime: Runtime) -> Session:
    await runtime.memory.background.settled()
    (session,) = await runtime.memory.sessions.all()
    return session


@pytest.fixture
def any_title(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model's titles are noise: accept them."""
    monkeypatch.setattr(titles, "title_from", lambda said, ended, conversation: "A title")


@pytest.mark.usefixtures("any_title")
async def test_a_conversation_gets_a_title_after_its_first_answer(model: Model, runtime: Runtime) -> None:
    conversation = begin(model, runtime)
    await ask(conversation, ASKED)
    session = await only_session(runtime)
    assert (session.title, session.titled) == ("A title", "model")
    assert len(conversation.assistant.messages) == 2  # the conversation itself knows nothing of it


@pytest.mark.usefixtures("any_title")
async def test_a_title_of_the_user_stays(model: Model, runtime: Runtime) -> None:
    conversation = begin(model, runtime)
    with model.engine.idle_held():
        await ask(conversation, ASKED)
        (session,) = await runtime.memory.sessions.all()
        await runtime.memory.sessions.edit(session.id, title="Mine", titled="user")  # before the model's title exists
    assert (await only_session(runtime)).title == "Mine"
    await ask(conversation, "And in winter?")
    assert (await only_session(runtime)).title == "Mine"


async def test_without_a_good_title_the_first_words_stay(model: Model, runtime: Runtime) -> None:
    await ask(begin(model, runtime), ASKED)
    session = await only_session(runtime)
    assert (session.title, session.titled) == (ASKED, "")


@pytest.mark.usefixtures("any_title")
async def test_the_next_message_ends_a_title_that_is_being_made(model: Model, runtime: Runtime) -> None:
    """Then it is made after the next answer."""
    conversation = begin(model, runtime)
    await ask(conversation, ASKED)
    task = conversation._titles._task
    assert task is not None
    assert not task.done()
    events = conversation.respond("And in winter?")
    await anext(events)
    assert task.cancelled()
    async for _ in events:
        pass
    assert (await only_session(runtime)).titled == "model"


async def test_a_title_leaves_nothing_behind_in_the_engine(model: Model) -> None:
    before = len(model.engine._sequences)
    making = asyncio.ensure_future(make_title(model, ASKED, "Give it light."))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(model.engine._sequences) == before + 1
    making.cancel()
    await asyncio.wait([making])
    assert len(model.engine._sequences) == before
    await make_title(model, ASKED, "Give it light.")
    assert len(model.engine._sequences) == before
