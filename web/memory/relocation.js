/**
 * Moves a database to new files: everything into a copy, the old one deleted, everything back under its name, the copy deleted.
 * A browser may keep overwritten data in its files for long; it keeps nothing of a deleted database.
 *
 * A page that is killed in the middle loses nothing: one of the two always holds everything, and their marks tell which.
 * `copied` is in the copy once it is complete, `moved` in the old database once the copy has replaced it, and `arriving` in the
 * new one until it is complete. The next page that opens the database continues. Only one page at a time does any of this (Web
 * Locks); the others wait in `inTurn`.
 */
import { deleteDB } from '../vendor/idb.js';
import { webLocks } from '../common/browser_parts.js';
import { userError } from '../common/user_error.js';
import { readMeta } from './any_rows.js';
import { BLOCKED_MS, Lost, openDatabase, settle } from './database.js';

const YES = 'yes';
const MARKS = ['copied', 'moved', 'arriving', 'uncompacted']; // the last is store.py's: the move is still to do
const TOGETHER = 200; // rows in one transaction
const ATTEMPTS = 20; // tries to copy a database that other tabs write to meanwhile

/** Do `work` while nothing moves the database, after finishing any unfinished move. */
export async function inTurn(name, version, work) {
  const locks = await lockingMoves();
  if (!locks) return work();
  return locks.request(`sonata-memory:moving:${name}`, async () => {
    await finish(name, version);
    return work();
  });
}

/**
 * Move what `db` holds; it is closed afterwards. On rejection the database is as it was, or, if it was closed already,
 * everything is in the copy, and the next `inTurn` restores it.
 */
export async function moveToNewFiles(name, version, db) {
  if (!await lockingMoves()) throw userError('unavailable', 'no locks');
  await inTurn(name, version, async () => {
    const copy = await openDatabase(copyOf(name), version, new Lost());
    try {
      await copyWhole(db, copy);
    } catch (error) {
      copy.close();
      await deleteDB(copyOf(name)).catch(() => {});
      throw error;
    }
    db.close();
    await bringBack(copy, name, version);
  });
}

/** @returns {Promise<LockManager|null>} null if nothing can be moved */
async function lockingMoves() {
  return 'databases' in indexedDB ? webLocks() : null;
}

function copyOf(name) {
  return `${name} (copy)`;
}

/** Continue a move during which a page was killed. */
async function finish(name, version) {
  const names = (await indexedDB.databases()).map((database) => database.name);
  if (!names.includes(copyOf(name))) return;
  const copy = await openDatabase(copyOf(name), version, new Lost());
  const isWhole = (await readMeta(copy.transaction('meta').store)).copied === YES;
  if (isWhole && !(names.includes(name) && (await holdsEverything(name, version)))) {
    await bringBack(copy, name, version);
    return;
  }
  copy.close();
  await deleteDB(copyOf(name));
}

async function holdsEverything(name, version) {
  const db = await openDatabase(name, version, new Lost());
  try {
    const meta = await readMeta(db.transaction('meta').store);
    return !meta.moved && !meta.arriving;
  } finally {
    db.close();
  }
}

/** Copy until the copy holds what `db` held when it was marked as moved. */
async function copyWhole(db, copy) {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const meta = await readMeta(db.transaction('meta').store);
    await copyRows(db, copy, { ...meta, copied: YES });
    const transaction = db.transaction('meta', 'readwrite', { durability: 'strict' });
    const isSame = (await readMeta(transaction.store)).revision === meta.revision;
    if (isSame) await transaction.store.put(YES, 'moved');
    await transaction.done;
    if (isSame) return;
    await copy.clear('rows');
  }
  throw userError('busy', '');
}

async function bringBack(copy, name, version) {
  await settle(name); // the last overwritten data is in LevelDB's log, which the deletion below does not touch
  await remove(name);
  const db = await openDatabase(name, version, new Lost(), { mark: 'arriving' });
  try {
    await copyRows(copy, db, leaveOut(await readMeta(copy.transaction('meta').store), MARKS));
  } finally {
    db.close();
    copy.close();
  }
  await settle(name);
  await remove(copyOf(name));
  await settle(name); // LevelDB drops the remains of a deletion during the next one
}

async function copyRows(from, to, meta) {
  let after;
  for (;;) {
    const rows = await from.getAll('rows', after && IDBKeyRange.lowerBound(after, true), TOGETHER);
    if (!rows.length) break;
    const transaction = to.transaction('rows', 'readwrite');
    await Promise.all([...rows.map((row) => transaction.store.put(row)), transaction.done]);
    after = [rows.at(-1).kind, rows.at(-1).id]; // of any type
  }
  const transaction = to.transaction('meta', 'readwrite', { durability: 'strict' });
  transaction.store.clear();
  for (const [name, value] of Object.entries(meta)) transaction.store.put(value, name);
  await transaction.done;
}

async function remove(name) {
  let timer;
  const blocked = new Promise((_, reject) => {
    timer = () => setTimeout(() => reject(userError('blocked', name)), BLOCKED_MS);
  });
  await Promise.race([deleteDB(name, { blocked: () => timer() }), blocked]);
}

function leaveOut(meta, names) {
  return Object.fromEntries(Object.entries(meta).filter(([name]) => !names.includes(name)));
}
