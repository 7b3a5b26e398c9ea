"""A whole session under a path of a plain file server: the hosts that the browser contacts, and the features that work
once the server is gone.

The requests are read from Chromium's own network log, below the page, its workers and its service worker.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import FilePayload, Page, async_playwright, expect

from app.building.system import CHROMIUM_FLAGS
from tests.page.chat_page import LOAD_SECONDS, PANEL_OF, ChatPage, open_part, share
from tests.page.shell.hostile_texts import HOSTILE, SITE
from tests.page.small_site import SmallSite

# In the gate, test_offline.py works without a server, and the tests of answers check the requests.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300), pytest.mark.all]

PATH = "some/path"
QUERY = "?backend=wasm&workers=1&max_tokens=8"
NOTES = FilePayload(name="notes.md", mimeType="text/markdown", buffer=b"# To buy\n\n- milk\n- eggs")
BROWSERS_OWN = (".google.com", ".googleapis.com")
"""Hosts that Chromium itself contacts, whatever page it shows; its log says of such a request that no page began it."""

ANSWER_WITH = """async (texts) => {
  for (const text of texts) {
    const turn = sonata.chat.addTurn('What is shown?');
    turn.append(text);
    turn.finish({ reason: 'stop' });
  }
  await new Promise((drawn) => setTimeout(drawn, 500)); // formulas and colours come later
}"""
LIVE = """() => [...document.querySelectorAll('#log *')].filter((node) =>
  node.matches('script, img, iframe, object, embed, video, audio, link, meta, base, form, style, template')
  || node.matches('input:not([type=checkbox][disabled])')
  || (node instanceof SVGElement && !node.closest('.icon, .katex'))
  || [...node.attributes].some(({ name }) => name.startsWith('on'))
  || /^(javascript|data|vbscript|blob|file):/i.test(node.getAttribute('href') ?? '')
  || (node.getAttribute('style') ?? '').includes('url(')).map((node) => node.outerHTML)"""
LISTED = """async () => {
  const list = await (await fetch('precache.json')).json();
  return { ...list.files, ...list.later };
}"""
# The files that are served without the server, with checksums: no file has changed, and none is missing.
DIFFERENT = """async (files) => {
  const different = [];
  for (const [path, sha256] of Object.entries(files)) {
    const answer = await fetch(path).catch(() => null);
    const bytes = answer?.ok ? await answer.arrayBuffer() : new ArrayBuffer();
    const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
    if (Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join('') !== sha256) different.push(path);
  }
  return different;
}"""
IMPORTED = """async (paths) => {
  const failed = [];
  for (const path of paths) await import(`./${path}`).catch((error) => failed.push(`${path}: ${error.message}`));
  return failed;
}"""


@pytest.fixture
def plain(small: SmallSite, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`python -m http.server` with the site under a path: the process, and the site's address."""
    root = tmp_path / "root"
    (root / PATH).parent.mkdir(parents=True)
    (root / PATH).symlink_to(small.folder, target_is_directory=True)
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(root)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    port = server.stdout.readline().split(" port ")[1].split()[0]
    yield server, f"http://localhost:{port}/{PATH}"
    server.terminate()
    server.wait(10)


async def test_a_session_under_a_path_asks_no_other_site_and_goes_on_whole_without_its_server(
    plain: tuple[subprocess.Popen[str], str], chromium_path: Path, tmp_path: Path
) -> None:
    server, address = plain
    log = tmp_path / "network.json"
    async with async_playwright() as playwright:
        arguments = [*CHROMIUM_FLAGS, f"--log-net-log={log}"]
        browser = await playwright.chromium.launch(executable_path=chromium_path, args=arguments)
        context = await browser.new_context(viewport={"width": 1280, "height": 800})
        chat = ChatPage(await context.new_page(), address)
        await chat.open_ready(QUERY)
        assert await chat.page.evaluate("crossOriginIsolated"), "the service worker adds the headers here, too"
        await chat.ask("".join(HOSTILE)[:200])
        await answers_stay_text(chat.page)
        await works_offline(chat.page)
        files = await chat.page.evaluate(LISTED)

        server.terminate()
        server.wait(10)
        await share(chat.page, address, [NOTES], text="What is missing?")  # which opens the page
        await chat.wait_for("ready", LOAD_SECONDS)
        await chat.page.get_by_role("button", name="Add", exact=True).click()
        await expect(chat.page.locator("#message")).to_have_value("What is missing?")
        await chat.page.locator("#composer, .bottom").get_by_text("notes.md").first.wait_for()
        await chat.ask("Hello.")
        assert await chat.page.evaluate("sonata.lastAnswer.newTokens") > 0
        for name in PANEL_OF:
            part = await open_part(chat.page, name)
            await part.locator("> *").first.wait_for(state="attached")
        await chat.page.evaluate(ANSWER_WITH, ["```python\nprint(1)\n```", "$$x^2$$"])
        await chat.page.wait_for_selector("#log .katex")
        await chat.page.locator("#log pre").last.scroll_into_view_if_needed()
        await chat.page.wait_for_selector("#log pre code span")
        assert await chat.page.evaluate(DIFFERENT, files) == []
        assert await chat.page.evaluate(IMPORTED, [path for path in files if is_of_the_page(path)]) == []
        # Chromium's own line if a page asks for a GPU, as Settings, Model, does, and there is none.
        assert [line for line in chat.errors if line != "No available adapters."] == []
        await browser.close()
    assert_none_elsewhere(log, address)


async def answers_stay_text(page: Page) -> None:
    await page.evaluate(ANSWER_WITH, list(HOSTILE))
    assert await page.evaluate(LIVE) == []
    assert await page.evaluate("globalThis.harmed") is None


async def works_offline(page: Page) -> None:
    """Wait until the page says so, which it does once."""
    await page.wait_for_selector("#notices p:has-text('Sonata works offline now')")
    await page.click("#model-chip")
    await expect(page.locator("#works-offline")).to_be_visible()
    await page.click("#models-button")  # this view contacts other sites only once its list of them is opened
    await page.wait_for_selector("#models")
    await page.click(".panel-close")


def is_of_the_page(path: str) -> bool:
    """A module that the page imports; the others belong to workers, or are scripts that define a global."""
    return path.startswith("bundle/") and path != "bundle/main.js"


def assert_none_elsewhere(log: Path, address: str) -> None:
    """Every request of a page or a worker went to the site, and no other name was looked up."""
    recorded = json.loads(log.read_text("utf-8"))
    kinds = {number: name for name, number in recorded["constants"]["logEventTypes"].items()}
    site = urlsplit(address).netloc
    asked: set[str] = set()
    hosts: set[str] = set()
    for event in recorded["events"]:
        given: dict[str, Any] = event.get("params") or {}
        if (
            kinds[event["type"]] == "URL_REQUEST_START_JOB"
            and given.get("initiator", "not an origin") != "not an origin"
        ):
            asked.add(urlsplit(given["url"]).netloc)
        if kinds[event["type"]].startswith("HOST_RESOLVER_MANAGER") and "host" in given:
            hosts.add(urlsplit(str(given["host"])).netloc)
    assert asked == {site}
    assert {host for host in hosts if not host.endswith(BROWSERS_OWN)} == {site}
    assert SITE not in {urlsplit(f"//{host}").hostname for host in hosts | asked}
