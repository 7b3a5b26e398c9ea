"""The tools and resources of `sonata mcp`, called by a client in this process, over a real memory in a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from starlette.testclient import TestClient

from app.mcp import memory_server
from app.mcp.memory_server import LoadModel, MemoryServer
from app.mcp.transports import http_app
from app.records.branches import Turn
from app.records.lessons import Lesson
from app.routing.factory import RouterParts
from app.runtime import Runtime
from py_core.loading import Model
from py_core.store.errors import StoreError
from tests.runtime import BASE

DOG, BISCUIT = "What is the name of my dog?", "Your dog is called Biscuit."
KEY, STEP = "Where is the spare key?", "It is under the third step."
NOTES = "Fence posts: 14, oak.\n" + "The order of the boards follows.\n" * 800


class Offered:
    """A server over a runtime, and a client of it."""

    def __init__(self, runtime: Runtime, load: LoadModel) -> None:
        self.server = MemoryServer(runtime, load, max_tokens=4)
        self.client = Client(self.server.server)

    async def call(self, name: str, **given: Any) -> dict[str, Any]:
        result = await self.client.call_tool(name, given)
        assert not result.is_error, result.content
        return result.structured_content

    async def refused(self, name: str, **given: Any) -> str:
        """The sentence of a call that fails."""
        result = await self.client.call_tool(name, given)
        assert result.is_error
        (content,) = result.content
        return content.text


@asynccontextmanager
async def offering(runtime: Runtime, load: LoadModel = None) -> AsyncIterator[Offered]:
    offered = Offered(runtime, load)
    async with offered.client:
        yield offered
    offered.server.close()


async def test_a_fact_is_remembered_replaced_found_and_forgotten(runtime: Runtime) -> None:
    async with offering(runtime) as offered:
        dog = await offered.call("remember", question=DOG, answer=BISCUIT)
        old = await offered.call("remember", question=KEY, answer="Under the mat.")
        key = await offered.call("remember", question="where is the spare key", answer=STEP)
        assert (old["replaced"], key["replaced"]) == (None, {"uri": old["uri"], "answer": "Under the mat."})
        assert not (await offered.call("remember", question=KEY, answer=STEP))["new"]
        found = await offered.call("search_memory", query="my dog", kinds=["lessons"])
        assert [one["uri"] for one in found["lessons"]] == [dog["uri"]]
        assert found.keys() == {"lessons", "note"}
        assert "Only words were searched" in found["note"]
        told = await offered.call("list_memory", kind="lessons")
        assert [one["answer"] for one in told["items"]] == [STEP, BISCUIT]
        assert (await offered.call("read_memory", uri=key["uri"]))["text"] == f"where is the spare key\n\n{STEP}\n"
        assert await offered.call("forget", uri=key["uri"]) == {"forgotten": key["uri"], "older_answers": 1}
        assert (await offered.call("list_memory", kind="lessons"))["total"] == 1
        assert "There is no lesson" in await offered.refused("read_memory", uri=old["uri"])


async def test_nothing_is_deleted_without_its_whole_address(runtime: Runtime) -> None:
    async with offering(runtime) as offered:
        uri = (await offered.call("remember", question=DOG, answer=BISCUIT))["uri"]
        another_kind = uri.replace("lesson", "conversation")
        for wrong in (uri[:-1], uri + "/", uri.upper(), another_kind, "sonata://lesson/", "*", DOG):
            said = await offered.refused("forget", uri=wrong)
            assert "There is no " in said or "is not an address" in said
        assert (await offered.call("list_memory", kind="lessons"))["total"] == 1


async def test_conversations_and_files_are_found_read_in_pieces_and_deleted(runtime: Runtime) -> None:
    async with offering(runtime) as offered:
        chat = await runtime.memory.sessions.start("The fence")
        await runtime.memory.sessions.add_turns(
            chat.id, Turn("user", "How many posts?"), Turn("assistant", "You need fourteen posts.")
        )
        await runtime.files.attach(chat.id, "notes.txt", "", NOTES.encode())
        found = await offered.call("search_memory", query="posts")
        ((fence,), (notes,)) = found["conversations"], found["files"]
        assert (fence["title"], fence["messages"], notes["name"]) == ("The fence", 2, "notes.txt")
        assert "posts" in fence["excerpt"]
        assert notes["excerpt"].startswith("Fence posts: 14, oak.")
        assert notes["conversation"] == fence["uri"]
        assert "You need fourteen posts." in (await offered.call("read_memory", uri=fence["uri"]))["text"]
        first = await offered.call("read_memory", uri=notes["uri"])
        rest = await offered.call("read_memory", uri=notes["uri"], offset=first["next_offset"])
        assert (first["text"] + rest["text"], "next_offset" in rest) == (NOTES, False)
        await offered.call("forget", uri=notes["uri"])
        assert (await offered.call("list_memory", kind="files"))["total"] == 0
        await offered.call("forget", uri=fence["uri"])
        assert await runtime.memory.sessions.all() == []


async def test_arguments_that_do_not_fit_and_failures_are_sentences(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async with offering(runtime) as offered:
        assert await offered.refused("list_memory", kind="lesson") == (
            "The arguments do not fit: kind: 'lesson' is not one of ['lessons', 'conversations', 'files']."
        )
        assert "'answer' is a required property" in await offered.refused("remember", question=DOG)
        assert "The answer is empty" in await offered.refused("remember", question=DOG, answer=" ")
        assert "is too long" in await offered.refused("remember", question=DOG, answer="x" * 1001)
        with pytest.raises(MCPError, match="There is no tool 'delete_everything' here"):
            await offered.client.call_tool("delete_everything", {})

        async def fails(*given: object) -> None:
            raise StoreError("busy")

        monkeypatch.setattr(runtime.memory.lessons, "all", fails)
        assert str(StoreError("busy")) == await offered.refused("list_memory", kind="lessons")
        monkeypatch.setattr(runtime.memory.lessons, "all", None)
        assert await offered.refused("list_memory", kind="lessons") == (
            "list_memory failed inside Sonata (TypeError); its standard error has more."
        )
        assert "Traceback" in capfd.readouterr().err


async def test_resources_are_listed_in_pages_and_read(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    async with offering(runtime) as offered:
        monkeypatch.setattr(memory_server, "PAGE", 2)
        for number in range(3):
            await runtime.memory.lessons.keep(Lesson(f"What is {number}?", f"It is {number}.", id=f"a b{number}"))
        chat = await runtime.memory.sessions.start("The fence")
        await runtime.files.attach(chat.id, "notes.txt", "", b"oak")
        names, cursor, lesson = list[str](), None, None
        while True:
            page = await offered.client.list_resources(cursor=cursor)
            names += [one.name for one in page.resources]
            assert len(page.resources) <= 2
            if (cursor := page.next_cursor) is None:
                break
            lesson = next((one for one in page.resources if one.uri.startswith("sonata://lesson")), lesson)
        assert names == ["What is 2?", "What is 1?", "What is 0?", "The fence", "notes.txt"]
        assert lesson.uri == "sonata://lesson/a%20b0"
        (read,) = (await offered.client.read_resource(lesson.uri)).contents
        assert (read.text, read.mime_type) == ("What is 0?\n\nIt is 0.\n", "text/plain")
        templates = (await offered.client.list_resource_templates()).resource_templates
        assert [one.uri_template for one in templates] == [
            *("sonata://lesson/{id}", "sonata://conversation/{id}", "sonata://file/{conversation}/{id}")
        ]
        for call in (offered.client.read_resource("sonata://lesson/none"), offered.client.list_resources(cursor="x 1")):
            with pytest.raises(MCPError, match=r"There is no lesson|This cursor"):
                await call


class TestWithRouter:
    @pytest.fixture
    def router(self, parts: RouterParts) -> RouterParts:
        return parts

    async def test_a_noted_fact_is_found_by_its_meaning_and_a_request_is_routed(self, runtime: Runtime) -> None:
        async with offering(runtime) as offered:
            await offered.call("remember", question=KEY, answer=STEP)
            await offered.call("remember", question=DOG, answer=BISCUIT)
            found = await offered.call("search_memory", query="how is the puppy called")
            assert [one["answer"] for one in found["lessons"]] == [BISCUIT]
            assert "note" not in found
            assert (await offered.call("search_memory", query="capital of France"))["lessons"] == []
            routed = await offered.call("route", text="why does my page crash")
            assert (routed["agent"], routed["ranked"][0]["agent"]) == ("debugger", "debugger")


async def test_the_model_is_loaded_with_the_first_question(runtime: Runtime, open_model, tiny_path: Path) -> None:
    loads = list[Model]()

    async def load() -> tuple[Model, str]:
        if not fails:
            loads.append(await open_model(tiny_path))
            return loads[-1], BASE
        raise ValueError(fails.pop())

    fails = ["There is no model of this name."]
    async with offering(runtime, load) as offered:
        assert await offered.refused("ask", question="Hello?") == "There is no model of this name."
        first = await offered.call("ask", question="Hello?")
        assert await offered.call("ask", question="Hello?") == first
    assert (len(loads), first["cut_off"], first["lesson"]) == (1, True, None)


def test_http_answers_this_machine_only() -> None:
    server = MemoryServer(Runtime(), None, max_tokens=4).server  # type: ignore[arg-type]
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }}  # fmt: skip
    accepted = {"Accept": "application/json, text/event-stream"}
    with TestClient(http_app(server), base_url="http://localhost:8765") as client:

        def status(**headers: str) -> int:
            return client.post("/mcp", json=hello, headers=accepted | headers).status_code

        assert (status(), status(Origin="http://localhost:8000")) == (200, 200)
        assert status(Host="rebound.example:8765") == 421
        assert status(Origin="https://evil.example") == 403
        assert client.post("/mcp", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 400
