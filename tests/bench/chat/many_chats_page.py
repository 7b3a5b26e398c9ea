"""The page with many conversations in its IndexedDB: the measurements of many_chats.py in Chromium.

Starts are those of the page with its usual model: two browser profiles are visited in turns, one with the conversations
and one with an empty memory. What people do in it is measured with a tiny model and the real router.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from playwright.sync_api import BrowserContext, Page, Playwright, sync_playwright

from app.building.common import ROOT
from app.building.site.dist import DIST
from app.building.system import CHROMIUM_FLAGS, find_chromium
from py_core.store.packing import pack
from py_core.store.rows import CHUNK, LAYOUT, Key, Rows
from tests.page.plain_server import PlainServer
from tests.page.small_site import SmallSite

LIMIT_MS = 600_000
QUERY = "?backend=wasm&max_tokens=8"
TIMES = 9
PASSPHRASE = "a benchmark"
WRITE = """async ([files, layout]) => {
  const { memoryStore } = await import('/memory/indexeddb.js');
  const { unpack } = await import('/memory/packing.js');
  const database = await memoryStore.open('sonata-memory', layout);
  let revision = 0;
  for (let n = 0; n < files; n += 1) {
    const [head, data] = await Promise.all(['head', 'data'].map((part) => fetch(`/filled/${n}.${part}`)));
    const entries = await head.json();
    const rows = unpack(entries, new Uint8Array(await data.arrayBuffer()));
    const transaction = database.db.transaction(['rows', 'meta'], 'readwrite');
    rows.forEach((row, at) => transaction.objectStore('rows').put({ ...row, version: entries[at].at(-1) }));
    revision = entries.reduce((most, entry) => Math.max(most, entry.at(-1)), revision);
    transaction.objectStore('meta').put(String(revision), 'revision');
    await transaction.done;
  }
  database.close();
}"""
"""The rows keep their versions: records beside a conversation name its version."""
KEPT = """() => new Promise((resolve, reject) => {
  const opening = indexedDB.open('sonata-memory');
  opening.onerror = () => reject(opening.error);
  opening.onsuccess = () => {
    const rows = opening.result.transaction('rows').objectStore('rows');
    const counting = rows.count(IDBKeyRange.bound(['index', 'session:'], ['index', 'session;']));
    counting.onsuccess = () => { opening.result.close(); resolve(counting.result); };
  };
})"""
WATCH = """
  const seen = window.seen = {};
  const look = () => {
    if (document.documentElement?.dataset.state === 'ready') seen.ready ??= performance.now();
    if (document.querySelector('#chats li[data-chat]')) seen.filled ??= performance.now();
    if (document.documentElement?.dataset.routing === 'ready') seen.routed ??= performance.now();
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true, attributes: true });
"""
MEASURE = """async ([what, times, word]) => {
  const { memory } = sonata.engine;
  const list = document.querySelector('#chats');
  const field = list.querySelector('input[type=search]');
  const until = (holds) => new Promise((resolve) => {
    if (holds()) return resolve();
    const watch = new MutationObserver(() => holds() && (watch.disconnect(), resolve()));
    watch.observe(document.body, { childList: true, subtree: true, attributes: true, characterData: true });
  });
  const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  const timed = async (work) => {
    await frame();
    const begin = performance.now();
    await work();
    list.getBoundingClientRect(); // laid out
    return performance.now() - begin;
  };
  const type = (text) => { field.value = text; field.dispatchEvent(new InputEvent('input')); };
  const heading = (title) => [...list.querySelectorAll('h2')].some((one) => one.textContent.includes(title));
  const words = word.split(' ');
  const isOpen = (articles) => document.querySelectorAll('#log article').length >= articles;
  const open = async (n, articles) => {
    const link = list.querySelectorAll('a.chat-link')[n + 1];
    const id = link.closest('li').dataset.chat;
    link.click();
    await until(() => location.href.endsWith(id) && isOpen(articles));
  };
  const works = {
    list: () => memory.conversations(),
    words: (n) => memory.conversations({ search: words[n % words.length], limit: 100 }),
    meaning: (n) => (
      memory.similarConversations({ search: `what was said about ${words[n % words.length]}, number ${n}?` })),
    'words shown': async (n) => {
      type(words[n % words.length]);
      await until(() => heading('With these words'));
    },
    menu: async (n) => {
      const first = list.querySelector('li[data-chat]');
      first.querySelector('button').click();
      const item = await new Promise((resolve) => {
        const isPin = (one) => /^(Pin|Unpin)$/.test(one.textContent.trim());
        const found = () => [...document.querySelectorAll('[role=menuitem]')].find(isPin);
        until(() => found()).then(() => resolve(found()));
      });
      const pins = item.textContent.trim() === 'Pin';
      item.click();
      await until(() => heading('Pinned') === pins);
    },
    open: (n) => open(n, 2),
    'open whole': (n) => open(n, 25),
  };
  const taken = [];
  for (let n = 0; n < times; n += 1) {
    taken.push(await timed(() => works[what](n)));
    if (what === 'words shown') { type(''); await until(() => !heading('With these words')); }
    if (what.startsWith('open')) await until(() => isOpen(25));
  }
  return taken;
}"""


async def pack_rows(rows: Rows, folder: Path) -> None:
    """Pack rows into files that WRITE reads, and words.json: words from the titles of some conversations."""
    after: Key | None = None
    count, words = 0, list[str]()
    while chunk := await rows.scan(None, after, CHUNK):
        head, data = pack(chunk)
        (folder / f"{count}.head").write_text(json.dumps(head), "utf-8")
        (folder / f"{count}.data").write_bytes(data)
        words += [json.loads(row.body)["title"].split()[0] for row in chunk if row.kind == "session"]
        after, count = chunk[-1].key, count + 1
    (folder / "words.json").write_text(json.dumps(words[:TIMES]), "utf-8")


@contextlib.contextmanager
def visit(playwright: Playwright, profile: Path) -> Iterator[BrowserContext]:
    context = playwright.chromium.launch_persistent_context(
        profile, executable_path=find_chromium(), args=CHROMIUM_FLAGS, viewport={"width": 1280, "height": 800}
    )
    try:
        yield context
    finally:
        context.close()


def opened(context: BrowserContext, address: str, wanted: str = "ready") -> Page:
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(f"{address}/{QUERY}")
    page.wait_for_function(f"() => seen.{wanted}", timeout=LIMIT_MS)
    return page


def prepare(context: BrowserContext, address: str, files: int) -> None:
    """The first visits, which keep the site and the code that the browser compiles; and the rows. files: how many the
    server has of them."""
    if files:
        page = context.new_page()
        page.goto(f"{address}/THIRD_PARTY.txt")
        page.evaluate(WRITE, [files, LAYOUT])
        page.close()
    page = opened(context, address, "routed")
    page.wait_for_function("() => document.documentElement.dataset.offline === 'ready'", timeout=LIMIT_MS)
    time.sleep(2)  # the written data has reached the disk's cache
    page.close()
    page = opened(context, address, "routed")
    page.wait_for_timeout(4000)
    page.close()


def starts(playwright: Playwright, profiles: dict[str, Path], address: str, rounds: int) -> dict[str, float]:
    """Return the milliseconds until the page accepts a question and until the side bar shows the chats."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in profiles}
    for turn in range(rounds):
        for name in list(profiles)[:: 1 if turn % 2 else -1]:
            with visit(playwright, profiles[name]) as context:
                page = opened(context, address)
                if name != "empty":
                    page.wait_for_function("() => seen.filled", timeout=LIMIT_MS)
                taken[name].append(page.evaluate("seen"))
    figures = {f"start, {name}": median(one["ready"] for one in seen) for name, seen in taken.items()}
    pairs = zip(taken["full"], taken["empty"], strict=True)
    figures["start, ratio of full to empty"] = median(full["ready"] / empty["ready"] for full, empty in pairs)
    figures["side bar filled after ready"] = median(one["filled"] - one["ready"] for one in taken["full"])
    print(figures, file=sys.stderr)
    return figures


def used(page: Page, words: list[str]) -> dict[str, float]:
    """Return milliseconds on a freshly opened page: medians, and the best times, since others may use the machine."""
    page.wait_for_function("() => seen.routed && seen.filled", timeout=LIMIT_MS)
    page.wait_for_timeout(1000)
    figures = {}

    def measure(name: str, what: str, times: int = TIMES) -> None:
        taken = page.evaluate(MEASURE, [what, times, " ".join(words)])
        figures[name] = median(taken)
        if times > 1:
            figures[f"{name}, the fastest"] = min(taken)
        print(f"{name}: {figures[name]:.1f} ms, {min(taken):.1f} to {max(taken):.1f}", file=sys.stderr)

    measure("search for a word, first", "words", 1)
    measure("search for a word, then", "words")
    measure("search by meaning, first", "meaning", 1)
    measure("search by meaning, then", "meaning")
    measure("list", "list")
    measure("search for a word, from the key until shown (40 ms are a pause)", "words shown")
    measure("an action of a menu, until shown", "menu")
    measure("open a chat, until its newest turn is shown", "open")
    measure("open a chat, until 25 messages are there", "open whole")
    return figures


def in_chromium(folder: Path, rounds: int, with_key: bool) -> dict[str, dict[str, float]]:
    """folder: of pack_rows. with_key: also with a passphrase."""
    words = json.loads((folder / "words.json").read_text("utf-8"))
    subprocess.run([sys.executable, "build.py", "site"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place, sync_playwright() as playwright:
        small, root = SmallSite(DIST, Path(place) / "site"), Path(place)
        whole = Path(shutil.copytree(DIST, root / "whole", copy_function=os.link))
        for site in (small.folder, whole):
            shutil.copytree(folder, site / "filled", ignore=shutil.ignore_patterns("*.sqlite*"))
        files = len(list(folder.glob("*.data")))
        with PlainServer(whole) as server:
            server.guards = True
            profiles = {"empty": root / "empty", "full": root / "full"}
            for name, profile in profiles.items():
                with visit(playwright, profile) as context:
                    prepare(context, server.url, files if name == "full" else 0)
            figures["IndexedDB"] = starts(playwright, profiles, server.url, rounds)
        with PlainServer(small.folder) as server:
            server.guards = True
            profile = root / "small"
            with visit(playwright, profile) as context:
                prepare(context, server.url, files)
            with visit(playwright, profile) as context:
                page = opened(context, server.url)
                kept = page.evaluate(KEPT)
                figures["IndexedDB"] |= used(page, words)
                if with_key:
                    page.evaluate(f"() => sonata.engine.memory.setPassphrase({{ passphrase: '{PASSPHRASE}' }})")
            if with_key:
                with visit(playwright, profile) as context:
                    page = opened(context, server.url)
                    page.evaluate(f"() => sonata.engine.memory.unlock({{ passphrase: '{PASSPHRASE}' }})")
                    page.wait_for_function("() => seen.routed", timeout=LIMIT_MS)
                    page.evaluate("() => sonata.engine.memory.prepareSearch()")
                    while page.evaluate(KEPT) < kept:
                        time.sleep(1)
                with visit(playwright, profile) as context:
                    page = opened(context, server.url)
                    page.evaluate(f"() => sonata.engine.memory.unlock({{ passphrase: '{PASSPHRASE}' }})")
                    figures["IndexedDB, with a passphrase"] = used(page, words)
    return figures
