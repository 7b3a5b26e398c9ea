"""The page with its service worker: without a server, with a new version, isolated by itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, expect

from tests.page.chat_page import ChatPage
from tests.page.plain_server import PlainServer
from tests.page.small_site import SmallSite

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

QUERY = "?backend=wasm&workers=2"
GENERATE = """() => sonata.engine.developer
  .generate({ prompt: 'Once upon a time', raw: true, maxTokens: 20 }).then((made) => made.tokens)"""
ACCENT = "getComputedStyle(document.documentElement).accentColor"
READER = "readers/any.safetensors"
FETCHED_IF_THERE = "(path) => fetch(path).then((response) => response.text()).catch(() => 'failed')"
FETCHED_STYLE = "fetch('shell/style.css').then((response) => response.text())"
FROM_A_WORKER = """async (holding) => {
  const { ownScript } = await import(`./${holding}`);
  const worker = new Worker(ownScript('probe.js'), { type: 'module' });
  return new Promise((resolve) => { worker.onmessage = ({ data }) => resolve(data); });
}"""
KEPT_FILES = "caches.open('sonata-site-1').then((cache) => cache.keys()).then((keys) => keys.length)"
WITHOUT_HEADERS = b"self.oninstall = () => skipWaiting(); self.onactivate = () => clients.claim();"
GONE_AT_ONCE = b"""self.oninstall = () => skipWaiting();
self.onactivate = () => clients.claim().then(() => registration.unregister());"""
NEW = "rgb(1, 2, 3)"
TAKEN_OVER = """() => new Promise((resolve) => {
  navigator.serviceWorker.addEventListener('controllerchange', resolve, { once: true });
  navigator.serviceWorker.getRegistration().then((registration) => registration.update());
})"""


@pytest.fixture
def no_engine(small: SmallSite) -> None:
    """The page's worker is a stand-in if a test is about the files and not the answers: it needs no large files."""
    small.use_stand_in()


def loads_of(chat: ChatPage) -> list[str]:
    """Records the addresses that the tab loads from now on."""
    loads: list[str] = []
    chat.page.on("domcontentloaded", lambda page: loads.append(page.url))
    return loads


async def open_page(context: BrowserContext, url: str, more: str = "") -> ChatPage:
    """A tab with the page, ready, and everything stored. more: more of the query."""
    chat = ChatPage(await context.new_page(), url)
    await chat.open_ready(QUERY + more)
    await kept(chat)
    return chat


async def kept(chat: ChatPage) -> None:
    await chat.page.wait_for_function("() => document.documentElement?.dataset.offline === 'ready'", timeout=30_000)


def hasten(small: SmallSite, **ms: int) -> None:
    """Change the service worker's timeouts, by the names of its constants."""
    script = small.read("sw.js")
    for name, value in ms.items():
        script, changes = re.subn(rf"\b{name} = [\d_]+;", f"{name} = {value};", script)
        assert changes == 1, name
    small.write("sw.js", script)


async def reload(chat: ChatPage) -> None:
    await chat.page.reload()
    await chat.wait_for("ready", 60)


async def checked(chat: ChatPage) -> None:
    """Wait until the service worker has looked for a new version, and told its pages."""
    await chat.page.evaluate(
        """() => new Promise((resolve) => {
          navigator.serviceWorker.addEventListener('message', resolve, { once: true });
          navigator.serviceWorker.controller.postMessage({ kind: 'check' });
        })"""
    )


async def notice(chat: ChatPage) -> str:
    await chat.page.wait_for_selector("#notices p")
    return await chat.page.inner_text("#notices p")


# --- without a server ---


async def test_a_page_that_its_service_worker_isolates_starts_and_answers_when_the_server_is_gone(
    context: BrowserContext, server: PlainServer
) -> None:
    """The server sends no headers: the first visit loads the page twice, and downloads each file once."""
    first = ChatPage(await context.new_page(), server.url)
    loads = loads_of(first)
    await first.open_ready(QUERY)
    assert len(loads) == 2
    await kept(first)
    large = [path for path in server.paths() if path.startswith(("pyodide/", "sonata.packed", "models/", "kernels/"))]
    assert sorted(large) == sorted(set(large))
    tokens = await first.page.evaluate(GENERATE)
    server.stop()
    await first.page.close()

    chat = ChatPage(await context.new_page(), server.url)
    loads = loads_of(chat)
    await chat.open_ready(QUERY)
    assert len(loads) == 1
    assert await chat.page.evaluate(GENERATE) == tokens
    await chat.ask("Hello.")
    assert await chat.page.evaluate("sonata.lastAnswer.newTokens") > 0
    assert await chat.page.evaluate("crossOriginIsolated")
    await expect(chat.page.locator(".status-reason")).to_contain_text("2 workers")
    assert (first.errors, chat.errors) == ([], [])


@pytest.mark.all
async def test_the_same_with_the_server_that_people_run(
    context: BrowserContext, small: SmallSite, start_server
) -> None:
    process, address = start_server(small.folder)
    chat = await open_page(context, address)
    first = await chat.page.evaluate(GENERATE)
    process.terminate()
    process.communicate(timeout=10)
    await chat.page.close()

    chat = await open_page(context, address)

    assert await chat.page.evaluate(GENERATE) == first
    await chat.ask("Hello.")
    assert await chat.page.evaluate("sonata.lastAnswer.newTokens") > 0
    assert await chat.page.evaluate("crossOriginIsolated")
    await expect(chat.page.locator(".status-reason")).to_contain_text("2 workers")
    assert chat.errors == []


@pytest.mark.usefixtures("no_engine")
async def test_what_is_needed_later_is_kept_from_when_it_is_asked_for_and_a_new_version_brings_its_own(
    context: BrowserContext, server: PlainServer, small: SmallSite
) -> None:
    """The adapter that reads facts: a user who teaches nothing does not download it."""
    small.write("readers/never.safetensors", "never asked for")
    small.write(READER, "one")
    small.publish()
    chat = await open_page(context, server.url)
    assert READER not in server.paths()
    assert await chat.page.evaluate(FETCHED_IF_THERE, READER) == "one"
    assert server.paths().count(READER) == 1
    small.write(READER, "two")
    small.publish()
    await reload(chat)
    await checked(chat)
    server.stop()
    await reload(chat)
    assert await chat.page.evaluate(FETCHED_IF_THERE, READER) == "two"
    assert await chat.page.evaluate(FETCHED_IF_THERE, "readers/never.safetensors") == "failed"


# --- isolation ---


@pytest.mark.usefixtures("no_engine")
async def test_where_no_service_worker_can_isolate_it_the_page_goes_on(
    browser: Browser, server: PlainServer, small: SmallSite
) -> None:
    """test_wasm.py covers the page with one worker."""

    async def loads_without_isolation() -> int:
        """The number of times that the page was loaded until it was ready."""
        context = await browser.new_context()
        chat = ChatPage(await context.new_page(), server.url)
        loads = loads_of(chat)
        await chat.open_ready(QUERY)
        assert not await chat.page.evaluate("crossOriginIsolated")
        await context.close()
        return len(loads)

    for script in (WITHOUT_HEADERS, GONE_AT_ONCE):
        server.instead["sw.js"] = script
        assert await loads_without_isolation() == 2, script
    server.instead.clear()
    (small.folder / "sw.js").unlink()
    assert await loads_without_isolation() == 1


# --- updates ---


@pytest.mark.usefixtures("no_engine")
async def test_on_localhost_each_load_brings_what_changed_and_an_update_that_fails_leaves_the_version_before(
    context: BrowserContext, server: PlainServer, small: SmallSite
) -> None:
    def files_asked() -> list[str]:
        return [path for path in server.paths() if path not in ("precache.json", "sw.js")]

    async def accent() -> str:
        return await chat.page.evaluate(ACCENT)

    chat = await open_page(context, server.url)
    server.paths()
    await reload(chat)
    await checked(chat)
    assert files_asked() == [], "it asks only whether there is something new"

    small.publish_new_style()
    await reload(chat)
    await checked(chat)
    assert await accent() == NEW
    assert files_asked() == ["shell/style.css"]
    assert await chat.page.locator("#notices p").count() == 0

    # The connection breaks in the middle of one of two files; the other is not fetched again.
    newer = "rgb(4, 5, 6)"
    small.write("bundle/main.js", small.read("bundle/main.js") + "\n// new")
    small.publish_new_style(newer)
    server.breaks["bundle/main.js"] = 1000
    await reload(chat)
    assert await accent() == NEW
    assert newer not in await chat.page.evaluate(FETCHED_STYLE)
    assert "// new" not in await chat.page.evaluate(FETCHED, "bundle/main.js")
    assert set(files_asked()) == {"shell/style.css", "bundle/main.js"}
    server.breaks.clear()
    await reload(chat)
    assert await accent() == newer
    assert set(files_asked()) == {"bundle/main.js"}

    # A file differs from the list.
    small.publish_new_style("rgb(7, 8, 9)")
    server.instead["shell/style.css"] = b"body { display: none }"
    await reload(chat)
    await checked(chat)
    await expect(chat.page.locator("#message")).to_be_visible()
    assert await accent() == newer
    assert "display: none }" not in (await chat.page.evaluate(FETCHED_STYLE))[:30]
    assert "shell/style.css on the server is not the file that its list names" in await notice(chat)
    server.instead.clear()

    # The server goes in the middle.
    server.breaks["shell/style.css"] = 10
    await reload(chat)
    server.stop()
    await reload(chat)
    assert await accent() == newer
    await chat.ask("Hello.")
    assert await chat.page.evaluate("sonata.lastAnswer.newTokens") > 0


@pytest.mark.usefixtures("no_engine")
async def test_elsewhere_a_page_starts_with_what_is_there_and_takes_the_new_version_by_a_click(
    context: BrowserContext, far_server: PlainServer, small: SmallSite
) -> None:
    chat = await open_page(context, far_server.url)
    small.publish_new_style()
    far_server.holds["precache.json"] = 0
    await reload(chat)
    await chat.page.evaluate("window.sameDocument = true")
    assert await chat.page.evaluate(ACCENT) != NEW
    far_server.holds.clear()

    assert "A new version is ready: reload" in (await notice(chat)).replace("\n", " ")
    await checked(chat)  # also when it is told again
    assert await chat.page.evaluate("window.sameDocument")
    assert await chat.page.evaluate(ACCENT) != NEW
    await chat.page.click("#notices button.link")
    await chat.page.wait_for_function("() => !window.sameDocument")
    await chat.wait_for("ready", 60)
    assert await chat.page.evaluate(ACCENT) == NEW
    await checked(chat)
    assert await chat.page.locator("#notices p").count() == 0


@pytest.mark.usefixtures("no_engine")
async def test_a_page_that_is_open_keeps_its_version_beside_one_with_the_new(
    context: BrowserContext, far_server: PlainServer, small: SmallSite
) -> None:
    small.write("probe.js", "import { version } from './probe_part.js'; postMessage(version);")
    small.write("probe_part.js", "export const version = 'old';")
    small.publish()
    own_script = small.holding("common/own_script.js")
    old = await open_page(context, far_server.url)
    small.write("probe_part.js", "export const version = 'new';")
    small.publish_new_style()
    await checked(old)
    # The stand-in does not serve other tabs: another tab would wait a minute before it starts its own.
    new = await open_page(context, far_server.url, "&max_tokens=9")

    assert await new.page.evaluate(ACCENT) == NEW
    assert NEW in await new.page.evaluate(FETCHED_STYLE)
    assert await new.page.evaluate(FROM_A_WORKER, own_script) == "new"
    assert NEW not in await old.page.evaluate(FETCHED_STYLE)
    assert await old.page.evaluate(FROM_A_WORKER, own_script) == "old"
    # The browser ends an idle service worker; its state must be there when it starts again.
    session = await context.new_cdp_session(old.page)
    await session.send("ServiceWorker.enable")
    await session.send("ServiceWorker.stopAllWorkers")
    assert NEW not in await old.page.evaluate(FETCHED_STYLE)
    assert await old.page.evaluate(FROM_A_WORKER, own_script) == "old"


@pytest.mark.usefixtures("no_engine")
async def test_files_of_versions_that_nobody_uses_are_deleted(
    context: BrowserContext, server: PlainServer, small: SmallSite
) -> None:
    hasten(small, QUIET_MS=500)  # otherwise the new service worker waits until the old one has checked everything
    small.publish()
    chat = await open_page(context, server.url)
    before = await chat.page.evaluate(KEPT_FILES)
    await chat.page.close()
    page = await context.new_page()
    for green in range(4):
        small.publish_new_style(f"rgb(1, {green}, 3)")
        await page.goto(f"{server.url}/THIRD_PARTY.txt")
    assert await page.evaluate(KEPT_FILES) >= before + 3, "a page that may still be on its way keeps its version"
    hasten(small, NEWBORN_MS=0)
    small.publish()
    await page.evaluate(TAKEN_OVER)
    await page.goto(f"{server.url}/THIRD_PARTY.txt")
    await checked(ChatPage(page, server.url))
    assert await page.evaluate(KEPT_FILES) == before


@pytest.mark.usefixtures("no_engine")
async def test_another_site_at_the_same_address_is_not_shadowed(
    browser: Browser, small: SmallSite, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "index.html").write_text("<title>Another site</title>")
    for has_a_page_for_everything in (False, True):
        context = await browser.new_context()
        with PlainServer(small.folder) as server:
            chat = await open_page(context, server.url)
        with PlainServer(other, port=server.port) as its_server:
            if has_a_page_for_everything:
                its_server.instead |= dict.fromkeys(("precache.json", "sw.js"), b"<title>Another site</title>")
            await chat.page.goto(server.url)
            assert await chat.page.title() == "Another site"
            registered = "navigator.serviceWorker.getRegistrations().then((all) => all.length)"
            await chat.page.goto(server.url)
            assert await chat.page.evaluate(registered) == 0
            assert await chat.page.evaluate("caches.keys()") == []
        await context.close()


@pytest.mark.usefixtures("no_engine")
async def test_without_room_the_page_works_and_tells_that_it_needs_its_server(
    context: BrowserContext, server: PlainServer
) -> None:
    page = await context.new_page()
    await page.goto(f"{server.url}/THIRD_PARTY.txt")
    session = await context.new_cdp_session(page)
    await session.send("Storage.overrideQuotaForOrigin", {"origin": server.url, "quotaSize": 100_000})
    chat = ChatPage(await context.new_page(), server.url)
    await chat.open_ready()
    assert "no room in this browser to store the page" in await notice(chat)
    assert await chat.ask("Why is the sky blue?")


# --- damage ---

DAMAGE = """async ([path, text]) => {
  const cache = await caches.open('sonata-site-1');
  const { current, versions } = await (await cache.match('/.precache/state')).json();
  const key = `/.precache/${versions[current][path]}`;
  await cache.put(key, new Response(text, { headers: (await cache.match(key)).headers }));
}"""
FETCHED = "path => fetch(path).then((response) => response.text())"


@pytest.mark.usefixtures("no_engine")
async def test_a_script_that_was_damaged_in_the_browser_is_never_run_but_fetched_again(
    context: BrowserContext, far_server: PlainServer, small: SmallSite
) -> None:
    chat = await open_page(context, far_server.url)
    for path in ("bundle/main.js", "shell/first_paint.js"):
        await chat.page.evaluate(DAMAGE, [path, "harmed = 1"])
    far_server.paths()
    await reload(chat)
    assert await chat.page.evaluate("globalThis.harmed") is None
    assert await chat.page.evaluate(FETCHED, "bundle/main.js") == small.read("bundle/main.js")
    asked = [path for path in far_server.paths() if path not in ("precache.json", "sw.js")]
    assert sorted(asked) == ["bundle/main.js", "shell/first_paint.js"]


@pytest.mark.usefixtures("no_engine")
async def test_what_is_damaged_in_the_browser_is_found_when_the_page_is_quiet_and_mended_once_the_server_is_there(
    context: BrowserContext, server: PlainServer, small: SmallSite
) -> None:
    hasten(small, QUIET_MS=500)
    chat = await open_page(context, server.url)
    await chat.page.evaluate(DAMAGE, ["THIRD_PARTY.txt", "harmed"])
    server.breaks["THIRD_PARTY.txt"] = 1
    await reload(chat)
    assert "A part of the page (THIRD_PARTY.txt) is damaged in this browser" in await notice(chat)
    server.breaks.clear()
    await reload(chat)
    await chat.page.wait_for_selector("#notices p:has-text('has been fetched again')")
    server.paths()
    assert await chat.page.evaluate(FETCHED, "THIRD_PARTY.txt") == small.read("THIRD_PARTY.txt")
    assert server.paths() == []
