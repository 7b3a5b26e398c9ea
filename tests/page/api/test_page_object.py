"""The API for programs in the browser: sonata.js on another page, and the official client through the service worker.

Both pages and the chat share one engine, in a folder of a server that sends no headers: the page that loads the model
has no threads.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page

from app.building.node import NODE_MODULES, node_path
from tests.page.chat_page import PATIENCE_SECONDS, ChatPage
from tests.page.plain_server import PlainServer
from tests.page.small_site import SmallSite

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLIENT = "export * from 'openai';"
PROGRAMS = Path(__file__).with_name("programs.js")


@dataclass
class Pages:
    """another: a page that has loaded sonata.js. chat: Sonata's own, whose engine is the other's."""

    server: PlainServer
    another: Page
    chat: ChatPage
    info: dict[str, Any]


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def pages(browser: Browser, dist: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pages]:
    folder = tmp_path_factory.mktemp("another")
    SmallSite(dist, folder / "sonata")
    client = official_client()
    for place in (folder, folder / "sonata"):
        (place / "page.html").write_text("<!doctype html><title>Another page</title>")
        (place / "programs.js").write_text(PROGRAMS.read_text("utf-8"))
        (place / "openai.js").write_text(client)
    context = await browser.new_context()
    context.set_default_timeout(PATIENCE_SECONDS * 1000)
    with PlainServer(folder) as server:
        another = await context.new_page()
        await another.goto(f"{server.url}/page.html")
        info = await run(another, "load")
        yield Pages(server, another, await _chat(context, server), info)
    await context.close()


def official_client() -> str:
    """openai's client as one module."""
    esbuild = [node_path(), NODE_MODULES / "esbuild/bin/esbuild", "--bundle", "--format=esm", "--log-level=error"]
    ran = subprocess.run(esbuild, input=CLIENT, cwd=NODE_MODULES.parent, capture_output=True, text=True, check=True)
    return ran.stdout


async def run(page: Page, name: str, *given: Any) -> Any:
    """Run a function of programs.js, and return its result."""
    script = "async ([name, given]) => (await import(new URL('programs.js', location)))[name](...given)"
    return await page.evaluate(script, [name, list(given)])


async def _chat(context: BrowserContext, server: PlainServer) -> ChatPage:
    chat = ChatPage(await context.new_page(), f"{server.url}/sonata")
    await chat.open_ready("index.html")
    return chat


async def test_a_page_of_another_folder_loads_the_engine_that_the_chat_shares(pages: Pages) -> None:
    assert pages.info["stages"] == ["python", "model"]
    assert (pages.info["model"], pages.info["backend"]) == ("Tiny", "wasm")
    assert "COOP and COEP" in pages.info["reason"]
    assert await pages.chat.page.evaluate("sonata.info.adapter") == "CPU, 1 worker, relaxed SIMD"
    locks = await pages.another.evaluate("navigator.locks.query()")
    count = [sum(lock["name"].startswith("sonata.model:") for lock in locks[kind]) for kind in ("held", "pending")]
    assert count == [1, 1]


async def test_answers_are_whole_or_streamed_and_have_the_form_that_is_asked_for(pages: Pages) -> None:
    found = await run(pages.another, "answers")
    assert found["whole"] == found["text"]
    assert found["tokens"] == [6, 6]
    assert found["formed"] == {"age": 7}
    assert found["events"][0] == "response.created"
    assert found["events"][1] in ("response.completed", "response.incomplete")
    assert found["models"] == ["Tiny"]
    assert found["continued"] == 1
    assert (found["likeliest"], found["biased"]) == (6, [6, 1])
    assert found["alike"]


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_are_called(pages: Pages, stream: bool) -> None:
    found = await run(pages.another, "tools", stream)
    assert found["given"] == [[2, 3]]
    assert found["call"] == {"name": "sum", "arguments": '{"a": 2, "b": 3}'}
    assert found["finish_reason"] == "tool_calls"
    assert found["roles"] == ["user", "assistant", "tool"]
    assert found["last"]["content"] == '{"sum":5}'
    assert (found["chunks"] > 1) == stream


async def test_what_cannot_be_is_an_error_and_leaving_ends_the_answer(pages: Pages) -> None:
    found = await run(pages.another, "errors")
    none = dict.fromkeys(("status", "code", "param", "type"))
    kind = {"name": "APIError", "type": "invalid_request_error"}
    assert found["errors"]["empty"] == none | kind | {"status": 400, "param": "messages"}
    assert found["errors"]["unknown"] == {
        "name": "APIError", "status": 404, "code": "model_not_found", "param": "model", "type": "not_found_error",
    }  # fmt: skip
    assert found["errors"]["early"] == found["errors"]["whole"] == none | {"name": "APIUserAbortError"}
    assert (found["wholeLeft"], found["broken"], found["aborted"]) == (True, True, True)
    assert found["chunks"] < 20


async def test_the_official_client_works_through_the_service_worker(pages: Pages) -> None:
    page = await pages.another.context.new_page()
    await page.goto(f"{pages.server.url}/sonata/page.html")
    long = await pages.another.evaluate("long")
    found = await run(page, "official", {"long": long})
    idle = await pages.another.evaluate("idle(2000)")
    assert found["whole"] == found["text"]
    assert found["given"] == [{"a": 2}]
    assert found["formed"] == {"age": 7}
    assert found["errors"] == [True, "messages", True, "model_not_found"]
    assert (found["vector"], found["models"], found["isAbort"]) == (384, ["Tiny"], True)
    assert idle
    await page.close()


async def test_the_prompt_api_answers_in_the_form_that_is_asked_for_and_keeps_its_context(pages: Pages) -> None:
    found = await run(pages.another, "prompts")
    assert found["isThere"]
    assert found["availability"] == ["available", "unavailable"]
    assert found["seen"] == [0, 1]
    assert found["begun"] > 0
    assert found["chosen"] in ("yes", "no")
    assert re.fullmatch("[0-9]{4}", found["digits"])
    assert re.fullmatch("[0-9]{9}", found["text"])
    assert found["grown"] == [True, True]
    assert found["failed"] == {
        "aborted": "AbortError", "kept": True, "idle": True, "early": "AbortError", "image": "NotSupportedError",
        "system": "TypeError", "flags": "NotSupportedError", "schema": "NotSupportedError", "cut": "SyntaxError",
        "long": "QuotaExceededError", "hot": "RangeError", "openTool": "NotSupportedError",
        "destroyed": "InvalidStateError",
    }  # fmt: skip
    assert found["overflows"] == 1
    assert found["measured"] >= 40
    assert found["afterwards"] == [True, 1]


async def test_what_is_taught_answers_requests_that_name_the_memory(pages: Pages) -> None:
    found = await run(pages.another, "lessons")
    assert found == {"answer": "Behind the clock.", "isIt": True, "without": None}


async def test_a_sandboxed_frame_reaches_no_model(pages: Pages) -> None:
    assert await run(pages.another, "framed") == "TypeError: Failed to fetch"


async def test_without_a_page_that_runs_a_model_the_official_client_gets_an_error(pages: Pages) -> None:
    """The last test: it closes what the others use."""
    page = await pages.another.context.new_page()
    await page.goto(f"{pages.server.url}/sonata/page.html")
    await pages.chat.page.close()
    await pages.another.evaluate("sonata.close()")
    found = await run(page, "nobody")
    assert found["status"] == 503
    assert found["isServerError"]
    assert "No open page of Sonata runs a model" in found["message"]
