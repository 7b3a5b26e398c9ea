"""The calls of the panels, over the real embedder, router and SQLite."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.memory.api import MemoryApi
from app.records.sessions import Turn
from app.routing.factory import RouterParts
from app.runtime import Runtime, RuntimeConfig
from app.stage import State
from py_core.learning.trajectories import Trajectory
from py_core.routing.agents import AgentError
from py_core.routing.embedder import EmbedderError
from py_core.store.errors import StoreError
from py_core.store.rows import Key
from py_core.store.sqlite import SQLiteRows
from tests.runtime import runtime_over

TEXTS = {
    "why does my page crash when I scroll": "tester",
    "the photo of my cat is upside down": "planner",
    "put the release on the server": "coder",
}


@pytest.fixture
def router(parts: RouterParts) -> RouterParts:
    return parts


@pytest.fixture
async def api(runtime: Runtime) -> MemoryApi:
    api = MemoryApi(runtime)
    for text, agent in TEXTS.items():
        await api.correct("", text, agent)
    return api


async def routes(runtime: Runtime) -> dict[str, str]:
    assert runtime.routing is not None
    return {text: (await runtime.routing.route(text)).agent.id for text in TEXTS}


async def test_patterns_come_in_pages_the_newest_first(api: MemoryApi) -> None:
    page = await api.patterns(offset=1, limit=1)
    assert page["total"] == 3
    assert [item["text"] for item in page["items"]] == [list(TEXTS)[1]]
    assert (await api.patterns(agent="coder"))["total"] == 1
    assert json.loads(json.dumps(page)) == page


@pytest.mark.parametrize(
    ("search", "found"),
    [("a picture of my kitten", 1), ("CAT upside", 1), ("deploying a new version to production", 2), ("scr", 0)],
)
async def test_a_search_finds_words_and_meaning(api: MemoryApi, search: str, found: int) -> None:
    items = (await api.patterns(search=search))["items"]
    assert items[0]["text"] == list(TEXTS)[found]


async def test_an_edited_pattern_is_one_pattern_that_routes_as_it_says_now(api: MemoryApi, runtime: Runtime) -> None:
    (item,) = (await api.patterns(search="cat upside"))["items"][:1]
    await api.edit_pattern(item["id"], "the photo of my dog is upside down", "reviewer")
    texts = {item["text"]: item["agent"] for item in (await api.patterns())["items"]}
    assert len(texts) == 3
    assert texts["the photo of my dog is upside down"] == "reviewer"
    assert runtime.routing is not None
    assert (await runtime.routing.route("the photo of my dog is upside down")).agent.id == "reviewer"
    with pytest.raises(AgentError, match="no agent"):
        await api.edit_pattern(item["id"], "something", "nobody")


async def test_a_removed_pattern_routes_no_more(api: MemoryApi, runtime: Runtime) -> None:
    assert await routes(runtime) == TEXTS
    items = (await api.patterns())["items"]
    await api.remove_patterns([item["id"] for item in items])
    assert (await api.patterns())["total"] == 0
    assert set((await routes(runtime)).items()).isdisjoint(TEXTS.items())


async def test_delete_all_leaves_no_message_in_the_router(api: MemoryApi, runtime: Runtime) -> None:
    routing = runtime.routing
    assert routing is not None
    (text, *_) = TEXTS
    routed = await routing.route(text)
    embedded = routing.embedder

    await api.delete_all()

    assert text not in repr(vars(embedded))
    await api.confirm(routed.id)  # the route is not known any more, so this changes nothing
    assert (await api.patterns())["total"] == 0


async def test_export_delete_all_import_gives_the_same_routes(api: MemoryApi, runtime: Runtime) -> None:
    await api.add_agent({"id": "cook", "title": "Cook", "definition": "Cooks.", "system_prompt": "You cook."})
    file = await api.export_file("of the file")
    await api.delete_all()
    assert await routes(runtime) != TEXTS
    assert "cook" not in {agent["id"] for agent in await api.agents()}
    with pytest.raises(StoreError) as locked:
        await api.import_file(file, "merge", None)
    assert locked.value.reason == "locked"
    for mode in ("merge", "replace"):
        await api.import_file(file, mode, "of the file")
        assert await routes(runtime) == TEXTS
        assert "cook" in {agent["id"] for agent in await api.agents()}
        await api.delete_all()


async def test_what_the_map_shows_is_what_the_router_knows(api: MemoryApi, runtime: Runtime) -> None:
    made = await api.map()
    assert runtime.routing is not None
    router = runtime.routing.router
    assert len(made["points"]) == len(router.examples) + len(router.learned)
    told = {point[4]: made["agents"][point[2]] for point in made["points"] if point[3] == "user"}
    assert told == TEXTS
    assert all(-1 <= x <= 1 and -1 <= y <= 1 for x, y, *_ in made["points"])


async def test_conversations_are_listed_searched_renamed_and_removed(api: MemoryApi, runtime: Runtime) -> None:
    for title in ("holidays", "a bug"):
        session = await runtime.memory.sessions.start(title)
        await runtime.memory.sessions.add_turns(session.id, Turn("user", title), Turn("assistant", "Yes."))
    first, second = (await api.conversations())["items"]
    assert [first["title"], second["title"]] == ["a bug", "holidays"]
    await api.rename_conversation(second["id"], " summer ")
    assert (await api.conversations(search="summer"))["total"] == 1
    shown = await api.conversation(second["id"])
    assert [turn.content for turn in shown["turns"]] == ["holidays", "Yes."]
    await api.pin_conversation(second["id"], True)
    await api.archive_conversation(first["id"], True)
    told = {item["title"]: (item["pinned"], item["archived"], item["titled"]) for item in (await listed(api))}
    assert told == {"a bug": (False, True, ""), "summer": (True, False, "user")}
    await api.remove_conversations([first["id"], second["id"]])
    assert (await api.conversations())["total"] == 0
    with pytest.raises(StoreError, match="was deleted"):
        await api.conversation(first["id"])


async def listed(api: MemoryApi) -> list[dict[str, Any]]:
    return (await api.conversations())["items"]


async def everything(runtime: Runtime) -> dict[Key, Any]:
    """The contents of the memory, except versions and data that can be made again."""
    await runtime.memory.background.settled()
    records = [record async for record in runtime.memory.store.scan()]
    return {r.key: (r.body, r.created, r.updated, None if r.vector is None else r.vector.tolist()) for r in records}


async def test_a_deletion_is_undone_as_if_it_had_not_been(api: MemoryApi, runtime: Runtime) -> None:
    ids = await add_chats(runtime)
    before = await everything(runtime)
    gone = [ids["A trip"], ids["Dinner"]]
    await api.remove_conversations(gone)
    assert [item["title"] for item in await listed(api)] == ["Strings"]
    await api.restore_conversations()
    assert await everything(runtime) == before
    assert "A trip" in await found_by(api, runtime, "lisbon")
    with pytest.raises(StoreError, match="no longer be undone"):
        await api.restore_conversations()


async def test_what_was_deleted_is_gone_at_once_and_nobody_else_can_bring_it_back(
    api: MemoryApi, runtime: Runtime
) -> None:
    ids = await add_chats(runtime)
    await api.remove_conversations([ids["A trip"]])
    left = await everything(runtime)  # the state that a tab leaves if it is killed now
    assert not any(ids["A trip"] in id or ids["A trip"] in str(told) for (_, id), told in left.items())
    with pytest.raises(StoreError, match="no longer be undone"):
        await MemoryApi(runtime).restore_conversations()  # another page's
    await api.forget_removed()
    with pytest.raises(StoreError, match="no longer be undone"):
        await api.restore_conversations()


async def test_an_export_has_what_is_shown_as_markdown_and_every_branch_as_json(
    api: MemoryApi, runtime: Runtime
) -> None:
    id = (await add_chats(runtime))["Dinner"]
    await runtime.memory.sessions.add_turns(id, Turn("assistant", "**Fry** it."), after=0)
    written = await api.export_conversation(id, "markdown")
    assert written.startswith("# Dinner\n\n*20")
    assert written.endswith("**You**\n\nwhat can I cook with leftover rice\n\n**Sonata**\n\n**Fry** it.\n")
    told = json.loads(await api.export_conversation(id, "json"))
    assert (told["format"], told["title"], told["leaf"]) == ("sonata-conversation", "Dinner", 2)
    assert [(turn["number"], turn["after"], turn["role"]) for turn in told["turns"]] == [
        (0, None, "user"), (1, 0, "assistant"), (2, 0, "assistant"),
    ]  # fmt: skip
    with pytest.raises(StoreError, match="was deleted"):
        await api.export_conversation("nobody", "json")


CHATS = {
    "Strings": ("write a function that reverses a string", "def reverse(text): return text[::-1]"),
    "A trip": ("where should we go in may", "Take the night train to Lisbon and rest by the sea."),
    "Dinner": ("what can I cook with leftover rice", "Fry it with eggs, peas and a little soy sauce."),
}


async def add_chats(runtime: Runtime) -> dict[str, str]:
    ids = {}
    for title, (question, answer) in CHATS.items():
        session = await runtime.memory.sessions.start(title)
        await runtime.memory.sessions.add_turns(session.id, Turn("user", question), Turn("assistant", answer))
        ids[title] = session.id
    return ids


async def found_by(api: MemoryApi, runtime: Runtime, search: str) -> list[str]:
    """Search by words, then by meaning."""
    await api.similar_conversations(search)  # makes the vectors that are missing
    await runtime.memory.background.settled()
    by_words = (await api.conversations(search=search))["items"]
    return [item["title"] for item in [*by_words, *await api.similar_conversations(search)]]


async def test_conversations_are_found_by_a_word_of_an_answer_and_by_meaning(api: MemoryApi, runtime: Runtime) -> None:
    ids = await add_chats(runtime)
    assert (await found_by(api, runtime, "lisbon"))[0] == "A trip"
    assert (await found_by(api, runtime, "coding"))[0] == "Strings"
    assert (await found_by(api, runtime, "holidays"))[0] == "A trip"
    assert (await found_by(api, runtime, "recipe"))[0] == "Dinner"
    assert await found_by(api, runtime, "vrt") == []  # means nothing, and is 0.16 similar to one of them
    (item, *_) = (await api.conversations(search="soy egg"))["items"]
    assert item["id"] == ids["Dinner"]
    shown = "".join(f"[{piece}]" if match else piece for piece, match in item["snippet"]["parts"])
    assert (item["snippet"]["role"], shown) == ("assistant", "Fry it with [egg]s, peas and a little [soy] sauce.")
    await api.remove_conversations([ids["A trip"]])
    assert "A trip" not in await found_by(api, runtime, "lisbon holidays")


async def test_an_encrypted_conversation_is_found_and_no_word_of_it_is_on_the_disk(
    api: MemoryApi, runtime: Runtime, tmp_path: Path
) -> None:
    await api.set_passphrase("correct horse", None)
    await add_chats(runtime)
    assert (await found_by(api, runtime, "lisbon"))[0] == "A trip"
    assert (await found_by(api, runtime, "coding"))[0] == "Strings"
    turns = await runtime.memory.store.query("turn")
    assert all(turn.vector is not None for turn in turns)
    on_disk = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))  # noqa: ASYNC240
    assert b"isbon" not in on_disk
    assert not any(turn.vector.tobytes() in on_disk for turn in turns if turn.vector is not None)


async def test_messages_are_embedded_between_answers_and_keep_their_times(runtime: Runtime) -> None:
    with runtime.memory.background.paused():  # an answer is running
        await add_chats(runtime)
        before = {turn.id: turn for turn in await runtime.memory.store.query("turn")}
        await asyncio.sleep(0)
        assert not any(turn.vector is not None for turn in await runtime.memory.store.query("turn"))
    await runtime.memory.background.settled()
    after = await runtime.memory.store.query("turn")
    assert len(after) == 6
    for turn in after:
        then = before[turn.id]
        assert turn.vector is not None
        assert (turn.body, turn.created, turn.updated) == (then.body, then.created, then.updated)


async def test_a_message_that_is_deleted_while_it_is_embedded_stays_deleted(runtime: Runtime) -> None:
    with runtime.memory.background.paused():
        ids = await add_chats(runtime)
        await asyncio.sleep(0)  # the first ones were read
        await runtime.memory.sessions.delete(ids["Dinner"])
    await runtime.memory.background.settled()
    turns = await runtime.memory.store.query("turn")
    assert {turn.body["session"] for turn in turns} == {ids["Strings"], ids["A trip"]}
    assert all(turn.vector is not None for turn in turns)


async def test_the_log_is_filtered(api: MemoryApi, runtime: Runtime) -> None:
    def record(asked: str, agent: str = "coder", decode: float = 10.0, **more: Any) -> None:
        made = Trajectory(asked, asked, "", agent=agent, stages={"decode": decode}, **more)
        runtime.memory.trajectories.record(made)

    for number in range(30):
        record(f"request {number}")
    record("slow", decode=900.0, learnable=False)
    record("bad", "planner", rating=0.2)
    record("broken", "", learnable=False, error="DeviceLostError: the GPU was lost")
    shown = {}
    for filter in ("all", "slow", "poor", "errors"):
        shown[filter] = [item["text"] for item in (await api.log(filter=filter))["items"]]
    assert len(shown["all"]) == 33
    assert [shown[filter] for filter in ("slow", "poor", "errors")] == [["slow"], ["bad"], ["broken"]]
    assert (await api.log(filter="errors", search="gpu lost"))["total"] == 1
    statistics = await api.statistics()
    assert statistics["agents"][0] == ("coder", 31)
    assert statistics["percentiles"]["decode"][50] == 10
    entries = (await api.log())["items"]
    await api.remove_log([entry["id"] for entry in entries])
    assert (await api.log())["total"] == 0


async def test_agents_are_edited_hidden_and_brought_back(api: MemoryApi) -> None:
    async def agent(id: str):
        return next(entry for entry in await api.agents() if entry["id"] == id)

    assert not (await agent("coder"))["edited"]
    await api.edit_agent("coder", {"title": "Programmer"})
    assert (await agent("coder"))["title"] == "Programmer"
    assert (await agent("coder"))["edited"]
    await api.reset_agent("coder")
    assert str((await agent("coder"))["title"]) == "Coder"
    await api.remove_agent("coder")
    assert (await agent("coder"))["hidden"]
    await api.restore_agent("coder")
    assert not (await agent("coder"))["hidden"]
    with pytest.raises(AgentError):
        await api.edit_agent("coder", {"max_tokens": 0})


async def test_policies_are_edited_and_removed(api: MemoryApi, runtime: Runtime) -> None:
    await runtime.memory.policies.set("answers.length", 3, confidence=0.5, source="learned")
    await runtime.memory.policies.set("answers.warmth", 0.5, confidence=0.5, source="learned")
    await api.edit_policy("answers.warmth", 1)
    assert runtime.memory.policies.get("answers.warmth", 0.0) == 1.0
    await api.edit_policy("answers.length", 4)
    told = {policy["name"]: (policy["value"], policy["source"]) for policy in await api.policies()}
    assert told["answers.length"] == (4, "user")
    await runtime.memory.policies.set("learning.gate.threshold", 0.0, confidence=0.5, source="deep", observations=1)
    await runtime.memory.policies.set("routing.agents", "{}", confidence=1.0, source="user")
    words = {policy["name"]: policy["words"] for policy in await api.policies()}
    gate, agents = words["learning.gate.threshold"], words["routing.agents"]
    assert (str(gate["title"]), str(gate["value"])) == ("When a fact answers", "a score of 0.00: 50% sure")
    assert (str(gate["by"]), str(gate["deletion"])) == ("learned by the deep loop from 1 judged answer", "Reset")
    assert (agents["value"], agents["canEdit"]) == ("", False)  # JSON, for programs
    assert (words["answers.length"]["title"], str(words["answers.length"]["deletion"])) == ("answers.length", "Delete")
    await api.remove_policies(["answers.length"])
    assert "answers.length" not in {policy["name"] for policy in await api.policies()}


async def test_before_anything_is_open_calls_say_so() -> None:
    api = MemoryApi(Runtime())
    assert (await api.info())["state"] == "opening"
    with pytest.raises(StoreError, match="still opening"):
        await api.patterns()
    with pytest.raises(EmbedderError, match="still loading"):
        await api.correct("", "a", "coder")


async def test_a_memory_that_is_unlocked_while_the_router_opens_is_the_routers(
    parts: RouterParts, tmp_path: Path
) -> None:
    before = await runtime_over(tmp_path / "memory.sqlite", parts)
    await MemoryApi(before).correct("", "count the sheep", "tester")
    await MemoryApi(before).set_passphrase("a secret that is long", None)
    await before.close()

    async def router() -> RouterParts:
        unlocking.append(asyncio.ensure_future(runtime.unlock("a secret that is long")))
        return parts

    unlocking = list[asyncio.Task[None]]()
    runtime = Runtime(RuntimeConfig(lambda: SQLiteRows.open(tmp_path / "memory.sqlite"), router=router))
    await runtime.start()
    await unlocking[0]
    assert (runtime.memory_stage.state, runtime.routing_stage.state) == (State.READY, State.READY)
    assert runtime.problem is None
    assert (await runtime.routing.route("count the sheep")).agent.id == "tester"
    await runtime.close()
