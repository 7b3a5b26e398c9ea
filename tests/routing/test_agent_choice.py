"""The agent that answers in a chat, as the user chose: the real router and memory, and a tiny model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from app.chat.conversation import Conversation
from app.chat.turn_events import route_event
from app.cli.terminal_chat import _correct
from app.generation.assistant import Assistant
from app.lessons.feedback import Feedback
from app.memory.api import MemoryApi
from app.page.conversation import TalkApi
from app.page.talk import PageTalk
from app.protocol import Event, Route, Stored
from app.routing.agent_choice import AUTOMATIC, CHOICE, ROUTING_POLICY
from app.routing.factory import RouterParts
from app.runtime import Runtime
from py_core.loading import Model
from py_core.routing.agents import FALLBACK_ID, AgentError

CRASH = "why does my page crash when I scroll"
QUERY = "write a sql query that counts the orders of each month"

OpenModel = Callable[..., Awaitable[Model]]
OpenRuntime = Callable[[], Awaitable[Runtime]]


@pytest.fixture
async def model(tiny_path: Path, open_model: OpenModel) -> Model:
    return await open_model(tiny_path, end_tokens=())


@pytest.fixture
def router(parts: RouterParts) -> RouterParts:
    return parts


def begin(model: Model, runtime: Runtime) -> Conversation:
    return Conversation(Assistant(model, max_tokens=4), runtime)


async def answered(events: AsyncIterator[Event]) -> tuple[str, str, str]:
    """The agent that answers, why, and the id of the conversation."""
    routed = stored = None
    async for event in events:
        routed = event if isinstance(event, Route) else routed
        stored = event if isinstance(event, Stored) else stored
    assert routed is not None
    assert stored is not None
    return routed.agent, routed.reason, stored.chat


async def test_a_chosen_agent_answers_each_message_of_its_chat_also_after_a_reload(
    model: Model, open_runtime: OpenRuntime
) -> None:
    runtime = await open_runtime()
    talk = begin(model, runtime)
    talk.choose_agent("planner")
    *told, id = await answered(talk.respond(CRASH))  # stored with the first answer
    assert told == ["planner", "chat"]
    await runtime.close()

    again = await open_runtime()
    talk, api = begin(model, again), MemoryApi(again)
    await talk.resume(id)
    assert (await api.agent_choice(id))["agent"] == "planner"
    assert (await answered(talk.respond(QUERY)))[:2] == ("planner", "chat")
    assert (await answered(talk.respond("and of each year", after=1)))[:2] == ("planner", "chat")  # an edited message
    assert (await answered(talk.retry(agent="coder")))[:2] == ("coder", "chosen")  # requested for this message only
    await api.choose_agent(id, FALLBACK_ID)
    assert (await answered(talk.respond(QUERY)))[:2] == (FALLBACK_ID, "chat")
    await api.choose_agent(id, AUTOMATIC)
    assert (await answered(talk.respond(QUERY)))[:2] == ("coder", "examples")
    talk.reset()
    assert (await answered(talk.respond(CRASH)))[0] == "debugger"  # a new chat knows nothing of it


async def test_what_another_tab_chooses_while_an_answer_comes_stays(model: Model, open_runtime: OpenRuntime) -> None:
    runtime, other = await open_runtime(), await open_runtime()
    talk = begin(model, runtime)
    talk.choose_agent("coder")
    *_, id = await answered(talk.respond(CRASH))
    async for event in talk.respond(QUERY):
        if isinstance(event, Route):
            await MemoryApi(other).choose_agent(id, "tester")
    session = await runtime.memory.sessions.get(id)
    assert session is not None
    assert session.state[CHOICE] == "tester"
    assert (await answered(talk.respond(QUERY)))[0] == "tester"


async def test_a_chosen_agent_that_is_removed_answers_no_more_and_this_is_told(
    model: Model, open_runtime: OpenRuntime
) -> None:
    runtime, other = await open_runtime(), await open_runtime()
    talk, api = begin(model, runtime), MemoryApi(runtime)
    talk.choose_agent("planner")
    *_, id = await answered(talk.respond(CRASH))
    async for event in talk.respond(CRASH):
        if isinstance(event, Route):
            await MemoryApi(other).remove_agent("planner")
    assert len(talk.turns) == 4  # it has answered to the end
    assert (await answered(talk.respond(CRASH)))[0] == "debugger"
    choice = await api.agent_choice(id)
    assert (choice["agent"], choice["isLost"]) == (AUTOMATIC, True)
    with pytest.raises(AgentError, match="no longer exists"):
        await api.choose_agent(id, "planner")
    await runtime.memory.policies.edit(ROUTING_POLICY, False)
    assert (await api.agent_choice(id))["agent"] == FALLBACK_ID
    await MemoryApi(other).restore_agent("planner")
    assert (await answered(talk.respond(CRASH)))[0] == "planner"


@pytest.mark.parametrize("chosen", ["nobody-knows", ["coder"]])
async def test_what_an_import_says_of_it_stands_in_no_answers_way(
    model: Model, runtime: Runtime, chosen: object
) -> None:
    session = await runtime.memory.sessions.start("Imported", state={CHOICE: chosen})
    talk = begin(model, runtime)
    await talk.resume(session.id)
    assert (await answered(talk.respond(CRASH)))[0] == "debugger"
    assert (await MemoryApi(runtime).agent_choice(session.id))["isLost"]


async def test_where_messages_are_not_routed_the_plain_assistant_answers_unless_the_chat_says_otherwise(
    model: Model, runtime: Runtime
) -> None:
    await runtime.memory.policies.edit(ROUTING_POLICY, False)
    talk, api = begin(model, runtime), MemoryApi(runtime)
    assert (await api.agent_choice(None))["agent"] == FALLBACK_ID
    *told, id = await answered(talk.respond(CRASH))
    assert told == [FALLBACK_ID, "off"]
    assert (last := talk._routes.last_of(CRASH)) is not None
    assert "nothing to correct" in await _correct(runtime, [route_event(last)], "tester")  # in the terminal
    await api.choose_agent(id, AUTOMATIC)
    assert (await answered(talk.respond(CRASH)))[0] == "debugger"
    await runtime.memory.policies.edit(ROUTING_POLICY, True)
    talk.reset()
    assert (await answered(talk.respond(CRASH)))[0] == "debugger"
    assert (await api.agent_choice(None))["agent"] == AUTOMATIC


async def test_a_choice_teaches_the_router_nothing(model: Model, runtime: Runtime) -> None:
    talk, memory = begin(model, runtime), runtime.memory
    talk.choose_agent("planner")
    await answered(talk.respond(CRASH))
    await answered(talk.retry())
    answers = await memory.trajectories.all()
    assert len(answers) == 2
    for answer in answers:
        await Feedback(runtime).bad(answer.id)
    assert await memory.patterns.all() == []
    assert {entry["confidence"] for entry in (await MemoryApi(runtime).log())["items"]} == {None}


async def test_the_page_tells_its_choice_with_a_message_until_the_chat_is_stored(
    model: Model, runtime: Runtime
) -> None:
    api = TalkApi(PageTalk(runtime, lambda: Assistant(model, max_tokens=4)))
    assert (await answered(api.respond(CRASH, choice="planner")))[0] == "planner"
    (session,) = await runtime.memory.sessions.all()
    assert session.state == {"agent": "planner", CHOICE: "planner"}
    await answered(api.respond(CRASH, choice="coder"))  # sent before the page knew that it was stored
    assert (await runtime.memory.sessions.get(session.id)).state[CHOICE] == "planner"  # type: ignore[union-attr]


# ---- corrected routes ----


async def test_another_try_comes_from_the_agent_that_the_user_corrected_the_route_to_also_after_a_reload(
    model: Model, open_runtime: OpenRuntime
) -> None:
    runtime = await open_runtime()
    talk = begin(model, runtime)
    *_, id = await answered(talk.respond(CRASH))
    await answered(talk.respond(QUERY))
    pattern = (await MemoryApi(runtime).correct("", CRASH, "tester"))["pattern"]
    await runtime.close()

    again = await open_runtime()
    talk = begin(model, again)
    await talk.resume(id)
    assert (await answered(talk.retry(0)))[:2] == ("tester", "correction")
    assert [turn.details.get("agent") for turn in talk.turns] == [None, "tester"]
    events = [event async for event in talk.retry()]
    assert [event.agent for event in events if isinstance(event, Route)] == ["tester"]
    assert (await answered(talk.retry(agent="planner")))[:2] == ("planner", "chosen")
    assert (await MemoryApi(again).correct("", CRASH, "coder"))["pattern"] == pattern
    await MemoryApi(again).remove_patterns([pattern])
    async for _ in talk.retry():
        pass
    assert talk.turns[-1].details["agent"] == "planner"  # the correction was taken back


async def test_a_correction_elsewhere_does_not_change_who_answers_again_in_a_chat_with_its_own_agent(
    model: Model, runtime: Runtime
) -> None:
    talk = begin(model, runtime)
    talk.choose_agent("planner")
    await answered(talk.respond(CRASH))
    await MemoryApi(runtime).correct("", CRASH, "tester")
    events = [event async for event in talk.retry()]
    assert [event.agent for event in events if isinstance(event, Route)] == ["planner"]
