"""A database in the browser whose rows and meta have values of any type: it opens, lists, exports and deletes."""

from __future__ import annotations

import base64
from collections.abc import Callable

from py_core.store.packing import pack
from py_core.store.rows import LAYOUT
from tests.store.browser.page import Tab
from tests.store.test_unreadable import GOOD

DAMAGE = r"""async ([name, LAYOUT, head, data]) => {
  const { memoryStore } = await import('/memory/indexeddb.js');
  const nothing = { deletes: [], clear: null, meta: {}, expectMeta: {}, expectVersions: [] };
  const database = await memoryStore.open(name, LAYOUT);
  await database.apply(JSON.stringify({ ...nothing, puts: head }), Uint8Array.from(atob(data), (c) => c.charCodeAt(0)));
  const rows = await database.db.getAll('rows');
  const JUNK = [
    undefined, null, 5, NaN, Infinity, '', 'text', '\ud800', '\0', [], [['a', {}, 5]], new Date(0),
    new Uint8Array([255]), new ArrayBuffer(3), new Blob(['x']), 10n,
  ];
  const transaction = database.db.transaction(['rows', 'meta'], 'readwrite');
  let bad = 0;
  for (const row of rows.filter(({ kind }) => kind === 'turn')) {
    for (const field of ['created', 'updated', 'version', 'body', 'vector', 'fields', 'kind', 'id']) {
      for (const [number, junk] of JUNK.entries()) {
        try {
          await transaction.objectStore('rows').put({ ...row, id: `bad ${field} ${number}`, [field]: junk });
          bad++;
        } catch (error) {
          if (error.name !== 'DataError') throw error; // no key
        }
      }
    }
  }
  for (const junk of [5, {}, null, new Date(0), 'text', '9'.repeat(400)]) {
    for (const name of ['schema', 'revision', 'requests', 'more']) transaction.objectStore('meta').put(junk, name);
  }
  await transaction.done;
  database.close();
  return bad;
}"""
IN_PAGE = """
from app.records.memory import Memory
from py_core.store.passphrase import set_passphrase
from app.records.kinds import KINDS
from py_core.store.store import Store
from py_core.store.transfer import export, import_file

async def main(name):
    rows = await IndexedDBRows.open(memory_store, name)
    store = await Store.open(rows, crypto=crypto, kinds=KINDS)
    memory = await Memory.open(store)
    keys = [record.key async for record in store.scan()]
    await memory.patterns.all()
    for session in await memory.sessions.all():
        await memory.sessions.path(session.id)
    await memory.log.trends()
    data = await export(store)
    await set_passphrase(store, "correct horse", iterations=1)
    assert [record.key async for record in store.scan()] == keys
    assert await store.check() is None
    unreadable = await store.delete_unreadable()
    assert [record.key async for record in store.scan()] == keys
    await store.clear()
    await import_file(store, data, "replace")
    assert [record.key async for record in store.scan()] == keys
    await store.clear()
    assert await store.count() == 0
    await memory.close()
    return keys, unreadable
"""


async def test_a_browsers_database_with_any_values_opens_lists_exports_and_deletes(
    get_tab: Callable[[], Tab], name: str
) -> None:
    head, data = pack(GOOD)
    bad = await get_tab().evaluate(DAMAGE, [name, LAYOUT, head, base64.b64encode(data).decode()])
    keys, unreadable = await get_tab().call("run", IN_PAGE, name)
    kept_for_long = {row.key for row in GOOD if row.kind != "trajectory"}
    assert kept_for_long <= {(kind, id) for kind, id in keys}
    assert unreadable > bad / 2  # a version of any type, and some fields, do no harm
