"""Tool servers in Settings, Answers, and their tools in answers: a real server in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest
import pytest_asyncio
from playwright.async_api import Locator, expect

from app.building.common import ROOT
from tests.mcp.web_stranger import MARKUP
from tests.page.chat_page import ChatPage
from tests.page.views.accessibility import found_by_axe

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

CALL = """([name, given]) => {
  window.called = sonata.engine.conversation.callTool({ name, given }).catch((error) => ({ result: error.message }));
}"""
ENDED = "async () => { const { result } = await window.called; delete window.called; return result; }"
RENAME = """(name) => {
  const [server] = JSON.parse(localStorage.getItem('sonata.tool-servers'));
  server.tools[0].name = name;
  localStorage.setItem('sonata.tool-servers', JSON.stringify([server]));
}"""
"""The server's first tool is another one for it, not for the model."""
REFUSED = """(url) => new Promise((resolve) => {
  const { postMessage } = self;
  self.postMessage = ({ value }) => {
    self.postMessage = postMessage;
    resolve(JSON.stringify(value));
  };
  const given = { type: 'RAW', value: { url, token: '', hosts: ['example.org'] } };
  const data = { id: 'x', type: 'APPLY', path: ['connect'], argumentList: [given] };
  self.dispatchEvent(new MessageEvent('message', { data }));
})"""
"""Ask the worker, as the page does by Comlink, for a host that is not on the list."""
REACH = "url => fetch(url).then(() => 'reached', ({ message }) => message)"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.mcp.web_stranger"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


class Settings:
    """The list of servers in Settings, Answers."""

    def __init__(self, chat: ChatPage, part: Locator) -> None:
        self.chat, self.root = chat, part.locator(".tool-servers")
        self.problem = self.root.get_by_role("alert")

    async def connect(self, address: str) -> None:
        await self.root.get_by_label("Address of a server").fill(address)
        await self.root.get_by_role("button", name="Connect", exact=True).click()

    async def agree(self) -> None:
        await self.chat.page.get_by_role("dialog").get_by_role("button", name="Connect").click()

    async def call(self, name: str, **given: object) -> None:
        await self.chat.page.evaluate(CALL, [name, given])


@pytest_asyncio.fixture(loop_scope="session")
async def settings(ready_chat: ChatPage) -> AsyncIterator[Settings]:
    part = await ready_chat.open_part("Answers")
    await part.get_by_role("checkbox", name="Answers call tools").check()
    yield Settings(ready_chat, part)
    for remove in await ready_chat.page.locator(".tool-servers > ul > li .asking > button").all():
        await remove.click()
        await ready_chat.page.locator(".asking-answers .danger").click()
    await expect(ready_chat.page.locator(".tool-servers > ul")).to_have_count(0)
    ready_chat.errors.clear()  # the browser tells each refusal


async def test_a_server_is_added_and_answers_call_what_the_user_allows(settings: Settings, server: str) -> None:
    page, root = settings.chat.page, settings.root
    name = f"localhost_{server.rpartition(':')[2]}_"
    before = httpx2.get(f"{server}/seen").json()
    await settings.connect(f"{server}/mcp")
    await expect(page.get_by_role("dialog")).to_contain_text("Connect to localhost:")
    assert httpx2.get(f"{server}/seen").json() == [*before, "localhost/seen"], "nothing is asked before the user agrees"
    await settings.agree()
    await expect(root.get_by_role("status")).to_have_text("Connected: it has 2 tools.")
    await root.locator("summary").click()
    await expect(root.locator("details code")).to_have_text([f"{name}add", f"{name}waits"])
    await expect(root.locator("details small").last).to_have_text(MARKUP.replace("\u202e\u0007", "\ufffd\ufffd"))
    assert await page.evaluate("window.harmed") is None
    assert await found_by_axe(page) == []

    await settings.call(f"{name}add", a=2, b=3)
    await expect(page.get_by_role("dialog")).to_contain_text('{ "a": 2, "b": 3 }')
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert "does not allow" in await page.evaluate(ENDED)
    await settings.call(f"{name}add", a=2, b=3)
    await page.get_by_role("dialog").get_by_role("button", name="Allow").click()
    assert await page.evaluate(ENDED) == "5"
    await settings.call(f"{name}add", a=4, b=5)
    assert await page.evaluate(ENDED) == "9", "it is asked once"
    await settings.chat.open_ready("?backend=wasm&workers=1&max_tokens=8")
    await settings.chat.open_part("Answers")
    await expect(root.locator("summary")).to_have_text("2 tools")
    await expect(page.get_by_text("leaves your browser only in calls of your tool servers")).to_have_count(1)
    await settings.call(f"{name}add", a="x")
    assert "validation error" in await page.evaluate(ENDED), "the list is kept, and so is the answer"

    await settings.call(f"{name}waits")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.evaluate("sonata.engine.conversation.stop()")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert await page.evaluate(ENDED) == "It was stopped."
    await root.locator("summary").click()
    choices = root.get_by_role("combobox")
    await expect(choices.first).to_have_value("yes")
    await choices.first.select_option("no")
    await settings.call(f"{name}add", a=2, b=3)
    assert "is not there" in await page.evaluate(ENDED)


async def test_what_goes_wrong_is_a_sentence_and_no_other_host_is_reached(settings: Settings, server: str) -> None:
    page, name = settings.chat.page, f"localhost_{server.rpartition(':')[2]}_"
    for address in ("example.org/mcp", "http://example.org/mcp", "https://a:b@example.org/", "javascript:alert(1)"):
        await settings.connect(address)
        await expect(settings.problem.last).to_contain_text("is not the address of a tool server")
    for path, says in {
        "token": "wants a token", "page": "does not follow", "elsewhere": "redirects to another address",
        "broken": "answers with HTTP 500",
    }.items():  # fmt: skip
        await settings.connect(f"{server}/{path}")
        await settings.agree()
        await expect(settings.problem.last).to_contain_text(says)
    await settings.connect("http://localhost:9/mcp")
    await settings.agree()
    await expect(settings.problem.last).to_contain_text("does not allow this page (CORS)")
    assert not [one for one in httpx2.get(f"{server}/seen").json() if one.startswith("127.0.0.1")]

    await settings.connect(f"{server}/hostile")
    await settings.agree()
    await expect(settings.root.get_by_text("3 tools are left out")).to_be_attached()
    (worker,) = [one for one in page.workers if one.url.endswith("mcp_worker.js")]
    assert "is not on the list of tool servers" in await worker.evaluate(REFUSED, f"{server}/mcp")
    assert await worker.evaluate(REACH, "http://example.org/") == "Failed to fetch"
    for tool, says in (("cut", "ended the connection"), ("huge", "more than 8 MB")):
        await page.evaluate(RENAME, tool)
        await settings.call(f"{name}same")
        if tool == "cut":
            await page.get_by_role("dialog").get_by_role("button", name="Allow").click()
        assert says in await page.evaluate(ENDED)
