"""Features of the page alone: other tabs, versions that meet, quotas, windows without storage."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext

from app.building.system import CHROMIUM_FLAGS
from app.records.branches import Turn
from app.records.sessions import Sessions
from app.runtime import Runtime, RuntimeConfig
from py_core.store.errors import StoreError, as_reason
from py_core.store.fallback import FallbackRows
from py_core.store.records import Record
from py_core.store.rows import LAYOUT
from py_core.store.store import Store
from tests.store.browser.page import BrowserThread, LimitedTab, PageCrypto, PageRows, Tab
from tests.store.places import ANY_BODY

OpenTab = Callable[[], Awaitable[Tab]]
RAW_OPEN = """([name, version]) => new Promise((resolve, reject) => {
  const request = indexedDB.open(name, version);
  request.onupgradeneeded = () => {
    if (version > 1) return;
    const rows = request.result.createObjectStore('rows', { keyPath: ['kind', 'id'] });
    rows.createIndex('time', ['kind', 'created', 'id']);
    const meta = request.result.createObjectStore('meta');
    meta.put('1', 'schema');
    meta.put('7', 'revision');
    for (let n = 0; n < 1500; n++) {
      const body = new TextEncoder().encode(JSON.stringify({ agent: n % 2 ? 'coder' : 'tester' }));
      rows.put({ kind: 'pattern', id: `p${String(n).padStart(4, '0')}`, created: n, updated: n, version: 7, body });
    }
  };
  request.onblocked = () => reject(new Error('blocked'));
  request.onerror = () => reject(request.error);
  request.onsuccess = () => {
    window.raw = request.result;
    resolve();
  };
})"""


REASON_TO_OPEN_NONE = """async (LAYOUT) => {
  const { memoryStore } = await import('/memory/indexeddb.js');
  return memoryStore.open('memory', LAYOUT).then(() => 'opened', (error) => error.name);
}"""
SILENT = """async ([name, LAYOUT]) => {
  const { memoryStore } = await import('/memory/indexeddb.js');
  const { open } = IDBFactory.prototype, setTimeout_ = window.setTimeout, waited = [];
  IDBFactory.prototype.open = function (name, version) {
    const request = open.call(this, name, version);
    for (const told of ['success', 'error', 'blocked', 'upgradeneeded']) {
      request.addEventListener(told, (event) => event.stopImmediatePropagation());
    }
    return request;
  };
  window.setTimeout = (run, ms) => setTimeout_(run, waited.push(ms) && ms / 1000);
  const opening = memoryStore.open(name, LAYOUT).then(() => 'opened', (error) => error.name);
  const limit = new Promise((resolve) => setTimeout_(resolve, 60_000, 'hangs'));
  try {
    return [await Promise.race([opening, limit]), waited];
  } finally {
    IDBFactory.prototype.open = open;
    window.setTimeout = setTimeout_;
  }
}"""
NEWER = """
async def main(name, version):
    database = await memory_store.open(name, version)
    nothing = {"puts": [], "deletes": [], "clear": None, "meta": {}, "expectMeta": {}, "expectVersions": []}
    return int(await database.apply(json.dumps(nothing), no_bytes()))

def no_bytes():
    from pyodide.ffi import to_js
    return to_js(b"")
"""


def record(id: str, **body: object) -> Record:
    return Record("pattern", id, dict(body), created=1.0, updated=1.0)


async def opened(tab: Tab, name: str) -> Store:
    return await Store.open(await PageRows.open(tab, name), crypto=PageCrypto(tab), kinds=ANY_BODY)


async def test_a_database_of_version_1_is_brought_to_the_present_version(open_tab: OpenTab, name: str) -> None:
    tab = await open_tab()
    await tab.evaluate(RAW_OPEN, [name, 1])
    await tab.evaluate("raw.close()")

    store = await opened(tab, name)

    assert await store.count() == 1500
    assert len(await store.query("pattern", {"agent": "coder"})) == 750
    assert await store.revision() == 8
    await store.close()
    assert await (await opened(tab, name)).revision() == 8


async def test_a_newer_database_is_refused_and_left_alone(open_tab: OpenTab, name: str) -> None:
    tab = await open_tab()
    await (await opened(tab, name)).put(record("kept"))
    await tab.evaluate(RAW_OPEN, [name, LAYOUT + 1])
    with pytest.raises(StoreError, match="Update Sonata") as raised:
        await opened(tab, name)
    assert raised.value.reason == "newer"
    assert await tab.evaluate("raw.version") == LAYOUT + 1


@pytest.mark.all
async def test_a_tab_that_keeps_an_old_version_open_is_named(open_tab: OpenTab, name: str) -> None:
    new = await open_tab()
    old = await new.thread.do(new.page.context.new_page())
    await new.thread.do(old.goto(new.page.url))
    await new.thread.do(old.evaluate(RAW_OPEN, [name, 1]))  # and does not close
    with pytest.raises(StoreError, match="Close that tab") as raised:
        await opened(new, name)
    assert raised.value.reason == "blocked"
    await new.thread.do(old.close())
    assert await (await opened(new, name)).count() == 1500


async def test_a_newer_version_in_another_tab_gets_the_database(open_tab: OpenTab, name: str) -> None:
    old, new = await open_tab(), await open_tab()
    told = list[StoreError]()
    store = await Store.open(FallbackRows(await PageRows.open(old, name), told.append), kinds=ANY_BODY)
    plain = await opened(old, name)
    await store.put(record("a"))

    assert await new.call("run", NEWER, name, LAYOUT + 1) == 2  # and it need not ask the old one to write

    with pytest.raises(StoreError, match="Another tab updated Sonata") as raised:
        await plain.put(record("b"))
    assert raised.value.reason == "replaced"
    await store.put(record("b"))
    assert [r.id async for r in store.scan()] == ["b"]
    assert [error.reason for error in told] == ["replaced"]
    assert not store.persistent


async def test_a_database_that_is_deleted_elsewhere_is_told(open_tab: OpenTab, name: str) -> None:
    here, there = await open_tab(), await open_tab()
    store = await opened(here, name)
    await store.put(record("a"))
    await there.evaluate(
        """(name) => new Promise((resolve, reject) => {
      const request = indexedDB.deleteDatabase(name);
      request.onsuccess = resolve;
      request.onerror = () => reject(request.error);
    })""",
        name,
    )
    with pytest.raises(StoreError) as raised:
        await store.get("pattern", "a")
    assert raised.value.reason == "closed"
    assert await (await opened(here, name)).count() == 0


async def test_a_quota_that_is_exceeded_loses_nothing(limited: LimitedTab) -> None:
    async def fill(store: Store) -> None:
        for n in range(60):
            await store.put(record(f"big{n}", text=secrets.token_hex(50_000)))  # which does not compress

    await limited.set_quota(3_000_000)
    store = await opened(limited.tab, "memory")
    kept = [record(f"k{n:02d}", text="x" * 1000) for n in range(20)]
    await store.put_many(kept)
    with pytest.raises(StoreError, match="no space left") as raised:
        await fill(store)
    assert raised.value.reason == "quota"
    stored = [r async for r in store.scan()]
    assert len(stored) < 60
    assert [r for r in stored if r.id.startswith("k")] == kept

    told = list[StoreError]()
    going_on = await Store.open(FallbackRows(await PageRows.open(limited.tab, "memory"), told.append), kinds=ANY_BODY)
    await fill(going_on)
    assert [error.reason for error in told] == ["quota"]
    assert await going_on.count() == 80
    assert not going_on.persistent

    await limited.set_quota(None)
    await store.put(record("after"))
    assert await (await opened(limited.tab, "memory")).get("pattern", "after") == record("after")


@pytest.mark.all
async def test_pages_that_are_kept_give_their_space_to_what_is_remembered(limited: LimitedTab) -> None:
    tab = limited.tab
    await limited.set_quota(5_000_000)
    runtime = await Runtime.open(
        RuntimeConfig(lambda: PageRows.open(tab, "memory"), pages=lambda: PageRows.open(tab, "pages"))
    )
    chat = (await runtime.memory.sessions.start("Of islands")).id
    shelf = runtime.pages.shelf(chat)
    names = [f"{number:032x}" for number in range(10)]
    for name in names:
        assert await shelf.write(name, secrets.token_bytes(400_000))
    assert len(await shelf.names()) == 10

    said = [secrets.token_hex(50_000) for _ in range(30)]
    for text in said:
        await runtime.memory.sessions.add_turns(chat, Turn("user", text))
    assert runtime.memory.store.persistent
    assert runtime.problem is None
    assert not await shelf.names()
    assert not await shelf.write(names[0], b"x"), "what was made room for would be full again"
    again = Sessions(await opened(tab, "memory"))
    assert [turn.content for turn in (await again.branches(chat)).turns] == said
    await runtime.close()


@pytest.fixture
def no_storage(tmp_path: Path) -> Path:
    """A profile that lets no site store anything."""
    preferences = {"profile": {"default_content_setting_values": {"cookies": 2}}}
    (tmp_path / "Default").mkdir()
    (tmp_path / "Default" / "Preferences").write_text(json.dumps(preferences))
    return tmp_path


async def test_a_browser_that_says_nothing_of_a_database_is_not_waited_for(
    get_tab: Callable[[], Tab], name: str
) -> None:
    assert await get_tab().evaluate(SILENT, [name, LAYOUT]) == ["unavailable", [30_000]]


async def test_a_window_without_storage_is_told(
    no_storage: Path, browser_thread: BrowserThread, chromium_path: Path, site: str
) -> None:
    chromium = browser_thread.playwright.chromium
    context: BrowserContext = await browser_thread.do(
        chromium.launch_persistent_context(no_storage, executable_path=chromium_path, args=CHROMIUM_FLAGS)
    )
    page = await browser_thread.do(context.new_page())
    await browser_thread.do(page.goto(f"{site}/THIRD_PARTY.txt"))
    reason = await browser_thread.do(page.evaluate(REASON_TO_OPEN_NONE, LAYOUT))
    await browser_thread.do(context.close())
    assert as_reason(reason) == "unavailable"
