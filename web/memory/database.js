/** Opens and upgrades a database of the memory, and tells why it can no longer be used. */
import { deleteDB, openDB } from '../vendor/idb.js';
import { userError } from '../common/user_error.js';

export const BLOCKED_MS = 3000; // how long other tabs may take to close an older version
const SILENT_MS = 30_000; // a browser that is silent about a database for this long stays silent

/**
 * Make Chromium begin a new log before anything of ours is written. If it was killed in the middle of a write, its log ends
 * with half an entry. Chromium would continue behind it, find the log corrupt at the next start, and delete everything.
 * Deleting any database makes LevelDB write out what it has and start a new log. Takes 16 ms.
 */
export async function settle(name) {
  const scratch = `${name} (settling)`;
  const limit = new Limit(name);
  try {
    await limit.on(openDB(scratch, 1).then((db) => db.close()).then(() => deleteDB(scratch)));
  } finally {
    limit.end();
  }
}

/** How long the browser may be silent. */
class Limit {
  #name;
  #timer = 0;
  #reject = (/** @type {Error} */ _why) => {};
  #over = new Promise((_, reject) => (this.#reject = reject));

  /** @param {string} name of a database */
  constructor(name) {
    this.#name = name;
    this.set(SILENT_MS, 'unavailable');
  }

  /** @template T @param {Promise<T>} work @returns {Promise<T>} rejects when the time is up */
  on(work) {
    return Promise.race([work, /** @type {Promise<never>} */ (this.#over)]);
  }

  /** Start the timeout again. @param {number} ms @param {string} reason */
  set(ms, reason) {
    this.end();
    this.#timer = setTimeout(() => this.#reject(userError(reason, this.#name)), ms);
  }

  end() {
    clearTimeout(this.#timer);
  }
}

/** Tells why a database can no longer be used. */
export class Lost {
  reason = null;
  data = ''; // what the browser reports after it found the database corrupt and made an empty one
  onLost = () => {};
  /** Called instead if the database is deleted: it may come back (relocation.js). @type {(() => void)|null} */
  onDeleted = null;

  because(reason) {
    this.reason ??= reason;
    this.onLost();
  }
}

/**
 * @param {string} name
 * @param {number} version
 * @param {Lost} lost
 * @param {{mark?: string, isThere?: boolean}} [options] mark: the mark in the meta of a new database. isThere: reject instead
 *   of making a new one
 */
export async function openDatabase(name, version, lost, { mark = '', isThere = false } = {}) {
  const limit = new Limit(name);
  let givenUp = false;
  const opening = openDB(name, version, {
    upgrade(db, from, to, transaction, event) {
      limit.end(); // it may take its time
      if (isThere && from < 1) return transaction.abort();
      upgrade(db, from, to, transaction);
      if (mark) transaction.objectStore('meta').put('yes', mark);
      const { dataLoss, dataLossMessage } = /** @type {any} */ (event); // Chromium alone has them
      if (dataLoss === 'total') lost.data = dataLossMessage || 'corrupt';
    },
    blocked: () => limit.set(BLOCKED_MS, 'blocked'),
    // Another tab wants to upgrade or to delete the database: make way.
    blocking(_, wanted, event) {
      /** @type {IDBDatabase} */ (event.target).close();
      if (wanted === null && lost.onDeleted) lost.onDeleted();
      else lost.because(wanted === null ? 'closed' : 'replaced');
    },
    terminated: () => lost.because('closed'),
  });
  opening.then((db) => givenUp && db.close(), () => {});
  try {
    return await limit.on(opening);
  } catch (error) {
    givenUp = true;
    throw error;
  } finally {
    limit.end();
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

/** An error of the browser as one of ours. */
export function explain(error) {
  if (error?.stack === '') return error; // a userError
  const reasons = {
    QuotaExceededError: 'quota',
    VersionError: 'newer',
    InvalidStateError: 'closed',
    SecurityError: 'unavailable',
  };
  return userError(reasons[error?.name] ?? error?.name ?? 'unavailable', error?.message ?? '');
}
