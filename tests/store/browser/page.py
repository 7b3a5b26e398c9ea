"""IndexedDB and WebCrypto of a real Chromium, as `Rows` and `Crypto` for the tests that every backend passes.

The page runs Pyodide in a worker with the site's own code; tests/store/browser/in_page.py in it runs the calls.
Chromium is driven from a thread of its own, so that any event loop can wait for it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, CDPSession, Page, Playwright, Route, async_playwright

from app.building.system import CHROMIUM_FLAGS
from py_core.store.encryption import Cipher, WrongKeyError
from py_core.store.errors import StoreError
from py_core.store.packing import pack, unpack
from py_core.store.rows import Batch, Change, Key, OnChange, Query, Range, Row

HERE = Path(__file__).parent
ISOLATED = {"Cross-Origin-Embedder-Policy": "require-corp", "Cross-Origin-Resource-Policy": "same-origin"}
START = """async (source) => {
  const { ownScript } = await import('./common/own_script.js');
  const worker = new Worker(ownScript('./memory_test_worker.js'), { type: 'module' });
  const waiting = new Map();
  let last = 0;
  window.reports = [];
  worker.onmessage = ({ data: { id, value, error, report } }) => {
    if (report !== undefined) {
      window.reports.push(report);
      console.log(report);
      return;
    }
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (error) reject(new Error(error));
    else resolve(value);
  };
  worker.onerror = (event) => console.error(event.message);
  window.ask = (message) => new Promise((resolve, reject) => {
    waiting.set(++last, { resolve, reject });
    worker.postMessage({ id: last, ...message });
  });
  window.endWorker = () => {
    window.ended = true;
    worker.terminate();
  };
  await ask({ source });
}"""


class BrowserThread:
    """Playwright on an event loop of its own, in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.playwright: Playwright = self.wait(async_playwright().start())

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Call from any other thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    async def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Call from any event loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def launch(self, chromium: Path) -> Browser:
        return self.wait(self.playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS))

    def close(self) -> None:
        self.wait(self.playwright.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=10)
        self.loop.close()


class Tab:
    """A tab of the site with the tests' worker in it."""

    def __init__(self, thread: BrowserThread, page: Page) -> None:
        self.thread, self.page = thread, page

    @classmethod
    def open(
        cls, thread: BrowserThread, context: Browser | BrowserContext, site: str, said: Callable[[str], None] = print
    ) -> Tab:
        """said: gets the page's console output."""

        async def opening() -> Page:
            page = await context.new_page()
            page.on("console", lambda message: said(message.text))
            await page.route("**/memory_test_worker.js", _worker)
            await page.goto(f"{site}/THIRD_PARTY.txt")
            await page.evaluate(START, (HERE / "in_page.py").read_text("utf-8"))
            return page

        return cls(thread, thread.wait(opening()))

    async def call(self, name: str, *arguments: Any) -> Any:
        """The result of `do_NAME` of in_page.py. Raises its StoreError or WrongKeyError."""
        message = {"name": name, "argument": json.dumps(arguments)}
        answer = json.loads(await self.thread.do(self.page.evaluate("(message) => ask(message)", message)))
        if "value" in answer:
            return answer["value"]
        if answer["reason"] == "wrong key":
            raise WrongKeyError
        raise StoreError(answer["reason"], answer["sentence"])

    async def evaluate(self, expression: str, argument: Any = None) -> Any:
        return await self.thread.do(self.page.evaluate(expression, argument))

    def close(self) -> None:
        self.thread.wait(self.page.close())


class Tabs:
    """Tabs of one window, which tests reuse: starting Python takes time.

    `shared` gives a tab for a test that needs only one, and does nothing that a later test could notice.
    """

    def __init__(self, open_one: Callable[[], Tab]) -> None:
        self._open_one = open_one
        self._free: list[Tab] = []
        self._used: list[Tab] = []

    def shared(self) -> Tab:
        if not self._free:
            self._free.append(self._open_one())
        return self._free[0]

    async def open(self) -> Tab:
        tab = self._free.pop() if self._free else await asyncio.to_thread(self._open_one)
        self._used.append(tab)
        return tab

    async def end_test(self) -> None:
        alive = [tab for tab in self._used if not tab.page.is_closed()]
        self._free += [tab for tab in alive if not await tab.evaluate("window.ended ?? false")]
        self._used.clear()


@dataclass
class LimitedTab:
    """A tab whose origin is limited by a quota."""

    tab: Tab
    site: str
    session: CDPSession

    async def set_quota(self, nbytes: int | None) -> None:
        """Call while there is no database: a later quota applies to new databases only. None: no limit."""
        size = {} if nbytes is None else {"quotaSize": nbytes}
        await self.tab.thread.do(self.session.send("Storage.overrideQuotaForOrigin", {"origin": self.site, **size}))


async def _worker(route: Route) -> None:
    script = (HERE / "page_worker.js").read_text("utf-8")
    await route.fulfill(body=script, content_type="text/javascript", headers=ISOLATED)


class PageRows:
    """`Rows` that are IndexedDBRows in a tab."""

    persistent = True

    def __init__(self, tab: Tab, number: int, name: str) -> None:
        self.tab, self.number, self.place = tab, number, name

    @classmethod
    async def open(cls, tab: Tab, name: str) -> PageRows:
        return cls(tab, await tab.call("open", name), name)

    async def meta(self) -> dict[str, str]:
        return await self.tab.call("meta", self.number)

    async def get(self, keys: Sequence[Key]) -> list[Row]:
        return _unpacked(await self.tab.call("get", self.number, list(keys)))

    async def scan(self, kind: str | None, after: Key | None, limit: int) -> list[Row]:
        return _unpacked(await self.tab.call("scan", self.number, kind, after, limit))

    async def query(self, query: Query) -> list[Row]:
        where = {
            name: [wanted.low, wanted.high] if isinstance(wanted, Range) else wanted
            for name, wanted in query.where.items()
        }
        others = (query.since, query.before, query.newest_first, query.limit)
        return _unpacked(await self.tab.call("query", self.number, query.kind, where, *others))

    async def count(self, kind: str | None) -> int:
        return await self.tab.call("count", self.number, kind)

    async def apply(self, batch: Batch) -> int:
        head, data = pack(batch.puts)
        versions = [[kind, id, version] for (kind, id), version in batch.expect_versions.items()]
        expected = (dict(batch.meta), dict(batch.expect_meta), versions)
        coded = base64.b64encode(data).decode()
        return await self.tab.call("apply", self.number, head, coded, list(batch.deletes), batch.clear, *expected)

    async def poll(self) -> bool:
        return False

    async def heard(self) -> list[Change]:
        """The changes of other tabs since the last call."""
        changes = await self.tab.call("heard", self.number)
        return [Change(tuple(map(tuple, puts)), tuple(map(tuple, gone)), *rest) for puts, gone, *rest in changes]

    def listen(self, heard: OnChange | None) -> None:
        """See `heard`."""

    async def check_room(self) -> None:
        pass

    async def was_locked(self) -> bool:
        return await self.tab.call("was_locked", self.number)

    async def note_locked(self, locked: bool) -> None:
        await self.tab.call("note_locked", self.number, locked)

    async def compact(self) -> None:
        await self.tab.call("compact", self.number)

    async def close(self) -> None:
        await self.tab.call("close", self.number)


class PageCrypto:
    """`Crypto` that is a tab's WebCrypto."""

    def __init__(self, tab: Tab) -> None:
        self._tab = tab

    async def derive(self, passphrase: bytes, salt: bytes, iterations: int) -> Cipher:
        coded = (base64.b64encode(data).decode() for data in (passphrase, salt))
        return PageCipher(self._tab, await self._tab.call("derive", *coded, iterations))


class PageCipher:
    def __init__(self, tab: Tab, number: int) -> None:
        self._tab, self._number = tab, number

    async def seal(self, plain: Sequence[bytes], contexts: Sequence[bytes]) -> list[bytes]:
        return await self._call("seal", plain, contexts)

    async def open(self, sealed: Sequence[bytes], contexts: Sequence[bytes]) -> list[bytes]:
        return await self._call("unseal", sealed, contexts)

    async def _call(self, name: str, *lists: Sequence[bytes]) -> list[bytes]:
        coded = [[base64.b64encode(item).decode() for item in items] for items in lists]
        return [base64.b64decode(item) for item in await self._tab.call(name, self._number, *coded)]


def _unpacked(answer: tuple[list[Any], str]) -> list[Row]:
    head, data = answer
    return unpack(head, base64.b64decode(data))
