"""The start of the page's Python: from the snapshot, and without it if it does not fit."""

from __future__ import annotations

import gzip
import json

import pytest
from playwright.async_api import Browser, BrowserContext

from tests.page.chat_page import ChatPage, fresh_tab
from tests.page.plain_server import PlainServer
from tests.page.small_site import SmallSite

pytestmark = pytest.mark.asyncio(loop_scope="session")

SNAPSHOT = "pyodide/snapshot.packed"
QUERY = "?backend=wasm&workers=1&max_tokens=4&routing=off"
START = """async () => {
  const { bootPython } = await import('./engine/python_runtime.js');
  const { snapshot } = await (await fetch('./sizes.json')).json();
  const python = await bootPython(() => {}, snapshot);
  const told = await python.runPythonAsync(`
import asyncio, json, random, secrets, time, uuid
import numpy as np
import app.page.worker
from datetime import datetime
from pyodide.ffi import run_sync
run_sync(asyncio.sleep(0.001))
json.dumps({
    "sum": int(np.arange(5).sum()), "random": random.random(), "secret": secrets.token_hex(), "uuid": str(uuid.uuid4()),
    "time": time.time(), "offset": datetime.now().astimezone().utcoffset().total_seconds(),
})`);
  const restored = performance.getEntriesByName('sonata: python restored').length;
  return JSON.stringify({ ...JSON.parse(told), restored, now: Date.now() / 1000 });
}"""


async def restored(chat: ChatPage) -> int:
    """The number of times that the page's worker restored Python from the snapshot."""
    marks = "performance.getEntriesByName('sonata: python restored').length"
    worker = next(worker for worker in chat.page.workers if worker.url.endswith("engine/worker.js"))
    return await worker.evaluate(marks)


async def test_a_snapshot_holds_no_chance_no_secret_and_no_time(browser: Browser, tiny_site: str) -> None:
    told = []
    for zone in ("Asia/Tokyo", "America/New_York"):
        context = await browser.new_context(bypass_csp=True, service_workers="block", timezone_id=zone)
        page = await context.new_page()
        await page.goto(f"{tiny_site}/THIRD_PARTY.txt")
        told.append(json.loads(await page.evaluate(START)))
        await context.close()
    tokyo, york = told
    assert [one["restored"] for one in told] == [1, 1]
    assert tokyo["sum"] == york["sum"] == 10
    assert not {tokyo[name] for name in ("random", "secret", "uuid")} & {york[n] for n in ("random", "secret", "uuid")}
    assert all(abs(one["time"] - one["now"]) < 3600 for one in told)
    assert tokyo["offset"] == 9 * 3600
    assert york["offset"] in (-4 * 3600, -5 * 3600)


async def test_the_page_answers_with_a_python_out_of_the_snapshot(ready_chat: ChatPage) -> None:
    assert await restored(ready_chat) == 1
    await ready_chat.ask("Hello")


@pytest.mark.all
async def test_elsewhere_a_page_takes_the_snapshot_from_its_second_visit_on(
    context: BrowserContext, far_server: PlainServer
) -> None:
    far_server.guards = True  # otherwise the first visit reloads
    chat = ChatPage(await context.new_page(), far_server.url)
    await chat.open_ready(QUERY)
    assert await restored(chat) == 0
    await chat.page.wait_for_function("() => document.documentElement?.dataset.offline === 'ready'", timeout=60_000)
    await chat.open_ready(QUERY)
    assert await restored(chat) == 1
    await chat.ask("Hello")
    assert chat.errors == []


def other_memory(small: SmallSite) -> bytes:
    """The snapshot of another Pyodide: the number of its build differs."""
    memory = bytearray(gzip.decompress((small.folder / SNAPSHOT).read_bytes()))
    memory[16] ^= 1
    return gzip.compress(bytes(memory), 1)


def other_sources(small: SmallSite) -> bytes:
    """The snapshot of other sources: the stamp in it is not the one in the archive."""
    memory = gzip.decompress((small.folder / SNAPSHOT).read_bytes())
    stamp = stamp_of(small)
    assert stamp in memory
    return gzip.compress(memory.replace(stamp, stamp[::-1]), 1)


def stamp_of(small: SmallSite) -> bytes:
    archive = gzip.decompress((small.folder / "sonata.packed").read_bytes())
    at = archive.index(b"app/page/stamp.txt") + len(b"app/page/stamp.txt")
    return archive[at : at + 64]


DOES_NOT_FIT = {
    "another Pyodide": other_memory,
    "other sources": other_sources,
    "no gzip": lambda small: b"<!doctype html><title>Page not found</title>",
}


@pytest.mark.parametrize(
    "why", [pytest.param(why, marks=() if why == "other sources" else pytest.mark.all) for why in DOES_NOT_FIT]
)
async def test_where_the_snapshot_does_not_fit_the_page_starts_without_it(
    browser: Browser, small: SmallSite, why: str
) -> None:
    content = DOES_NOT_FIT[why](small)
    (small.folder / SNAPSHOT).unlink()  # a link to the file of dist/
    (small.folder / SNAPSHOT).write_bytes(content)
    small.publish()
    with PlainServer(small.folder) as server:
        async with fresh_tab(browser, server.url) as chat:
            await chat.open_ready(QUERY)
            assert await chat.page.evaluate("() => document.documentElement?.dataset.state") == "ready"
            assert await restored(chat) == (1 if why == "other sources" else 0)  # there Python itself finds out
            await chat.ask("Hello")
            assert chat.errors == []
