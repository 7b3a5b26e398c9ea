"""What the Memory view asks for, over the real embedder, router and SQLite."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.dispatch import Dispatcher
from app.memory_desk import MemoryDesk
from app.memory_keeper import MemoryKeeper
from app.routing import RouterParts, native_parts
from py_core.memory.encryption import NativeCrypto
from py_core.memory.errors import StoreError
from py_core.memory.sessions import Turn
from py_core.memory.sqlite import SQLiteRows
from py_core.memory.witness import WitnessEntry
from py_core.routing.agents import AgentError
from py_core.routing.embedder import EmbedderError
from py_core.routing.vector_index import HnswVectorIndex

TEXTS = {
    "why does my page crash when I scroll": "tester",
    "the photo of my cat is upside down": "planner",
    "put the release on the server": "coder",
}


@pytest.fixture(scope="module")
def parts(dist: Path) -> RouterParts:
    return native_parts()


@pytest.fixture
async def keeper(parts: RouterParts, tmp_path: Path) -> AsyncIterator[MemoryKeeper]:
    keeper = MemoryKeeper(NativeCrypto(), make_index=HnswVectorIndex)

    async def dispatcher(memory) -> Dispatcher:
        return await Dispatcher.open(parts.embedder, parts.data, memory, parts.kernel)

    await keeper.open(lambda: SQLiteRows.open(tmp_path / "memory.sqlite"))
    await keeper.route_with(dispatcher)
    yield keeper
    await keeper.close()


@pytest.fixture
async def desk(keeper: MemoryKeeper) -> MemoryDesk:
    desk = MemoryDesk(keeper)
    for text, agent in TEXTS.items():
        await desk.correct("", text, agent)
    return desk


async def routes(keeper: MemoryKeeper) -> dict[str, str]:
    assert keeper.dispatcher is not None
    return {text: (await keeper.dispatcher.route(text)).agent.id for text in TEXTS}


async def test_patterns_come_in_pages_the_newest_first(desk: MemoryDesk) -> None:
    page = await desk.patterns(offset=1, limit=1)
    assert page["total"] == 3
    assert [item["text"] for item in page["items"]] == [list(TEXTS)[1]]
    assert (await desk.patterns(agent="coder"))["total"] == 1
    assert json.loads(json.dumps(page)) == page


@pytest.mark.parametrize(
    ("search", "found"),
    [("a picture of my kitten", 1), ("CAT upside", 1), ("deploying a new version to production", 2), ("scr", 0)],
)
async def test_a_search_finds_words_and_meaning(desk: MemoryDesk, search: str, found: int) -> None:
    items = (await desk.patterns(search=search))["items"]
    assert items[0]["text"] == list(TEXTS)[found]


async def test_an_edited_pattern_is_one_pattern_that_routes_as_it_says_now(
    desk: MemoryDesk, keeper: MemoryKeeper
) -> None:
    (item,) = (await desk.patterns(search="cat upside"))["items"][:1]
    await desk.edit_pattern(item["id"], "the photo of my dog is upside down", "reviewer")
    texts = {item["text"]: item["agent"] for item in (await desk.patterns())["items"]}
    assert len(texts) == 3
    assert texts["the photo of my dog is upside down"] == "reviewer"
    assert keeper.dispatcher is not None
    assert (await keeper.dispatcher.route("the photo of my dog is upside down")).agent.id == "reviewer"
    with pytest.raises(AgentError, match="no agent"):
        await desk.edit_pattern(item["id"], "something", "nobody")


async def test_a_removed_pattern_routes_no_more(desk: MemoryDesk, keeper: MemoryKeeper) -> None:
    assert await routes(keeper) == TEXTS
    items = (await desk.patterns())["items"]
    await desk.remove_patterns([item["id"] for item in items])
    assert (await desk.patterns())["total"] == 0
    assert set((await routes(keeper)).items()).isdisjoint(TEXTS.items())


async def test_export_delete_all_import_gives_the_same_routes(desk: MemoryDesk, keeper: MemoryKeeper) -> None:
    await desk.add_agent({"id": "cook", "title": "Cook", "definition": "Cooks.", "system_prompt": "You cook."})
    file = await desk.export_file("of the file")
    await desk.delete_all()
    assert await routes(keeper) != TEXTS
    assert "cook" not in {agent["id"] for agent in await desk.agents()}
    with pytest.raises(StoreError) as locked:
        await desk.import_file(file, "merge", None)
    assert locked.value.reason == "locked"
    for mode in ("merge", "replace"):
        await desk.import_file(file, mode, "of the file")
        assert await routes(keeper) == TEXTS
        assert "cook" in {agent["id"] for agent in await desk.agents()}
        await desk.delete_all()


async def test_what_the_map_shows_is_what_the_router_knows(desk: MemoryDesk, keeper: MemoryKeeper) -> None:
    made = await desk.map()
    assert keeper.dispatcher is not None
    router = keeper.dispatcher.router
    assert len(made["points"]) == len(router.examples) + len(router.learned)
    told = {point[4]: made["agents"][point[2]] for point in made["points"] if point[3] == "user"}
    assert told == TEXTS
    assert all(-1 <= x <= 1 and -1 <= y <= 1 for x, y, *_ in made["points"])


async def test_conversations_are_listed_searched_renamed_and_removed(desk: MemoryDesk, keeper: MemoryKeeper) -> None:
    for title in ("holidays", "a bug"):
        session = await keeper.memory.sessions.start(title)
        await keeper.memory.sessions.add_turns(session.id, Turn("user", title), Turn("assistant", "Yes."))
    first, second = (await desk.conversations())["items"]
    assert [first["title"], second["title"]] == ["a bug", "holidays"]
    await desk.rename_conversation(second["id"], " summer ")
    assert (await desk.conversations(search="summer"))["total"] == 1
    shown = await desk.conversation(second["id"])
    assert [turn["content"] for turn in shown["turns"]] == ["holidays", "Yes."]
    await desk.remove_conversations([first["id"], second["id"]])
    assert (await desk.conversations())["total"] == 0
    with pytest.raises(StoreError, match="does not exist"):
        await desk.conversation(first["id"])


async def test_the_log_is_filtered(desk: MemoryDesk, keeper: MemoryKeeper) -> None:
    witness = keeper.memory.witness
    for number in range(30):
        witness.record(WitnessEntry("coder", "wasm", {"decode": 10.0}, {"text": f"request {number}"}))
    witness.record(WitnessEntry("coder", "wasm", {"decode": 900.0}, {"text": "slow"}))
    witness.record(WitnessEntry("planner", "wasm", {"decode": 10.0}, {"text": "bad"}, quality=0.2))
    witness.record(WitnessEntry("", "wasm", {}, {"text": "broken"}, error="DeviceLostError: the GPU was lost"))
    shown = {}
    for filter in ("all", "slow", "poor", "errors"):
        shown[filter] = [item["text"] for item in (await desk.log(filter=filter))["items"]]
    assert len(shown["all"]) == 33
    assert [shown[filter] for filter in ("slow", "poor", "errors")] == [["slow"], ["bad"], ["broken"]]
    assert (await desk.log(filter="errors", search="gpu lost"))["total"] == 1
    statistics = await desk.statistics()
    assert statistics["agents"][0] == ("coder", 31)
    assert statistics["percentiles"]["decode"][50] == 10
    entries = (await desk.log())["items"]
    await desk.remove_log([entry["id"] for entry in entries])
    assert (await desk.log())["total"] == 0


async def test_agents_are_edited_hidden_and_brought_back(desk: MemoryDesk) -> None:
    async def agent(id: str):
        return next(entry for entry in await desk.agents() if entry["id"] == id)

    assert not (await agent("coder"))["edited"]
    await desk.edit_agent("coder", {"title": "Programmer"})
    assert (await agent("coder"))["title"] == "Programmer"
    assert (await agent("coder"))["edited"]
    await desk.reset_agent("coder")
    assert (await agent("coder"))["title"] == "Coder"
    await desk.remove_agent("coder")
    assert (await agent("coder"))["hidden"]
    await desk.restore_agent("coder")
    assert not (await agent("coder"))["hidden"]
    with pytest.raises(AgentError):
        await desk.edit_agent("coder", {"max_tokens": 0})


async def test_policies_are_edited_and_removed(desk: MemoryDesk, keeper: MemoryKeeper) -> None:
    await keeper.memory.policies.set("answers.length", 3, confidence=0.5, source="learned")
    await keeper.memory.policies.set("answers.warmth", 0.5, confidence=0.5, source="learned")
    await desk.edit_policy("answers.warmth", 1)
    assert keeper.memory.policies.get("answers.warmth", 0.0) == 1.0
    await desk.edit_policy("answers.length", 4)
    told = {policy["name"]: (policy["value"], policy["source"]) for policy in await desk.policies()}
    assert told["answers.length"] == (4, "user")
    await desk.remove_policies(["answers.length"])
    assert "answers.length" not in {policy["name"] for policy in await desk.policies()}


async def test_before_anything_is_open_calls_say_so() -> None:
    desk = MemoryDesk(MemoryKeeper(NativeCrypto()))
    assert (await desk.info())["state"] == "opening"
    with pytest.raises(StoreError, match="still being opened"):
        await desk.patterns()
    with pytest.raises(EmbedderError, match="still being loaded"):
        await desk.correct("", "a", "coder")
