"""What only the page has: other tabs, versions that meet, quotas, windows without storage."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from page import FLAGS, BrowserThread, PageCrypto, PageRows, Tab
from playwright.async_api import Browser, BrowserContext

from py_core.memory.errors import StoreError
from py_core.memory.fallback import FallbackRows
from py_core.memory.records import Record
from py_core.memory.rows import LAYOUT, Change
from py_core.memory.store import Store

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
    return await Store.open(await PageRows.open(tab, name), crypto=PageCrypto(tab))


class Tabs:
    """Tabs of one window, used again by test after test: starting Python takes its time."""

    def __init__(self, open_one: Callable[[], Tab]) -> None:
        self._open_one = open_one
        self._free: list[Tab] = []
        self._used: list[Tab] = []

    async def open(self) -> Tab:
        tab = self._free.pop() if self._free else await asyncio.to_thread(self._open_one)
        self._used.append(tab)
        return tab

    async def end_test(self) -> None:
        alive = [tab for tab in self._used if not tab.page.is_closed()]
        self._free += [tab for tab in alive if not await tab.evaluate("window.ended ?? false")]
        self._used.clear()


@pytest.fixture(scope="module")
def tabs(browser_thread: BrowserThread, chromium: Browser, site: str) -> Iterator[Tabs]:
    context = browser_thread.wait(chromium.new_context())
    yield Tabs(lambda: Tab.open(browser_thread, context, site))
    browser_thread.wait(context.close())


@pytest_asyncio.fixture
async def open_tab(tabs: Tabs) -> AsyncIterator[OpenTab]:
    yield tabs.open
    await tabs.end_test()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a database that no other test uses."""
    return request.node.name


async def test_a_database_of_version_1_is_brought_to_version_2(open_tab: OpenTab, name: str) -> None:
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


async def test_a_tab_that_keeps_an_old_version_open_is_named(open_tab: OpenTab, name: str) -> None:
    old, new = await open_tab(), await open_tab()
    await old.evaluate(RAW_OPEN, [name, 1])  # and does not make way
    with pytest.raises(StoreError, match="Close that tab") as raised:
        await opened(new, name)
    assert raised.value.reason == "blocked"
    await asyncio.to_thread(old.close)
    assert await (await opened(new, name)).count() == 1500


async def test_a_newer_version_in_another_tab_gets_the_database(open_tab: OpenTab, name: str) -> None:
    old, new = await open_tab(), await open_tab()
    told = list[StoreError]()
    store = await Store.open(FallbackRows(await PageRows.open(old, name), told.append))
    plain = await opened(old, name)
    await store.put(record("a"))

    assert await new.call("run", NEWER, name, LAYOUT + 1) == 2  # and it need not ask the old one to write

    with pytest.raises(StoreError, match="updated in another tab") as raised:
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


async def test_a_quota_that_is_exceeded_loses_nothing(
    browser_thread: BrowserThread, chromium: Browser, site: str
) -> None:
    context = await browser_thread.do(chromium.new_context())
    tab = await asyncio.to_thread(Tab.open, browser_thread, context, site)
    session = await browser_thread.do(context.new_cdp_session(tab.page))

    async def quota(**size: int) -> None:
        await browser_thread.do(session.send("Storage.overrideQuotaForOrigin", {"origin": site, **size}))

    async def fill(store: Store) -> None:
        for n in range(60):
            await store.put(record(f"big{n}", text=secrets.token_hex(50_000)))  # which does not compress

    await quota(quotaSize=3_000_000)
    store = await opened(tab, "memory")
    kept = [record(f"k{n:02d}", text="x" * 1000) for n in range(20)]
    await store.put_many(kept)
    with pytest.raises(StoreError, match="no space left") as raised:
        await fill(store)
    assert raised.value.reason == "quota"
    stored = [r async for r in store.scan()]
    assert len(stored) < 60
    assert [r for r in stored if r.id.startswith("k")] == kept

    told = list[StoreError]()
    going_on = await Store.open(FallbackRows(await PageRows.open(tab, "memory"), told.append))
    await fill(going_on)
    assert [error.reason for error in told] == ["quota"]
    assert await going_on.count() == 80
    assert not going_on.persistent

    await quota()
    await store.put(record("after"))
    assert await (await opened(tab, "memory")).get("pattern", "after") == record("after")
    await browser_thread.do(context.close())


@pytest.fixture
def no_storage(tmp_path: Path) -> Path:
    """A profile that lets no site keep anything."""
    preferences = {"profile": {"default_content_setting_values": {"cookies": 2}}}
    (tmp_path / "Default").mkdir()
    (tmp_path / "Default" / "Preferences").write_text(json.dumps(preferences))
    return tmp_path


async def test_a_window_without_storage_is_told(
    no_storage: Path, browser_thread: BrowserThread, chromium_path: Path, site: str
) -> None:
    chromium = browser_thread.playwright.chromium
    context: BrowserContext = await browser_thread.do(
        chromium.launch_persistent_context(no_storage, executable_path=chromium_path, args=FLAGS)
    )
    tab = await asyncio.to_thread(Tab.open, browser_thread, context, site)
    with pytest.raises(StoreError) as raised:
        await opened(tab, "memory")
    assert raised.value.reason == "unavailable"
    await browser_thread.do(context.close())


async def test_tabs_hear_of_each_others_writes(open_tab: OpenTab, name: str) -> None:
    tabs = [await open_tab(), await open_tab(), await open_tab()]
    rows = [await PageRows.open(tab, name) for tab in tabs]
    stores = [await Store.open(each) for each in rows]
    for number, store in enumerate(stores):
        await store.put(record(f"of {number}"))
        await asyncio.sleep(0.2)
        told = Change(puts=(("pattern", f"of {number}"),), elsewhere=True)
        assert [await each.heard() for each in rows] == [[] if n == number else [told] for n in range(3)]
    await stores[1].clear("pattern")
    await asyncio.sleep(0.2)
    assert await rows[0].heard() == await rows[2].heard() == [Change(cleared="pattern", elsewhere=True)]
    assert await stores[0].count() == 0


async def test_one_tab_writes_for_all(open_tab: OpenTab, name: str) -> None:
    writer, other = await open_tab(), await open_tab()
    first, second = await opened(writer, name), await PageRows.open(other, name)
    locks = await other.evaluate("navigator.locks.query()")
    for state in ("held", "pending"):
        assert [lock["name"] for lock in locks[state]].count(f"sonata-memory:{name}") == 1
    await first.put(record("by itself"))
    assert "requests" not in await second.meta()
    await (await Store.open(second)).put(record("by the other", vector=[1]))
    assert len(json.loads((await second.meta())["requests"])) == 1


async def count_up(store: Store, rounds: int, acknowledged: list[str], name: str, some: asyncio.Event) -> None:
    for number in range(rounds):
        await store.put(Record("pattern", f"{name}{number}", {}, np.ones(4, np.float32)))
        await store.update("policy", "counter", lambda r: replace(r, body={"n": r.body["n"] + 1}))
        acknowledged.append(f"{name}{number}")
        if len(acknowledged) == 10:
            some.set()


@pytest.mark.parametrize("how", ["endWorker()", "close"])
async def test_when_the_writer_goes_another_takes_over_and_nothing_is_lost_or_done_twice(
    open_tab: OpenTab, name: str, how: str
) -> None:
    writer, *others = [await open_tab() for _ in range(3)]
    first = await opened(writer, name)
    await first.put(Record("policy", "counter", {"n": 0}))
    stores = [await opened(tab, name) for tab in others]
    acknowledged: list[str] = []
    some = asyncio.Event()

    async def end_the_writer() -> None:
        await some.wait()
        if how == "close":
            await asyncio.to_thread(writer.close)
        else:
            await writer.evaluate(how)

    work = [count_up(store, 30, acknowledged, each, some) for store, each in zip(stores, "ab", strict=True)]
    await asyncio.gather(*work, end_the_writer())

    assert len(acknowledged) == 60
    assert {r.id async for r in stores[0].scan("pattern")} == set(acknowledged)
    counter = await stores[1].get("policy", "counter")
    assert counter is not None
    assert counter.body == {"n": 60}


async def test_a_writer_that_does_not_answer_is_not_waited_for(open_tab: OpenTab, name: str) -> None:
    writer, other = await open_tab(), await open_tab()
    first, second = await opened(writer, name), await opened(other, name)
    await first.put(record("a"))
    hangs = asyncio.ensure_future(writer.call("run", "async def main():\n    while True: pass"))
    await asyncio.sleep(0.2)

    await second.put(record("b"))

    assert [r.id async for r in second.scan()] == ["a", "b"]
    await asyncio.to_thread(writer.close)
    with pytest.raises(Exception, match="closed"):
        await hangs
    await second.put(record("c"))
    assert await second.count() == 3
