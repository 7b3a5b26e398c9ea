"""Python of an answer, run in the page: what it shows, how code ends that means harm, and that nothing of the page can
be reached from it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import zipfile
from pathlib import Path

import pytest
from playwright.async_api import Locator, expect

from tests.interpreter.programs import HOSTILE
from tests.page.chat.test_answers import show
from tests.page.chat_page import ChatPage
from tests.page.views.accessibility import COLOURS, found_by_axe

pytestmark = pytest.mark.asyncio(loop_scope="session")

SENTENCES = {
    "browser": "Code cannot use the browser or JavaScript here.",
    "disk": "There is no more room for files here.",
    "input": "Code cannot ask for input here: write the values into the code.",
    "memory": "The code needs more memory than it may have.",
    "network": "Code has no network here.",
    "recursion": "A function calls itself too often.",
}
TRIES = """
const trusted = trustedTypes.createPolicy('sonata', { createScriptURL: (url) => url });
const tries = {
  fetch: () => fetch(SITE), data: () => fetch('data:,x'), import: () => import(SITE),
  request: () => new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.onload = resolve; request.onerror = reject; request.open('GET', SITE); request.send();
  }),
  socket: () => new Promise((resolve, reject) => {
    const socket = new WebSocket(SITE.replace('http', 'ws')); socket.onopen = resolve; socket.onerror = reject;
  }),
  events: () => new Promise((resolve, reject) => {
    const source = new EventSource(SITE); source.onopen = resolve; source.onerror = reject;
  }),
  transport: () => new WebTransport(SITE.replace('http:', 'https:')).ready,
  scripts: () => importScripts(trusted.createScriptURL(SITE)), shared: () => new SharedWorker(SITE),
  worker: () => new Promise((resolve, reject) => {
    const worker = new Worker(trusted.createScriptURL(SITE)); worker.onerror = reject; worker.onmessage = resolve;
  }),
  database: () => new Promise((resolve, reject) => {
    const asked = indexedDB.open('sonata'); asked.onsuccess = resolve; asked.onerror = reject;
  }),
  cache: () => caches.keys(), folder: () => navigator.storage.getDirectory(), storage: () => localStorage.length,
  lock: () => navigator.locks.request('a', () => 1), cookie: () => cookieStore.getAll(), page: () => parent.document,
  eval: () => eval('1'),
};
(async () => {
  const found = [self.origin];
  for (const [name, attempt] of Object.entries(tries)) {
    try { await attempt(); found.push(name); } catch { /* as it must be */ }
  }
  new BroadcastChannel('sonata').postMessage('out');
  postMessage(found.join(' '));
})();
"""
ESCAPE = f"""
import asyncio, importlib
js, ffi = importlib.import_module('js'), importlib.import_module('pyodide.ffi')
methods = ffi.to_js({{'createScriptURL': lambda url, *rest: url}}, dict_converter=js.Object.fromEntries)
address = 'data:text/javascript,' + js.encodeURIComponent('const SITE = "ADDRESS";' + {TRIES!r})
worker = js.Worker.new(js.trustedTypes.createPolicy('sonata', methods).createScriptURL(address))
told = asyncio.Future()
worker.onmessage = lambda event: told.set_result(event.data)
ffi.run_sync(told)
"""
"""Code that gets at JavaScript in spite of its names, runs a script in a worker of its own, and tries every way out."""
HEARD = """() => {
  window.heard = [];
  window.listening = new BroadcastChannel('sonata');
  listening.onmessage = ({ data }) => heard.push(data);
}"""


async def run(chat: ChatPage, code: str) -> Locator:
    """Show an answer of this code, and run it to its end. Returns its outputs."""
    body = await show(chat, f"```python\n{code}\n```")
    await body.get_by_role("button", name="Run").click()
    await expect(body.locator(".code-run[data-running=false]")).to_be_visible()
    return body.locator(".python-run")


async def test_code_shows_its_outputs_and_harm_ends_with_a_sentence(page_apart: ChatPage) -> None:
    page, before = page_apart.page, len(page_apart.requests)
    await page.evaluate(HEARD)
    body = await show(
        page_apart,
        "```python\nkept = 6\nprint('a', kept)\nopen('new.txt', 'w').write('hi')\n[{'n': 7, 't': '<b>'}]\n```",
    )
    assert not [url for url in page_apart.requests[before:] if "interpreter" in url or "pyodide" in url]
    await body.get_by_role("button", name="Run").click()
    await expect(body.locator("td")).to_have_text(["7", "<b>"])
    await expect(body.locator(".python-text")).to_have_text("a 6\n")
    async with page.expect_download() as download:
        await body.get_by_role("button", name="Save new.txt (2 B)").click()
    assert await asyncio.to_thread(Path(await (await download.value).path()).read_text) == "hi"

    for harm, reason in [*HOSTILE.values(), ("import js", "browser")]:
        if reason in SENTENCES:
            outputs = await run(page_apart, f"a = None  # a list of the one before\n{harm}")
            await expect(outputs).to_contain_text(SENTENCES[reason])
    outputs = await run(page_apart, "import js, json\nkept / 0")
    await expect(outputs.locator(".python-error")).to_contain_text("Line 1: import js, json")

    reached = list[object]()
    async with await asyncio.start_server(lambda reader, writer: reached.append(writer), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        outputs = await run(page_apart, ESCAPE.replace("ADDRESS", f"http://127.0.0.1:{port}/a.js"))
        await expect(outputs.locator("pre")).to_have_text("'null'")
    assert (reached, await page.evaluate("heard")) == ([], [])

    body = await show(page_apart, "```python\nprint(kept)\nwhile True: pass\n```")
    await body.get_by_role("button", name="Run").click()
    await expect(body.locator(".python-text")).to_have_text("6\n")
    await body.get_by_role("button", name="Stop").click()
    await expect(body.locator(".python-error")).to_have_text(
        re.compile("Line 2: while True: pass.*You stopped the code.", re.S)
    )
    await expect((await run(page_apart, "kept")).locator("pre")).to_have_text("6")

    await page.evaluate("listening.close()")
    assert page_apart.errors == []


@pytest.mark.all
async def test_code_that_cannot_be_stopped_is_ended_with_its_python(page_apart: ChatPage) -> None:
    code = "kept = 6\nimport signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)\nprint(1)\nwhile True: pass"
    body = await show(page_apart, f"```python\n{code}\n```")
    await body.get_by_role("button", name="Run").click()
    await expect(body.locator(".python-text")).to_have_text("1\n")
    await body.get_by_role("button", name="Stop").click()
    lost = re.compile("The variables are lost")
    await expect(body.locator(".python-error")).to_have_text([re.compile("You stopped the code."), lost])
    await expect((await run(page_apart, "kept")).locator(".python-kind")).to_contain_text("NameError")
    deep = "import sys\nsys.setrecursionlimit(10**9)\ndef call(): return call()\ncall()"
    await expect((await run(page_apart, deep)).locator(".python-error")).to_have_text(
        [*(re.compile("A function calls itself too often."), lost)]
    )
    dead = "import importlib\nimportlib.import_module('js').self.close()\nprint(1)\nwhile True: pass"
    body = await show(page_apart, f"```python\n{dead}\n```")
    await body.get_by_role("button", name="Run").click()
    await body.get_by_role("button", name="Stop").click()  # while Python starts
    await expect(body.locator(".python-error")).to_have_text("You stopped the code.")
    await body.get_by_role("button", name="Run").click()
    await expect(body.locator(".python-text")).to_have_text("1\n")
    await body.get_by_role("button", name="Stop").click()
    await expect(body.locator(".python-error").last).to_have_text(lost)
    assert page_apart.errors == []


def wheel(*members: tuple[str, str]) -> bytes:
    """A wheel of these members, compressed as pip writes it."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as files:
        for name, text in members:
            files.writestr(name, text)
    return made.getvalue()


async def test_a_wheel_of_pure_python_is_installed_once_the_user_agrees(page_apart: ChatPage) -> None:
    page, info = page_apart.page, ("small_pack-1.2.dist-info/WHEEL", "Root-Is-Purelib: true")
    good = wheel(("small_pack/__init__.py", "value = 42"), ("colorsys.py", "1 / 0"), ("../out.py", ""), info)
    bad = wheel(("small_bad/core.so", ""), info)
    for name, data in (("small_pack-1.2-py3-none-any.whl", good), ("small_bad-1.2-py3-none-any.whl", bad)):
        file = {"name": name, "mimeType": "application/zip", "buffer": data}
        await page.set_input_files("input[type=file]", file)  # type: ignore[arg-type]
    question = page.get_by_role("region", name="The package small-pack")
    await expect(question).to_contain_text(f"sha256: {hashlib.sha256(good).hexdigest()}")
    await expect(await run(page_apart, "import small_pack")).to_contain_text("ModuleNotFoundError")
    await question.get_by_role("button", name="Install", exact=True).click()
    await expect(question).to_contain_text("Installed for this chat.")
    shown = await run(page_apart, "import colorsys, small_pack\nstr(small_pack.value)")  # colorsys stays Python's own
    await expect(shown.locator("pre")).to_have_text("'42'")
    other = page.get_by_role("region", name="The package small-bad")
    await other.get_by_role("button", name="Install", exact=True).click()
    await expect(other.get_by_role("alert")).to_contain_text("small-bad has compiled parts")
    await page.locator("#new-chat").click()
    await expect(question).to_be_hidden()
    assert page_apart.errors == []


CHART = """
import pandas as pd
table = pd.DataFrame({'region': ['north', 'south'], 'sold': [10.5, 4]})
table.plot.bar(x='region')
table
"""


@pytest.mark.all
async def test_packages_are_loaded_once_the_user_agrees_and_figures_are_pictures(
    page_apart: ChatPage, screenshots: Path
) -> None:
    page, before = page_apart.page, len(page_apart.requests)
    body = await show(page_apart, f"```python\n{CHART}\n```")
    await body.get_by_role("button", name="Run").click()
    question = body.get_by_role("group", name="Packages to load")
    await expect(question).to_contain_text("pandas 3.0.2, ")
    assert not [url for url in page_apart.requests[before:] if "packages/" in url]
    assert await found_by_axe(page, ".python-run") == []
    await question.get_by_role("button", name="Do not load").click()
    await expect(body.locator(".python-problem")).to_have_text("The packages were not loaded, so the code was not run.")
    await body.get_by_role("button", name="Run").click()
    await question.get_by_role("button", name="Load and run").click()
    await expect(question).to_contain_text("matplotlib 3.10.8, ")  # which only the call of plot has named
    await question.get_by_role("button", name="Load and run").click()
    await expect(body.locator("td")).to_have_text(["north", "10.5", "south", "4"])
    await expect(body.get_by_role("img", name="Figure that the code has drawn")).to_be_visible()
    width = await body.locator("img").evaluate("async (image) => { await image.decode(); return image.naturalWidth; }")
    assert width > 600
    for theme in ("light", "dark"):
        await page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        assert await found_by_axe(page, ".python-run", COLOURS) == []
        await page.screenshot(path=screenshots / f"python_{theme}.png")
    await page.emulate_media(color_scheme="light")
    await page.evaluate("localStorage.removeItem('sonata.python')")
    assert page_apart.errors == []


@pytest.mark.all
async def test_an_error_can_be_sent_to_the_model_three_times(page_apart: ChatPage) -> None:
    page = page_apart.page
    for _ in range(3):
        await (await run(page_apart, "1 / 0")).get_by_role("button", name="Fix it").click()
        question = page.locator(".question .body").last
        await expect(question).to_contain_text("Correct it, and write the whole code again.")
        await expect(question).to_contain_text("Line 1: 1 / 0\nZeroDivisionError: division by zero")
        await page_apart.wait_for("ready")
    outputs = await run(page_apart, "1 / 0")
    await expect(outputs.locator(".python-note")).to_contain_text("3 attempts did not correct it.")
    await run(page_apart, "1")
    await expect((await run(page_apart, "1 / 0")).get_by_role("button", name="Fix it")).to_be_visible()
