"""After a passphrase was set, or everything was deleted, the real files contain none of the earlier data."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from py_core.store import sqlite
from py_core.store.encryption import NativeCrypto
from py_core.store.errors import StoreError
from py_core.store.passphrase import set_passphrase
from py_core.store.records import Record
from py_core.store.rows import LAYOUT, UNCOMPACTED
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store
from tests.store.browser.browser_crash import killable_tab
from tests.store.browser.page import BrowserThread, PageCrypto, PageRows, Tab
from tests.store.leftovers import Secrets
from tests.store.places import ANY_BODY, FEW_ITERATIONS, PASSPHRASE

NAME = "leftovers"


# ---- Chromium ----


async def all_of(store: Store) -> list[Record]:
    return [record async for record in store.scan()]


def test_a_browsers_files_hold_nothing_of_what_was_encrypted_or_deleted(
    browser_thread: BrowserThread, chromium_path: Path, site: str, tmp_path: Path
) -> None:
    """The browser is killed, which leaves the disk unchanged."""
    encrypted, deleted = Secrets(), Secrets()

    async def work(tab: Tab) -> None:
        store, other = [
            await Store.open(await PageRows.open(tab, name), crypto=PageCrypto(tab), kinds=ANY_BODY) for name in "ab"
        ]
        await store.put_many(encrypted.records)
        await other.put_many(deleted.records)
        assert len(encrypted.found_in(tmp_path)) > 1
        assert len(deleted.found_in(tmp_path)) > 1
        await set_passphrase(store, PASSPHRASE, iterations=FEW_ITERATIONS)
        await other.clear()
        assert store.uncompacted is other.uncompacted is None
        assert await all_of(store) == encrypted.records
        await store.put(Record("turn", "s/1000000", {"content": "after"}, None, 1.0, 1.0))
        # The browser removes unneeded files a moment after it reports completion.
        while encrypted.found_in(tmp_path) | deleted.found_in(tmp_path):  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    with killable_tab(browser_thread, chromium_path, tmp_path / "profile", site) as (tab, _):
        asyncio.run(work(tab))
    assert encrypted.found_in(tmp_path) == deleted.found_in(tmp_path) == {}


KILLED = """async ([name, LAYOUT, step]) => {
  const { memoryStore } = await import('/memory/indexeddb.js');
  const ROWS = 450, rows = [];
  for (let n = 0; n < ROWS; n++) rows.push(['turn', `s/${String(n).padStart(6, '0')}`, 1, 1, 2, -1, [], 0]);
  const nothing = { puts: [], deletes: [], clear: null, meta: {}, expectMeta: {}, expectVersions: [] };
  const fill = JSON.stringify({ ...nothing, puts: rows, clear: '*', meta: { key: 'the key', uncompacted: 'yes' } });

  const database = await memoryStore.open(name, LAYOUT);
  const trouble = [];
  if (step > 0) {
    const count = await database.count('null'), { key, ...meta } = JSON.parse(await database.meta());
    const names = (await indexedDB.databases()).map((each) => each.name).filter((each) => each.startsWith(name));
    const marks = Object.keys(meta).filter((each) => !['schema', 'revision', 'requests', 'uncompacted'].includes(each));
    if (count !== ROWS || key !== 'the key' || names.length !== 1 || marks.length) {
      trouble.push(count, key, names, marks);
    }
  }
  await database.apply(fill, new TextEncoder().encode('{}'.repeat(ROWS)));

  let left = step;
  const dies = (target, method) => {
    const real = target[method];
    target[method] = function (...given) {
      if (left-- <= 0) throw new Error('killed');
      return real.apply(this, given);
    };
  };
  for (const method of ['open', 'deleteDatabase']) dies(IDBFactory.prototype, method);
  dies(IDBDatabase.prototype, 'transaction');
  return { trouble, finished: await database.compact().then(() => true, () => false) };
}"""


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.all)])
async def test_a_page_that_is_killed_while_it_moves_the_memory_loses_nothing(
    get_tab: Callable[[], Tab], name: str, every: int
) -> None:
    """At each of its steps, or each fifth: it dies at its next call of IndexedDB, and the next page continues."""
    tab = get_tab()
    page = await tab.thread.do(tab.page.context.new_page())
    for step in range(0, 100, every):
        await tab.thread.do(page.goto(tab.page.url))  # the end of the earlier data
        outcome = await tab.thread.do(page.evaluate(KILLED, [name, LAYOUT, step]))
        assert outcome["trouble"] == [], step
        if outcome["finished"]:
            break
    await tab.thread.do(page.close())
    assert 15 < step < 95


USED_WHILE_IT_MOVES = """async ([name, LAYOUT]) => {
  const { memoryStore } = await import('/memory/indexeddb.js');
  const nothing = { puts: [], deletes: [], clear: null, meta: {}, expectMeta: {}, expectVersions: [] };
  const one = new TextEncoder().encode('{}');
  const batch = (id) => JSON.stringify({ ...nothing, puts: [['turn', id, 1, 1, 2, -1, [], 0]] });
  const put = (database, id) => database.apply(batch(id), one);
  const [mover, other] = [await memoryStore.open(name, LAYOUT), await memoryStore.open(name, LAYOUT)];
  await put(mover, 'first');
  const asked = [];
  let puts = 1;
  for (const moving of [mover, mover, other]) {
    let moves = true;
    const moved = moving.compact().finally(() => { moves = false; });
    for (let turn = 0; moves; turn++) {
      for (const database of [mover, other]) {
        asked.push(database.count('null'));
        if (turn < 3) asked.push(put(database, `${puts++}`)); // a tab that writes without end is not moved
      }
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await moved;
  }
  await Promise.all(asked);
  return [puts, await mover.count('null'), await other.count('null'), asked.length > 20];
}"""


async def test_who_reads_and_writes_while_the_memory_moves_waits_and_loses_nothing(
    get_tab: Callable[[], Tab], name: str
) -> None:
    puts, *counts, is_many = await get_tab().evaluate(USED_WHILE_IT_MOVES, [name, LAYOUT])
    assert counts == [puts, puts]
    assert is_many


# ---- SQLite ----


async def opened(path: Path, passphrase: str | None = None) -> Store:
    return await Store.open(await SQLiteRows.open(path), passphrase, crypto=NativeCrypto(), kinds=ANY_BODY)


async def test_a_log_that_another_program_reads_is_told_and_emptied_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.1)
    before, path = Secrets(), tmp_path / "memory.sqlite"
    store = await opened(path)
    await store.put_many(before.records)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM records").fetchone()
    await set_passphrase(store, PASSPHRASE, iterations=FEW_ITERATIONS)
    assert store.uncompacted is not None
    assert "next start" in str(store.uncompacted)
    assert "Another program has" in str(store.uncompacted)
    assert await all_of(store) == before.records
    await store.close()
    assert before.found_in(tmp_path) != {}
    reader.close()

    with pytest.raises(StoreError, match="passphrase"):
        await opened(path)  # the files can be rewritten without it
    assert before.found_in(tmp_path) == {}
    again = await opened(path, PASSPHRASE)
    assert again.uncompacted is None
    assert UNCOMPACTED not in await again._rows.meta()
    assert await all_of(again) == before.records
    await again.close()


async def test_a_full_disk_is_told_before_anything_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Secrets(5)
    store = await opened(tmp_path / "memory.sqlite")
    await store.put_many(before.records)
    with monkeypatch.context() as full:
        full.setattr(sqlite, "SPARE_BYTES", 1 << 60)  # more than any disk holds
        with pytest.raises(StoreError, match=r"needs [\d,]+ MB .* Nothing was changed") as raised:
            await set_passphrase(store, PASSPHRASE, iterations=FEW_ITERATIONS)
    assert raised.value.reason == "room"
    assert store.lock is None
    assert await all_of(store) == before.records
    await set_passphrase(store, PASSPHRASE, iterations=FEW_ITERATIONS)
    await store.close()
