/**
 * The memory in IndexedDB: rows by kind and id, found by time and by fields. py_core/store/indexeddb.py calls this with
 * JSON and bytes; py_core/store/rows.py says what each call does. Errors are named by py_core/store/errors.py's reasons.
 */
import { keyOf, mended, readMeta, requestsIn } from './any_rows.js';
import { explain, Lost, openDatabase, settle } from './database.js';
import { isNoted, note } from './lock_note.js';
import { pack, unpack } from './packing.js';
import { moveToNewFiles, inTurn } from './relocation.js';
import { TabWriter } from './tab_writer.js';
import { userError } from '../common/user_error.js';

const REMEMBERED_REQUESTS = 64;

export const memoryStore = {
  /** @returns {Promise<Database>} of this layout's version, created or upgraded */
  async open(name, version) {
    const lost = new Lost();
    try {
      await settle(name);
      return new Database(await inTurn(name, version, () => openDatabase(name, version, lost)), name, version, lost);
    } catch (error) {
      throw explain(error);
    }
  },
};

class Database {
  /** Called when another tab has written. @type {((json: string) => void)|null} */
  onChange = null;

  /** While the database is away: soon in new files, or deleted. @type {Promise<void>|null} */
  away = null;

  constructor(db, name, version, lost) {
    this.db = db;
    this.name = name;
    this.version = version;
    this.lost = lost;
    this.tabs = new TabWriter(name, {
      apply: (request) => this.write(request),
      heard: (change) => this.onChange?.(JSON.stringify(change)),
    });
    lost.onLost = () => this.tabs.close(); // another tab may write
    lost.onDeleted = () => void this.comeBack();
  }

  get dataLoss() {
    return this.lost.data;
  }

  meta() {
    return this.run(async () => JSON.stringify(await readMeta(this.db.transaction('meta').store)));
  }

  get(keys) {
    return this.run(async () => {
      const { store } = this.db.transaction('rows');
      const found = await Promise.all(JSON.parse(keys).map((key) => store.get(keyOf(key))));
      return pack(found.filter((row) => row).map(mended));
    });
  }

  scan(asked) {
    return this.run(async () => {
      const [kind, after, limit] = JSON.parse(asked);
      return pack((await this.db.getAll('rows', keysAfter(kind, after && keyOf(after)), limit)).map(mended));
    });
  }

  query(asked) {
    return this.run(async () => {
      const [kind, where, since, before, newestFirst, limit] = JSON.parse(asked);
      const index = this.db.transaction('rows').store.index(where.length ? 'fields' : 'time');
      const since_ = since ?? -Infinity, before_ = before ?? Infinity;
      if (!where.length) {
        const range = IDBKeyRange.bound([kind, since_], [kind, before_], false, true);
        return pack((await readInOrder(index, range, newestFirst, limit)).map(mended));
      }
      const [[field, low, high], ...others] = where;
      const holds = ([name, least, most]) => ([, its, value]) => its === name && inRange(value, least, most);
      const found = (await index.getAll(IDBKeyRange.bound([kind, field, low], [kind, field, high]))).filter(
        (row) =>
          row.created >= since_ && row.created < before_ && others.every((other) => row.fields.some(holds(other))),
      );
      const sign = newestFirst ? -1 : 1;
      found.sort((a, b) => sign * (a.created - b.created || (a.id < b.id ? -1 : 1)));
      return pack(found.slice(0, limit ?? undefined).map(mended));
    });
  }

  count(asked) {
    return this.run(() => this.db.count('rows', keysAfter(JSON.parse(asked), null)));
  }

  /**
   * Durable when it resolves; written by the tab that holds the database, which may be another one. @returns the new revision
   */
  apply(head, data) {
    return this.run(() => this.tabs.apply({ head, data }));
  }

  /**
   * One transaction. `id`: a request that another tab has done, but closed before it answered, is not done again. If all space
   * is used up, not even the note that everything was deleted can be written, so the deletion comes first.
   */
  async write(request) {
    for (let emptied = false; ;) {
      await this.here();
      try {
        return await this.writeOnce(request);
      } catch (error) {
        if (error.name === 'quota' && !emptied && JSON.parse(request.head).clear === '*') {
          await this.open().clear('rows');
          emptied = true;
        } else if (error.name === 'moved') {
          await this.comeBack();
        } else {
          throw error;
        }
      }
    }
  }

  async writeOnce({ id, head, data }) {
    const batch = JSON.parse(head);
    const transaction = this.open().transaction(['rows', 'meta'], 'readwrite', { durability: 'strict' });
    const done = transaction.done.catch((error) => error); // heard below, after the requests' own errors
    try {
      const revision = await this.change(transaction, batch, id, data);
      const error = await done;
      if (error) throw error;
      return { revision, change: changeOf(batch) };
    } catch (error) {
      try {
        transaction.abort();
      } catch {
        // the transaction has ended already
      }
      await done;
      throw explain(transaction.error ?? error);
    }
  }

  async change(transaction, batch, id, data) {
    const rows = transaction.objectStore('rows'), meta = transaction.objectStore('meta');
    const now = await readMeta(meta);
    if (now.moved) throw userError('moved', this.name);
    const requests = requestsIn(now);
    if (id && requests.includes(id)) return Number(now.revision);
    for (const [name, value] of Object.entries(batch.expectMeta)) {
      if ((now[name] ?? null) !== value) throw userError('changed', name);
    }
    for (const [kind, name, version] of batch.expectVersions) {
      if (((await rows.get(keyOf([kind, name])))?.version ?? 0) !== version) throw userError('conflict', name);
    }
    const version = Number(now.revision) + 1;
    const pending = [];
    if (batch.clear !== null) {
      pending.push(batch.clear === '*' ? rows.clear() : rows.delete(keysAfter(batch.clear, null)));
    }
    for (const key of batch.deletes) pending.push(rows.delete(keyOf(key)));
    for (const row of unpack(batch.puts, data)) pending.push(rows.put({ ...row, version }));
    const changed = { ...batch.meta, revision: String(version) };
    if (id) changed.requests = JSON.stringify([...requests, id].slice(-REMEMBERED_REQUESTS));
    for (const [name, value] of Object.entries(changed)) {
      pending.push(value === null ? meta.delete(name) : meta.put(value, name));
    }
    await Promise.all(pending);
    return version;
  }

  async wasLocked() {
    return isNoted(this.name);
  }

  async noteLocked(locked) {
    await note(this.name, locked);
  }

  /** Rewrite everything into new files and delete the old ones, which still hold deleted and overwritten data. */
  compact() {
    return this.run(async () => {
      let failed = null;
      this.away = moveToNewFiles(this.name, this.version, this.db).catch((error) => { failed = error; });
      await this.away;
      this.away = null;
      await this.comeBack();
      this.open();
      if (failed) throw failed;
    });
  }

  /** Resolves when the database can be used; one wait may end where the next begins. */
  async here() {
    while (this.away) await this.away;
  }

  /** Reopen the database once nothing moves it any more. It is lost if something else deleted it. */
  comeBack() {
    this.away ??= inTurn(this.name, this.version, async () => {
      this.db.close();
      this.db = await openDatabase(this.name, this.version, this.lost, { isThere: true });
    }).catch(() => this.lost.because('closed')).finally(() => { this.away = null; });
    return this.away;
  }

  close() {
    this.lost.because('closed');
    this.db.close();
  }

  open() {
    if (this.lost.reason) throw userError(this.lost.reason, this.db.name);
    return this.db;
  }

  async run(work) {
    try {
      await this.here();
      this.open();
      return await work();
    } catch (error) {
      throw this.lost.reason ? userError(this.lost.reason, this.db.name) : explain(error);
    }
  }
}

async function readInOrder(index, range, newestFirst, limit) {
  if (!newestFirst) return index.getAll(range, limit ?? undefined);
  const rows = [];
  let cursor = await index.openCursor(range, 'prev');
  while (cursor && rows.length < (limit ?? Infinity)) {
    rows.push(cursor.value);
    cursor = await cursor.continue();
  }
  return rows;
}

/** Keys of a kind (null: of all) after a given one; an array comes after every string. */
function keysAfter(kind, after) {
  if (kind === null) return after ? IDBKeyRange.lowerBound(after, true) : undefined;
  return IDBKeyRange.bound(after ?? [kind, ''], [kind, []], after !== null);
}

function inRange(value, low, high) {
  return typeof value === typeof low && value >= low && value <= high;
}

function changeOf(batch) {
  return {
    puts: batch.puts.map(([kind, id]) => [kind, id]),
    deletes: batch.deletes,
    cleared: batch.clear,
    everything: 'key' in batch.meta || 'schema' in batch.meta,
  };
}
