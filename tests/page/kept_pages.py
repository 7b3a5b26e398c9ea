"""Pages that tests share: one of each kind, kept for the session, and reset after each test to its first state.

Usual changes are reset silently: a chat, the memory, an open panel, settings, the address, a global. A test has to
undo the rest itself: a route, a listener, another size or scheme, a tab, a dialog, words in the console, an
unfinished download. If it does not, it fails with a list of its leftovers and of the differences to the first state.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.async_api import Browser, Download, Error

from tests.page.chat_page import LOAD_SECONDS, NO_SERVICE_WORKER, PATIENCE_SECONDS, ChatPage

VIEWPORT = {"width": 1280, "height": 800}
TIME_ZONE = "Pacific/Kiritimati"
"""Fourteen hours ahead of UTC: if an answer does not use the page's time, it is wrong by a day."""
DOWNLOAD_SECONDS = 10.0
MOST_SECONDS = LOAD_SECONDS + 2 * PATIENCE_SECONDS
ALLOWED = ("axe", "katex", "Chart", "pdfjsLib", "sonata", "renderMathInElement")
"""Globals of libraries that the page, or a test of any view, loads when it first needs them."""

LOOK = """async () => {
  const root = document.documentElement;
  const of = (storage) => Object.fromEntries(
    Object.keys(storage).sort().filter((key) => !['', '{}'].includes(storage.getItem(key)))
      .map((key) => [key, storage.getItem(key)]));
  const count = (selector) => document.querySelectorAll(selector).length;
  const seen = (query) => matchMedia(query).matches;
  const files = await navigator.storage.getDirectory();
  const adapters = await files.getDirectoryHandle('adapters').catch(() => null), names = [];
  if (adapters) for await (const name of adapters.keys()) names.push(name);
  const memory = sonata.engine.memory;
  const info = await memory.info().catch(() => null); // a stand-in has no memory
  const records = !info || info.state === 'opening' ? null : await memory.counts();
  return {
    'what was put into the memory': records && Object.fromEntries(Object.entries(records).filter(([, many]) => many)),
    'a passphrase': Boolean(info?.encrypted),
    'adapters': names,
    'an adapter in use': document.querySelector('.status-line').textContent.includes(' with '),
    'models': Math.max(1, (await sonata.storedModels()).length),
    'in localStorage': of(localStorage),
    'in sessionStorage': of(sessionStorage),
    'the address': location.href,
    'the state': root.dataset.state,
    'the language': [root.lang, root.dir],
    'the look': [root.dataset.theme, root.dataset.sidebar, root.dataset.drawer, root.style.cssText],
    'messages': count('#log article'),
    'words in the message box': document.querySelector('#message').value,
    'files': count('#files .file-chip'),
    'notices': count('#notices p'),
    'a banner': !document.querySelector('#banner').hidden,
    'chats in the side bar': count('#chats [data-chat]'),
    'chosen chats': count('.chats-several'),
    'a panel': !document.querySelector('#panel').hidden,
    'something open': count('dialog[open], :popover-open'),
    'style sheets': document.adoptedStyleSheets.length,
  };
}"""
SETTLED = "() => !['opening', undefined].includes(document.documentElement?.dataset.routing)"
GLOBALS = """(known) => Object.keys(window).filter((name) => !known.includes(name) && !/^(_|\\d+$)/.test(name))"""
CARELESS = """() => ({
  dialogs: [...document.querySelectorAll('dialog[open]')].map((dialog) => dialog.innerText.slice(0, 40)),
  media: ['(prefers-color-scheme: dark)', '(prefers-reduced-motion: reduce)', '(forced-colors: active)', 'print']
    .filter((query) => matchMedia(query).matches),
})"""
CLOSE = """async () => {
  const until = async (done) => {
    for (const end = performance.now() + 10_000; !done() && performance.now() < end;) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  const root = document.documentElement, panel = document.querySelector('#panel');
  if (root.dataset.state === 'answering') document.querySelector('.stop').click();
  for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close();
  for (const popover of document.querySelectorAll(':popover-open')) popover.hidePopover();
  for (const field of document.querySelectorAll('#chats [type=search], #panel [type=search]')) {
    if (!field.value) continue;
    field.value = '';
    field.dispatchEvent(new Event('input', { bubbles: true }));
  }
  if (!panel.hidden) {
    panel.querySelector('.panel-close').click();
    await until(() => panel.hidden && !location.hash.includes('panel'));
  }
  document.querySelector('#new-chat').click();
  const box = document.querySelector('#message');
  if (box.value) {
    box.value = '';
    box.dispatchEvent(new Event('input', { bubbles: true }));
  }
  document.querySelector('#announcer').replaceChildren();
  sessionStorage.removeItem('sonata.draft'); // which the box writes a moment later
  for (const close of document.querySelectorAll('.notice-close')) close.click();
  document.activeElement?.blur();
  if (matchMedia('(pointer: fine)').matches) box.focus();
}"""
RESTORE = """async (first) => {
  let same = true;
  if (!['{}', null].includes(localStorage.getItem('sonata.adapters'))) {
    await import('/storage/adapter_store.js').then((store) => store.removeAdapters());
    localStorage.removeItem('sonata.adapters'); // whatever another tab chose
  }
  for (const storage of [localStorage, sessionStorage]) {
    const kept = first[storage === localStorage ? 'in localStorage' : 'in sessionStorage'];
    const now = Object.keys(storage).filter((key) => !['', '{}'].includes(storage.getItem(key)));
    if (now.length === Object.keys(kept).length && now.every((key) => storage.getItem(key) === kept[key])) continue;
    same = false;
    storage.clear();
    for (const [key, value] of Object.entries(kept)) storage.setItem(key, value);
  }
  return same;
}"""
FORGET_ONCE = f"""async (first) => {{
  const now = await ({LOOK})();
  const differs = (name) => JSON.stringify(now[name]) !== JSON.stringify(first[name]);
  if (differs('adapters')) await import('/storage/adapter_store.js').then((store) => store.removeAdapters());
  const records = 'what was put into the memory';
  if (now[records] && (differs(records) || differs('chats in the side bar'))) {{
    await sonata.engine.memory.deleteAll();
  }}
  if (differs('notices')) for (const close of document.querySelectorAll('.notice-close')) close.click();
  return Object.keys(first).every((name) => !differs(name));
}}"""
FORGET = f"""async ([first, patience]) => {{
  for (const end = performance.now() + patience; performance.now() < end;) {{
    if (await ({FORGET_ONCE})(first)) return true;
    await new Promise((again) => setTimeout(again, 50));
  }}
  return false;
}}"""
"""True if everything is as at first, after a while: a test's last message may be stored a moment later."""


@dataclass(frozen=True)
class Kind:
    """stand_in: a worker without a model. apart: see `ChatPage.use_stand_in`.

    is_large: the model is large; only one such page is open at a time.
    """

    site: str
    query: str
    stand_in: bool = False
    apart: bool = False
    is_large: bool = False

    @property
    def url(self) -> str:
        return f"{self.site}/{self.query}"


@dataclass
class KeptPage:
    """`first`, `known` and `listeners`: the visible state, and the listeners, after the start."""

    chat: ChatPage
    kind: Kind
    first: dict[str, Any] = field(default_factory=dict)
    known: list[str] = field(default_factory=list)
    listeners: dict[str, int] = field(default_factory=dict)
    routes: int = 0
    downloads: list[Download] = field(default_factory=list)
    is_spoilt: bool = False

    async def begin(self) -> None:
        chat, page = self.chat, self.chat.page
        if self.kind.stand_in:
            await chat.use_stand_in(self.kind.apart)
        page.on("download", lambda download: self.downloads.append(download))
        await chat.open_ready(self.kind.query)
        if not self.kind.stand_in:  # the router notes its embedder in the memory
            await page.wait_for_function(SETTLED)
        self.first = await page.evaluate(LOOK)
        self.known = [*await page.evaluate("Object.keys(window)"), *ALLOWED]
        self.listeners, self.routes = self._listeners(), self._routes()
        chat.errors.clear()

        async def refuse(*_: object, **__: object) -> None:
            raise AssertionError("This page is kept for other tests, and this cannot be taken back: use a fresh one.")

        page.add_init_script = page.expose_function = page.expose_binding = refuse  # type: ignore[method-assign]
        page.context.add_init_script = refuse  # type: ignore[assignment]

    def _listeners(self) -> dict[str, int]:
        page = self.chat.page
        sources = ("", page._impl_obj), ("context's ", page.context._impl_obj)
        return {f"{whose}{name}": len(of.listeners(name)) for whose, of in sources for name in of.event_names()}

    def _routes(self) -> int:
        page = self.chat.page
        return len(page._impl_obj._routes) + len(page.context._impl_obj._routes)

    async def put_back(self) -> list[str]:
        """Reset the page. Returns the changes that the test should have undone itself, and the remaining differences.

        A page that no reset mends `is_spoilt`.
        """
        chat, page = self.chat, self.chat.page
        left = await self._take_back()
        await page.evaluate(CLOSE)
        same = await page.evaluate(RESTORE, self.first)
        own = await page.evaluate(GLOBALS, self.known)  # a test that set a global may have set a listener, too
        if page.url != self.kind.url:
            await page.goto(self.kind.url)
        elif own or not same or await chat.state() != "ready":
            await page.reload()
        await chat.wait_for("ready", LOAD_SECONDS)
        if not await page.evaluate(FORGET, [self.first, PATIENCE_SECONDS * 1000]):
            now = await page.evaluate(LOOK)
            left += [f"{name}: {now[name]}" for name in self.first if now[name] != self.first[name]]
            self.is_spoilt = True
        chat.errors.clear()
        chat.requests.clear()
        return left

    async def _take_back(self) -> list[str]:
        """The changes that the test should have undone itself."""
        chat, page = self.chat, self.chat.page
        left = [f"the console said: {line}" for line in chat.errors]
        for other in page.context.pages:
            if other != page:
                left.append(f"a tab: {other.url}")
                await other.close()
        if self._routes() > self.routes:
            left.append("a route")
            self.is_spoilt = True
        for name, count in self._listeners().items():
            if count > self.listeners.get(name, 0):
                left.append(f"a listener for {name}")
                self.is_spoilt = True
        for download in self.downloads:
            try:
                await asyncio.wait_for(download.failure(), DOWNLOAD_SECONDS)
            except TimeoutError:
                left.append(f"a download: {download.suggested_filename}")
                await download.cancel()
        self.downloads.clear()
        if page.viewport_size != VIEWPORT:
            left.append(f"a viewport: {page.viewport_size}")
            await page.set_viewport_size(VIEWPORT)  # type: ignore[arg-type]
        seen = await page.evaluate(CARELESS)
        left += [f"a dialog: {dialog}" for dialog in seen["dialogs"]]
        if seen["media"]:
            left.append(f"an emulated medium: {', '.join(seen['media'])}")
            await page.emulate_media(media="null", color_scheme="null", reduced_motion="null", forced_colors="null")
        return left


class KeptPages:
    """The shared pages of one browser."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._pages: dict[Kind, KeptPage] = {}

    @asynccontextmanager
    async def lend(self, kind: Kind, test: pytest.Item) -> AsyncIterator[ChatPage]:
        """Lend a page of this kind to this test."""
        kept = self._pages.get(kind) or await self._open(kind)
        try:
            yield kept.chat
        finally:
            left = await self.put_back(kept)
        if left and not has_failed(test):
            pytest.fail(f"{test.name} left on its page:\n" + "\n".join(left), pytrace=False)

    async def put_back(self, kept: KeptPage) -> list[str]:
        left: list[str] = []
        try:
            if not kept.is_spoilt:
                left = await asyncio.wait_for(kept.put_back(), MOST_SECONDS)  # a worker may no longer answer
        except (Error, AssertionError, TimeoutError) as error:
            left, kept.is_spoilt = [f"a page that cannot be put back: {error!r}"], True
        if kept.is_spoilt:
            await self._close(kept)
        return left

    async def close(self) -> None:
        for kept in list(self._pages.values()):
            await self._close(kept)

    async def _open(self, kind: Kind) -> KeptPage:
        for other in list(self._pages.values()):
            if other.kind.is_large and kind.is_large:
                await self._close(other)
        context = await self._browser.new_context(viewport=VIEWPORT, timezone_id=TIME_ZONE)  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE_SECONDS * 1000)
        await context.add_init_script(NO_SERVICE_WORKER)
        kept = KeptPage(ChatPage(await context.new_page(), kind.site), kind)
        try:
            await kept.begin()
        except BaseException:
            await context.close()
            raise
        self._pages[kind] = kept
        return kept

    async def _close(self, kept: KeptPage) -> None:
        self._pages.pop(kept.kind, None)
        await kept.chat.page.context.close()


FAILED = pytest.StashKey[bool]()


def has_failed(test: pytest.Item) -> bool:
    return test.stash.get(FAILED, False)
