/**
 * The memory in IndexedDB: rows by kind and id, found by time and by fields. py_core/memory/indexeddb.py calls this with
 * JSON and bytes; py_core/memory/rows.py says what each call does. Errors are named by py_core/memory/errors.py's reasons.
 */
import { deleteDB, openDB } from '../vendor/idb.js';
import { pack, unpack } from './packing.js';
import { TabWriter } from './tab_writer.js';
import { userError } from '../common/user_error.js';

const BLOCKED_MS = 3000; // how long other tabs may take to close an older version
const REMEMBERED_REQUESTS = 64;

export const memoryStore = {
  /** @returns {Promise<Database>} of this layout's version, created or upgraded */
  async open(name, version) {
    const lost = new Lost();
    try {
      await settle(name);
      return new Database(await openDatabase(name, version, lost), name, lost);
    } catch (error) {
      throw explain(error);
    }
  },
};

/**
 * Make Chromium begin a new log before anything of ours is written. If it was killed in the middle of a write, its log ends
 * with half an entry; it would go on behind that, find the log corrupt at the next start, and delete everything. Deleting a
 * database, any one, makes LevelDB write out what it has and start another log. 16 ms.
 */
async function settle(name) {
  const scratch = `${name} (settling)`;
  (await openDB(scratch, 1)).close();
  await deleteDB(scratch);
}

/** Tells why a database can no longer be used. */
class Lost {
  reason = null;
  data = ''; // what the browser says when it found the database corrupt, and made an empty one
  onLost = () => {};

  because(reason) {
    this.reason ??= reason;
    this.onLost();
  }
}

async function openDatabase(name, version, lost) {
  let timer, givenUp = false;
  const blocked = new Promise((_, reject) => {
    timer = () => setTimeout(() => reject(userError('blocked', name)), BLOCKED_MS);
  });
  blocked.catch(() => {});
  const opening = openDB(name, version, {
    upgrade(db, from, to, transaction, event) {
      upgrade(db, from, to, transaction);
      const { dataLoss, dataLossMessage } = /** @type {any} */ (event); // Chromium alone has them
      if (dataLoss === 'total') lost.data = dataLossMessage || 'corrupt';
    },
    blocked: () => timer(),
    // Another tab wants to upgrade or to delete the database: make way.
    blocking(_, wanted, event) {
      /** @type {IDBDatabase} */ (event.target).close();
      lost.because(wanted === null ? 'closed' : 'replaced');
    },
    terminated: () => lost.because('closed'),
  });
  opening.then((db) => givenUp && db.close(), () => {});
  try {
    return await Promise.race([opening, blocked]);
  } catch (error) {
    givenUp = true;
    throw error;
  }
}

function upgrade(db, from, to, transaction) {
  if (from < 1) {
    const rows = db.createObjectStore('rows', { keyPath: ['kind', 'id'] });
    rows.createIndex('time', ['kind', 'created', 'id']);
    const meta = db.createObjectStore('meta');
    meta.put(String(to), 'schema');
    meta.put('0', 'revision');
  }
  // each entry of a row's `fields` is [kind, name, value]
  if (from < 2) transaction.objectStore('rows').createIndex('fields', 'fields', { multiEntry: true });
}

class Database {
  /** Called when another tab has written. @type {((json: string) => void)|null} */
  onChange = null;

  constructor(db, name, lost) {
    this.db = db;
    this.lost = lost;
    this.tabs = new TabWriter(name, {
      apply: (request) => this.write(request),
      heard: (change) => this.onChange?.(JSON.stringify(change)),
    });
    lost.onLost = () => this.tabs.close(); // another tab may write
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
      const found = await Promise.all(JSON.parse(keys).map((key) => store.get(key)));
      return pack(found.filter((row) => row).map(withFields));
    });
  }

  scan(asked) {
    return this.run(async () => {
      const [kind, after, limit] = JSON.parse(asked);
      return pack((await this.db.getAll('rows', keysAfter(kind, after), limit)).map(withFields));
    });
  }

  query(asked) {
    return this.run(async () => {
      const [kind, where, since, before, newestFirst, limit] = JSON.parse(asked);
      const index = this.db.transaction('rows').store.index(where.length ? 'fields' : 'time');
      const since_ = since ?? -Infinity, before_ = before ?? Infinity;
      if (!where.length) {
        const range = IDBKeyRange.bound([kind, since_], [kind, before_], false, true);
        return pack((await readInOrder(index, range, newestFirst, limit)).map(withFields));
      }
      const [[field, low, high], ...others] = where;
      const holds = ([name, least, most]) => ([, its, value]) => its === name && inRange(value, least, most);
      const found = (await index.getAll(IDBKeyRange.bound([kind, field, low], [kind, field, high]))).filter(
        (row) =>
          row.created >= since_ && row.created < before_ && others.every((other) => row.fields.some(holds(other))),
      );
      const sign = newestFirst ? -1 : 1;
      found.sort((a, b) => sign * (a.created - b.created || (a.id < b.id ? -1 : 1)));
      return pack(found.slice(0, limit ?? undefined));
    });
  }

  count(asked) {
    return this.run(() => this.db.count('rows', keysAfter(JSON.parse(asked), null)));
  }

  /** Durable when it returns; by the tab that writes, which may be another one. @returns the new revision */
  apply(head, data) {
    return this.run(() => this.tabs.apply({ head, data }));
  }

  /** One transaction. `id`: a request that was done already, by a tab that closed before it answered, is not done again. */
  async write({ id, head, data }) {
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
        // it has ended already
      }
      await done;
      throw explain(transaction.error ?? error);
    }
  }

  async change(transaction, batch, id, data) {
    const rows = transaction.objectStore('rows'), meta = transaction.objectStore('meta');
    const now = await readMeta(meta);
    const requests = JSON.parse(now.requests ?? '[]');
    if (id && requests.includes(id)) return Number(now.revision);
    for (const [name, value] of Object.entries(batch.expectMeta)) {
      if ((now[name] ?? null) !== value) throw userError('changed', name);
    }
    for (const [kind, name, version] of batch.expectVersions) {
      if (((await rows.get([kind, name]))?.version ?? 0) !== version) throw userError('conflict', name);
    }
    const version = Number(now.revision) + 1;
    const pending = [];
    if (batch.clear !== null) {
      pending.push(batch.clear === '*' ? rows.clear() : rows.delete(keysAfter(batch.clear, null)));
    }
    for (const key of batch.deletes) pending.push(rows.delete(key));
    for (const row of unpack(batch.puts, data)) pending.push(rows.put({ ...row, version }));
    const changed = { ...batch.meta, revision: String(version) };
    if (id) changed.requests = JSON.stringify([...requests, id].slice(-REMEMBERED_REQUESTS));
    for (const [name, value] of Object.entries(changed)) {
      pending.push(value === null ? meta.delete(name) : meta.put(value, name));
    }
    await Promise.all(pending);
    return version;
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
      this.open();
      return await work();
    } catch (error) {
      throw this.lost.reason ? userError(this.lost.reason, this.db.name) : explain(error);
    }
  }
}

async function readMeta(store) {
  const [names, values] = await Promise.all([store.getAllKeys(), store.getAll()]);
  return Object.fromEntries(names.map((name, index) => [name, values[index]]));
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

/** Keys of a kind (null: of all) after one; an array comes after every string. */
function keysAfter(kind, after) {
  if (kind === null) return after ? IDBKeyRange.lowerBound(after, true) : undefined;
  return IDBKeyRange.bound(after ?? [kind, ''], [kind, []], after !== null);
}

function inRange(value, low, high) {
  return typeof value === typeof low && value >= low && value <= high;
}

/** Rows written by version 1 have none. */
function withFields(row) {
  return { fields: [], ...row };
}

function changeOf(batch) {
  return {
    puts: batch.puts.map(([kind, id]) => [kind, id]),
    deletes: batch.deletes,
    cleared: batch.clear,
    everything: Object.keys(batch.meta).length > 0, // another key or version
  };
}

/** An error of the browser as one of ours. */
function explain(error) {
  if (error?.stack === '') return error; // a userError
  const reasons = {
    QuotaExceededError: 'quota',
    VersionError: 'newer',
    InvalidStateError: 'closed',
    SecurityError: 'unavailable',
  };
  return userError(reasons[error?.name] ?? error?.name ?? 'unavailable', error?.message ?? '');
}
