"""The site's headers forbid what they should, whether the server sends them or the service worker adds them.

The tests of the page's parts show that it complies with them: their servers send the headers, too, and a violation
is an error on the console, which fails a test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext

from app.server.headers import HEADERS, headers_of
from tests.page.chat_page import NO_SERVICE_WORKER, ChatPage
from tests.page.plain_server import PlainServer
from tests.page.small_site import SmallSite

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRY = """async (acts) => {
  const ended = () => new Promise((resolve) => setTimeout(resolve));
  const told = [];
  let now = new Set(); // the page has two policies, of its header and of its tag: both may tell
  const note = ({ effectiveDirective }) => now.add(effectiveDirective);
  (globalThis.document ?? self).addEventListener('securitypolicyviolation', note);
  for (const act of acts) {
    try { await act(); } catch { /* told by the event, too */ }
    for (let turn = 0; turn < 200 && now.size === 0; turn++) await ended();
    await ended();
    told.push([...now].join());
    now = new Set();
  }
  return told;
}"""
HOSTILE_PAGE = f"""globalThis.tried = ({TRY})([
  () => new Function('return 1')(),
  () => new Worker('common/dom.js'),
  () => {{ document.createElement('p').innerHTML = '<b>bold</b>'; }},
  () => {{ document.body.append(Object.assign(document.createElement('script'), {{ textContent: 'harmed = 1' }})); }},
  () => {{ document.body.append(Object.assign(new Image(), {{ src: 'https://elsewhere.example/tracker.png' }})); }},
  () => {{ document.body.append(Object.assign(document.createElement('iframe'), {{ src: 'https://a.example' }})); }},
  () => import('https://elsewhere.example/script.js'),
  () => fetch('https://elsewhere.example/'),
]);"""
HOSTILE_WORKER = f"""({TRY})([
  () => new Function('return 1')(),
  () => new Worker('../common/dom.js'),
  () => fetch('https://elsewhere.example/'),
]).then(async (refused) => {{
  await WebAssembly.compile(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0)); // which it may
  self.postMessage(refused);
}});"""
RUN_WORKER = """async (holding) => {
  const { ownScript } = await import(`./${holding}`);
  const worker = new Worker(ownScript('routing/embedder_worker.js'));
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = ({ message }) => reject(new Error(message));
  });
}"""


@pytest.fixture(scope="module")
def light(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> SmallSite:
    """Without the engine and its large files, with scripts that try things that their policies forbid."""
    small = SmallSite(dist, tmp_path_factory.mktemp("policy") / "site")
    small.write("hostile.js", HOSTILE_PAGE)
    small.write("routing/embedder_worker.js", HOSTILE_WORKER)
    small.use_stand_in()
    return small


@pytest_asyncio.fixture(loop_scope="session", params=["server", "service worker"])
async def guarded(request: pytest.FixtureRequest, context: BrowserContext, light: SmallSite) -> AsyncIterator[ChatPage]:
    """The page, ready, with the headers from one of the two."""
    with PlainServer(light.folder) as server:
        if request.param == "server":
            server.guards = True
            await context.add_init_script(NO_SERVICE_WORKER)
        chat = ChatPage(await context.new_page(), server.url)
        await chat.open_ready("?backend=wasm")
        yield chat


async def test_what_the_headers_forbid_is_refused(guarded: ChatPage, light: SmallSite) -> None:
    sent: Any = "path => fetch(path).then(({ headers }) => Object.fromEntries(headers))"
    for path in ("index.html", "engine/worker.js", "downloads/model_worker.js"):
        found = await guarded.page.evaluate(sent, path)
        wanted = HEADERS | {"Content-Security-Policy": headers_of(path)["Content-Security-Policy"]}
        assert {name: found.get(name.lower()) for name in wanted} == wanted
    assert guarded.errors == []

    assert await guarded.page.evaluate(RUN_WORKER, light.holding("common/own_script.js")) == [
        "require-trusted-types-for",
        "require-trusted-types-for",
        "connect-src",
    ]
    await guarded.page.evaluate("import('./hostile.js').then(() => {})")
    assert await guarded.page.evaluate("tried") == [
        "require-trusted-types-for",
        "require-trusted-types-for",
        "require-trusted-types-for",
        "require-trusted-types-for",
        "img-src",
        "frame-src",
        "script-src-elem",
        "connect-src",
    ]
    assert await guarded.page.evaluate("globalThis.harmed") is None
    assert len(guarded.errors) >= 8, "each of them is an error on the console, which other tests want empty"
