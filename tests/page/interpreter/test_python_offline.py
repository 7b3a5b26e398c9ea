"""Python of an answer on the files of the chat: in the real page without its server, and in Firefox."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.async_api import BrowserContext, expect

from app.building.system import find_firefox
from tests.interpreter.programs import MEAN, SALES
from tests.page.chat_page import ChatPage
from tests.page.interpreter.test_python_page import ESCAPE
from tests.page.plain_server import PlainServer
from tests.page.shell.test_other_browsers import QUERY, READY, missing
from tests.page.shell.web_driver import firefox
from tests.page.small_site import SmallSite

pytestmark = [pytest.mark.all, pytest.mark.timeout(300)]

ANSWER = """(code) => {
  const turn = sonata.chat.addTurn('And?');
  turn.append(code);
  turn.finish({ reason: 'end' });
  window.block = turn.answerElement.querySelector('.code-block'); // also once the page has read what is stored
  block.querySelector('.code-run').click();
}"""
"""Shows an answer that is not stored, and runs its code."""
SAID = "() => [...block.querySelectorAll('td, .python-text')].map((node) => node.textContent).join(' ')"


@pytest.mark.asyncio(loop_scope="session")
async def test_code_reads_the_files_of_the_chat_also_when_the_server_is_gone(
    context: BrowserContext, server: PlainServer
) -> None:
    chat = ChatPage(await context.new_page(), server.url)
    page = chat.page
    await chat.open_ready(f"{QUERY}&routing=off")
    await page.wait_for_selector("#works-offline", state="attached")
    await page.wait_for_function("() => !document.querySelector('#works-offline').hidden", timeout=60_000)
    file = {"name": "sales.csv", "mimeType": "text/csv", "buffer": SALES}
    await page.set_input_files("#composer input[type=file]", [file])  # type: ignore[list-item]
    await expect(page.locator(".file-chip[data-state=ready]")).to_be_visible()
    server.stop()
    await page.reload()
    await chat.wait_for("ready")
    await expect(page.locator(".file-chip[data-state=ready]")).to_be_visible()
    await page.evaluate(ANSWER, f"```python\n{MEAN}```")
    await page.wait_for_function(f"() => ({SAID})() === 'north 15 south 4.5'")
    await page.click("#new-chat")
    await page.evaluate(ANSWER, "```python\nimport os\nos.listdir(), 'rows' in globals()\n```")
    await page.wait_for_function(f"() => ({SAID})() === '([], False)'")
    assert chat.errors == []


@pytest.fixture
def guarded(tiny_files: SmallSite) -> Iterator[PlainServer]:
    with PlainServer(tiny_files.folder) as server:
        server.guards = True
        yield server


def test_firefox_runs_code_and_lets_nothing_out(guarded: PlainServer) -> None:
    program = find_firefox()
    if program is None:
        return missing("Firefox")
    with firefox(program) as tab:
        tab.open(f"{guarded.url}/{QUERY}&routing=off")
        assert tab.wait_for(READY) == "ready"
        for code, value in (
            ("[{'a': 1, 'b': 'x'}]", "1 x"),
            (ESCAPE.replace("ADDRESS", f"{guarded.url}/models.json"), "'null'"),
        ):
            tab.evaluate(ANSWER, f"```python\n{code}\n```")
            tab.wait_for(f"() => ({SAID})() === {json.dumps(value)}", 60)
