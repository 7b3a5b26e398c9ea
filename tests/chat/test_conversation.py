"""A conversation that is routed and remembered, with the real embedder, router and SQLite, and a tiny model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.chat.conversation import Conversation
from app.generation.assistant import Assistant
from app.memory.api import MemoryApi
from app.protocol import Delta, Done, Route, Stored
from app.routing.agent_catalog import add_agent, remove_agent
from app.routing.factory import RouterParts
from app.routing.pattern_store import EMBEDDER_POLICY
from app.routing.service import Routed
from app.runtime import Runtime, RuntimeConfig
from py_core.backend_errors import ContextFullError
from py_core.loading import Model
from py_core.routing.agents import AgentError
from py_core.store.errors import StoreError
from py_core.store.sqlite import SQLiteRows
from tests.runtime import begin_conversation

CRASH = "why does my page crash when I scroll"
SIMILAR = "my page crashes whenever i scroll down, why?"
FAR = "write a sql query that counts the orders of each month"

OpenModel = Callable[..., Awaitable[Model]]
OpenRuntime = Callable[[], Awaitable[Runtime]]


@pytest.fixture
async def model(tiny_path: Path, open_model: OpenModel) -> Model:
    return await open_model(tiny_path)


@pytest.fixture
def router(parts: RouterParts) -> RouterParts:
    return parts


async def begin(model: Model, runtime: Runtime) -> Conversation:
    return begin_conversation(Assistant(model, max_tokens=8), runtime)


async def ask(conversation: Conversation, text: str) -> tuple[Routed, str, Done]:
    events = [event async for event in conversation.respond(text)]
    routed = events[0]
    (done,) = (event for event in events if isinstance(event, Done))
    assert isinstance(routed, Route)
    return routed, "".join(event.text for event in events if isinstance(event, Delta)), done


async def routed_to(runtime: Runtime, text: str) -> str:
    assert runtime.routing is not None
    return (await runtime.routing.route(text)).agent.id


async def test_a_message_goes_to_its_agent_who_answers_in_its_own_way(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    conversation = await begin(model, runtime)
    assert (await ask(conversation, CRASH))[0].agent == "debugger"
    assert (await ask(conversation, FAR))[0].agent == "coder"
    agents = runtime.routing.agents
    told = model.tokenizer.decode(conversation.assistant._sequence.tokens)
    assert f"{agents['debugger'].system_prompt}\n\n{CRASH}" in told
    assert f"{agents['coder'].system_prompt}\n\n{FAR}" in told


async def test_an_answer_is_no_longer_than_its_agent_allows(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    api = MemoryApi(runtime)
    await api.edit_agent("debugger", {"max_tokens": 3})
    _, _, done = await ask(await begin(model, runtime), CRASH)
    assert done.new_tokens <= 3


async def test_what_happened_is_recorded(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    conversation = await begin(model, runtime)
    routed, answer, _ = await ask(conversation, CRASH)
    second = await ask(conversation, SIMILAR)
    entries = await runtime.memory.log.entries()
    assert [entry.id for entry in entries] == [second[0].id, routed.id]
    assert set(entries[0].stages) == {"embed", "search", "decide", "prefill", "decode"}
    assert entries[0].agent == "debugger"
    (session,) = await runtime.memory.sessions.all()
    assert session.title == CRASH
    turns = await runtime.memory.sessions.path(session.id)
    assert [(turn.role, turn.content) for turn in turns[:2]] == [("user", CRASH), ("assistant", answer)]
    await runtime.memory.background.settled()  # both messages of both turns can be found by meaning now
    assert await runtime.memory.vectors.bare() == {}
    ((found, similarity),) = await runtime.memory.vectors.search(entries[1].vector, 4, 0.0)
    assert found.body["content"] == CRASH
    assert similarity > 0.99


async def test_a_failed_answer_is_recorded_with_its_error(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    conversation = await begin(model, runtime)
    with pytest.raises(ContextFullError):
        await ask(conversation, "why does it crash " * 200)
    (entry,) = await runtime.memory.log.entries()
    assert entry.error is not None
    assert "ContextFullError" in entry.error
    assert (await MemoryApi(runtime).log(filter="errors", search="tokens long"))["total"] == 1
    assert await runtime.memory.sessions.all() == []


async def test_a_correction_counts_for_similar_messages_at_once_and_after_a_restart(
    open_runtime: OpenRuntime,
) -> None:
    runtime = await open_runtime()
    assert runtime.routing is not None
    assert await routed_to(runtime, SIMILAR) == "debugger"
    routed = await runtime.routing.route(CRASH)
    await runtime.routing.correct(routed.id, CRASH, "tester")
    assert await routed_to(runtime, SIMILAR) == "tester"
    assert await routed_to(runtime, FAR) == "coder"
    await runtime.close()
    again = await open_runtime()
    assert await routed_to(again, SIMILAR) == "tester"
    assert await routed_to(again, FAR) == "coder"


async def test_judging_a_route_moves_the_weights_of_what_decided_it_by_a_twentieth(open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    assert runtime.routing is not None
    routed = await runtime.routing.route(CRASH)
    nearest = next(n for n in routed.decision.neighbours if n.agent == "debugger")
    weights = [runtime.routing.router.examples[nearest.pattern_id].weight]
    await runtime.routing.confirm(routed.id)
    weights.append(runtime.routing.router.examples[nearest.pattern_id].weight)
    await runtime.routing.correct(routed.id, CRASH, "tester")
    weights.append(runtime.routing.router.examples[nearest.pattern_id].weight)
    assert weights == pytest.approx([1, 1.05, 0.95])  # the second correction of a route replaces the first
    await runtime.routing.take_back(routed.id)
    assert runtime.routing.router.examples[nearest.pattern_id].weight == pytest.approx(1)
    await runtime.routing.correct(routed.id, CRASH, "tester")
    await runtime.close()
    again = await open_runtime()
    assert again.routing is not None
    assert again.routing.router.examples[nearest.pattern_id].weight == pytest.approx(weights[-1])
    await again.routing.forget([nearest.pattern_id])
    assert again.routing.router.examples[nearest.pattern_id].weight == 1


async def test_an_outcome_is_the_quality_of_the_log_entry(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    assert runtime.routing is not None
    conversation = await begin(model, runtime)
    right, wrong = (await ask(conversation, CRASH))[0], (await ask(conversation, FAR))[0]
    await runtime.routing.confirm(right.id)
    await runtime.routing.correct(wrong.id, wrong.text, "planner")
    qualities = {entry.id: entry.rating for entry in await runtime.memory.log.entries()}
    assert qualities == {right.id: 1.0, wrong.id: 0.0}
    assert [entry.id for entry in await runtime.memory.log.poor()] == [wrong.id]
    await runtime.routing.take_back(wrong.id)
    assert await runtime.memory.log.poor() == []


async def test_another_program_that_learns_is_followed(open_runtime: OpenRuntime) -> None:
    here, there = await open_runtime(), await open_runtime()
    assert there.routing is not None
    pattern = await there.routing.correct("", CRASH, "tester")
    assert await routed_to(here, SIMILAR) == "tester"
    await there.routing.forget([pattern])
    assert await routed_to(here, SIMILAR) == "debugger"


async def test_agents_are_added_and_removed(open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    assert runtime.routing is not None
    cook = {
        "id": "cook", "title": "Cook", "definition": "Cooks.", "system_prompt": "You cook.",
        "examples": ["what can i make of carrots and rice", "a soup for six people", "how long do i boil an egg"],
    }  # fmt: skip
    await runtime.routing.change_agents(lambda shipped, changes: add_agent(shipped, changes, cook))
    assert await routed_to(runtime, "how long should i boil eggs") == "cook"
    await runtime.routing.change_agents(lambda shipped, changes: remove_agent(shipped, changes, "debugger"))
    assert await routed_to(runtime, CRASH) != "debugger"
    with pytest.raises(AgentError, match="already"):
        await runtime.routing.change_agents(lambda shipped, changes: add_agent(shipped, changes, cook))
    await runtime.close()
    again = await open_runtime()
    assert again.routing is not None
    assert {"cook"} <= set(again.routing.agents)
    assert "debugger" not in again.routing.agents


async def test_an_answer_that_is_stopped_while_it_is_routed_does_not_begin(
    model: Model, open_runtime: OpenRuntime
) -> None:
    conversation = await begin(model, await open_runtime())
    events = conversation.respond(CRASH)
    assert isinstance(await anext(events), Route)
    conversation.stop()
    rest = [event async for event in events]
    assert [event.reason for event in rest if isinstance(event, Done)] == ["stopped"]
    assert not any(isinstance(event, Delta) for event in rest)
    assert conversation.assistant.messages == []
    _, answer, _ = await ask(conversation, CRASH)
    assert answer


async def test_a_memory_that_fails_in_an_unknown_way_is_told_and_done_without(model: Model, parts: RouterParts) -> None:
    async def fail():
        raise RuntimeError("a strange browser")

    async def router() -> RouterParts:
        return parts

    runtime = await Runtime.open(RuntimeConfig(fail, router=router))
    assert runtime.problem == "a strange browser"
    assert not runtime.memory.store.persistent
    assert (await ask(await begin(model, runtime), CRASH))[0].agent == "debugger"


async def test_a_conversation_is_gone_on_with(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    conversation = await begin(model, runtime)
    await ask(conversation, CRASH)
    (session,) = await runtime.memory.sessions.all()
    messages = conversation.assistant.messages
    conversation.reset()
    assert conversation.assistant.messages == []
    await ask(conversation, FAR)
    await conversation.resume(session.id)
    assert conversation.assistant.messages == messages
    await ask(conversation, SIMILAR)
    assert [s.turns for s in await runtime.memory.sessions.all()] == [4, 2]
    with pytest.raises(StoreError, match="was deleted"):
        await conversation.resume("nothing")


FOLLOW_UP = "Now make day 2 rainy."


async def test_a_short_follow_up_stays_with_its_agent_also_after_a_restart(
    model: Model, open_runtime: OpenRuntime
) -> None:
    runtime = await open_runtime()
    assert await routed_to(runtime, FOLLOW_UP) == "assistant"
    conversation = await begin(model, runtime)
    assert (await ask(conversation, "plan a four day trip to Lisbon with two kids"))[0].agent == "planner"
    routed, _, _ = await ask(conversation, FOLLOW_UP)
    assert (routed.agent, routed.reason) == ("planner", "follow-up")
    assert (await ask(conversation, FAR))[0].agent == "coder"
    (session,) = await runtime.memory.sessions.all()
    await ask(conversation, "plan a four day trip to Lisbon with two kids")
    await runtime.close()

    again = await open_runtime()
    resumed = await begin(model, again)
    await resumed.resume(session.id)
    assert (await ask(resumed, FOLLOW_UP))[0].agent == "planner"
    resumed.reset()
    assert (await ask(resumed, FOLLOW_UP))[0].agent == "assistant"


async def test_a_corrected_conversation_stays_with_the_agent_that_the_user_said(
    model: Model, open_runtime: OpenRuntime
) -> None:
    runtime = await open_runtime()
    assert runtime.routing is not None
    conversation = await begin(model, runtime)
    routed, _, _ = await ask(conversation, "plan a four day trip to Lisbon with two kids")
    await runtime.routing.correct(routed.id, routed.text, "researcher")
    assert (await ask(conversation, FOLLOW_UP))[0].agent == "researcher"


async def test_confirming_a_follow_up_moves_no_weight(open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    assert runtime.routing is not None
    routed = await runtime.routing.route(FOLLOW_UP, "planner")
    assert any(neighbour.agent == "planner" for neighbour in routed.decision.neighbours)
    await runtime.routing.confirm(routed.id)
    assert await runtime.memory.patterns.all() == []


async def test_a_conversation_that_was_deleted_goes_on_as_another(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    conversation = await begin(model, runtime)
    await ask(conversation, CRASH)
    await MemoryApi(runtime).delete_all()
    assert [await runtime.memory.store.count(kind) for kind in ("session", "turn", "trajectory", "pattern")] == [0] * 4
    await ask(conversation, SIMILAR)
    (session,) = await runtime.memory.sessions.all()
    assert session.title == SIMILAR
    assert runtime.problem is None


async def test_without_the_memory_the_chat_goes_on_and_says_so(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    conversation = await begin(model, runtime)
    await runtime.memory.store.close()
    events = [event async for event in conversation.respond(CRASH)]
    assert isinstance(events[-1], Done)
    assert runtime.problem is not None


async def test_without_a_router_the_plain_assistant_answers(model: Model, tmp_path: Path) -> None:
    async def fail():
        raise StoreError("unavailable", "There is no router today.")

    runtime = await Runtime.open(RuntimeConfig(lambda: SQLiteRows.open(tmp_path / "memory.sqlite"), router=fail))
    conversation = await begin(model, runtime)
    events = [event async for event in conversation.respond(CRASH)]
    assert not any(isinstance(event, Route) for event in events)
    assert str((await MemoryApi(runtime).info())["problem"]) == "There is no router today."
    assert [entry.agent for entry in await runtime.memory.log.entries()] == [""]
    await runtime.close()


async def test_an_answer_that_is_complete_before_the_memory_is_open_is_remembered(model: Model, tmp_path: Path) -> None:
    """As with ?routing=off, which waits for nothing else."""
    may_open = asyncio.Event()

    async def open_late() -> SQLiteRows:
        await may_open.wait()
        return await SQLiteRows.open(tmp_path / "memory.sqlite")

    runtime = Runtime(RuntimeConfig(open_late))
    opening = asyncio.ensure_future(runtime.start())
    conversation = await begin(model, runtime)
    events = []
    async for event in conversation.respond(CRASH):
        events.append(event)
        if isinstance(event, Done):
            may_open.set()
    assert isinstance(events[-1], Stored)
    await opening
    (found,) = (await MemoryApi(runtime).conversations())["items"]
    assert (found["title"], found["turns"]) == (CRASH, 2)
    assert (await MemoryApi(runtime).log())["total"] == 1
    await runtime.close()


async def test_a_locked_memory_learns_meanwhile_and_takes_it_over_when_it_is_unlocked(
    model: Model, open_runtime: OpenRuntime
) -> None:
    first = await open_runtime()
    api = MemoryApi(first)
    await api.correct("", CRASH, "tester")
    await api.set_passphrase("a long way", None)
    await first.close()
    runtime = await open_runtime()
    api = MemoryApi(runtime)
    assert (await api.info())["state"] == "locked"
    assert (await api.patterns())["total"] == 0
    assert await routed_to(runtime, SIMILAR) == "debugger"
    conversation = await begin(model, runtime)
    await ask(conversation, FAR)
    await api.correct("", FAR, "planner")
    with pytest.raises(StoreError) as wrong:
        await api.unlock("a wrong way")
    assert wrong.value.reason == "passphrase"
    for refused in (
        api.export_file(None),
        api.import_file(b"", "merge", None),
        api.remove_passphrase("a wrong way"),
    ):
        with pytest.raises(StoreError, match="passphrase"):
            await refused
    await api.unlock("a long way")
    assert (await api.info())["state"] == "ready"
    assert await routed_to(runtime, SIMILAR) == "tester"
    assert await routed_to(runtime, FAR) == "planner"
    await ask(conversation, SIMILAR)
    assert (await api.conversations())["items"][0]["turns"] == 4


async def test_a_memory_whose_passphrase_is_lost_can_be_deleted(open_runtime: OpenRuntime) -> None:
    first = await open_runtime()
    await MemoryApi(first).correct("", CRASH, "tester")
    await MemoryApi(first).set_passphrase("a long way", None)
    await first.close()
    runtime = await open_runtime()
    api = MemoryApi(runtime)
    await api.delete_all()
    assert (await api.info())["state"] == "ready"
    assert not (await api.info())["encrypted"]
    await api.correct("", FAR, "planner")
    await runtime.close()
    again = await open_runtime()
    assert again.memory_stage.state == "ready"
    assert [pattern.text for pattern in await again.memory.patterns.all()] == [FAR]


async def test_what_another_embedder_made_is_made_anew(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    await ask(await begin(model, runtime), CRASH)
    await MemoryApi(runtime).correct("", CRASH, "tester")
    (entry,) = await runtime.memory.log.entries()
    turned = np.roll(entry.vector, 1)
    await runtime.memory.store.put_many(
        replace(turn, vector=turned) for turn in await runtime.memory.store.query("turn")
    )
    (pattern,) = await runtime.memory.patterns.all()
    await runtime.memory.patterns.edit(pattern.id, vector=turned)
    await runtime.memory.policies.set(EMBEDDER_POLICY, "another one", confidence=1.0, source="router")
    await runtime.close()
    again = await open_runtime()
    assert await routed_to(again, SIMILAR) == "tester"
    await again.indexer.index_all()
    await again.memory.background.settled()
    question = (await again.memory.store.query("turn"))[0]
    np.testing.assert_allclose(question.vector, entry.vector, atol=1e-6)
    assert [entry.vector for entry in await again.memory.log.entries()] == [None]


async def test_another_try_comes_from_the_same_agent_and_is_logged_for_itself(
    model: Model, open_runtime: OpenRuntime
) -> None:
    runtime = await open_runtime()
    conversation = await begin(model, runtime)
    routed, _, _ = await ask(conversation, CRASH)
    events = [event async for event in conversation.retry()]
    assert events[0] == routed
    (session,) = await runtime.memory.sessions.all()
    question, answer = await runtime.memory.sessions.path(session.id)
    assert (question.content, answer.details["agent"]) == (CRASH, "debugger")
    assert answer.details["route"]["title"] == "Debugger"
    assert [entry.id for entry in await runtime.memory.log.entries()].count(routed.id) == 1
