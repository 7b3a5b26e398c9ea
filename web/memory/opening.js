/** Opens and upgrades a database of the memory, and tells why one can no longer be used. */
import { deleteDB, openDB } from '../vendor/idb.js';
import { userError } from '../common/user_error.js';

export const BLOCKED_MS = 3000; // how long other tabs may take to close an older version

/**
 * Make Chromium begin a new log before anything of ours is written. If it was killed in the middle of a write, its log ends
 * with half an entry; it would go on behind that, find the log corrupt at the next start, and delete everything. Deleting a
 * database, any one, makes LevelDB write out what it has and start another log. 16 ms.
 */
export async function settle(name) {
  const scratch = `${name} (settling)`;
  (await openDB(scratch, 1)).close();
  await deleteDB(scratch);
}

/** Tells why a database can no longer be used. */
export class Lost {
  reason = null;
  data = ''; // what the browser says when it found the database corrupt, and made an empty one
  onLost = () => {};
  /** Called instead where the database is deleted: it may come back (moving.js). @type {(() => void)|null} */
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
 * @param {{mark?: string, isThere?: boolean}} [options] mark: what meta says of a new database from the beginning.
 *   isThere: reject instead of making a new one
 */
export async function openDatabase(name, version, lost, { mark = '', isThere = false } = {}) {
  let timer, givenUp = false;
  const blocked = new Promise((_, reject) => {
    timer = () => setTimeout(() => reject(userError('blocked', name)), BLOCKED_MS);
  });
  blocked.catch(() => {});
  const opening = openDB(name, version, {
    upgrade(db, from, to, transaction, event) {
      if (isThere && from < 1) return transaction.abort();
      upgrade(db, from, to, transaction);
      if (mark) transaction.objectStore('meta').put('yes', mark);
      const { dataLoss, dataLossMessage } = /** @type {any} */ (event); // Chromium alone has them
      if (dataLoss === 'total') lost.data = dataLossMessage || 'corrupt';
    },
    blocked: () => timer(),
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
