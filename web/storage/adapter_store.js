/**
 * The adapters that this browser keeps, beside the models in the origin private file system (OPFS):
 * adapters/SHA256/NAME.safetensors, with its facts in an adapter.json. The latter is written last: a folder without it was left
 * by a tab that was closed in the middle. A tab or worker that writes or deletes holds a lock that all tabs share.
 */
import { message } from '../common/message.js';
import { openChannel, webLocks } from '../common/browser_parts.js';
import { userError } from '../common/user_error.js';

const FOLDER = 'adapters';
const FACTS = 'adapter.json';
const LOCK = 'sonata-adapters';
const PATIENCE_MS = 10_000;

/**
 * Facts about an adapter. `base`: the sha256 and the title of the model that it was made for. `lost`: the share that was lost
 * with a smaller rank, 0 to 1.
 * @typedef {{sha256: string, name: string, bytes: number, rank: number, linears: number, lost: number,
 *   base: {sha256: string, title: string}}} AdapterFacts
 */

const channel = openChannel(LOCK);
const listeners = /** @type {Set<() => void>} */ (new Set());
channel.onmessage = () => tellHere();

/** @param {() => void} listener called when adapters were added or deleted, here, by another tab, or by a worker */
export function onAdapters(listener) {
  listeners.add(listener);
}

function tell() {
  channel.postMessage(null);
  tellHere();
}

function tellHere() {
  for (const listener of listeners) listener();
}

/** @returns {Promise<AdapterFacts[]>} in the order of their names */
export async function storedAdapters() {
  /** @type {AdapterFacts[]} */
  const found = [];
  for await (const [sha256, entry] of (await openFolder().catch(() => null))?.entries() ?? []) {
    const facts = entry.kind === 'directory' ? await readFacts(entry, sha256) : null;
    if (facts) found.push(facts);
  }
  return found.sort((one, other) => one.name.localeCompare(other.name));
}

/**
 * Keep the adapter that `make` returns; in a worker only. An adapter that exists already is left as it is, unless it is
 * damaged.
 * @param {(kept: Record<string, string>) => Promise<{facts: AdapterFacts, bytes: Uint8Array<ArrayBuffer>}>} make gets the
 *   sha256 of each kept adapter, by its name
 * @returns {Promise<AdapterFacts>} Throws a NoRoomError if there is no room
 */
export async function keepAdapter(make) {
  await openFolder().catch(() => {
    throw userError('NoRoomError', message('store.no-adapters', 'This browser stores no files for the page (as in a private window), so it cannot keep adapters.'));
  });
  return alone(async () => {
    await clean();
    const there = await storedAdapters();
    const { facts, bytes } = await make(Object.fromEntries(there.map(({ name, sha256 }) => [name, sha256])));
    const same = there.find(({ sha256 }) => sha256 === facts.sha256);
    if (same && await readAdapter(same).catch(() => null)) return same; // a damaged adapter is written again
    try {
      const folder = await (await openFolder()).getDirectoryHandle(facts.sha256, { create: true });
      await write(folder, `${facts.name}.safetensors`, bytes);
      await write(folder, FACTS, new TextEncoder().encode(JSON.stringify(facts)));
    } catch {
      await removeFolder(facts.sha256);
      const size = (bytes.length / 1e6).toFixed(1);
      throw userError('NoRoomError', message('store.no-room-for-adapter', 'There is no room in this browser to keep the adapter {name} ({size} MB). Delete a model, or free some disk space, then add it again.', { name: facts.name, size }));
    }
    tell();
    return facts;
  });
}

/**
 * @param {AdapterFacts} facts
 * @returns {Promise<File>} its file, checked. Throws a userError if it is damaged or gone
 */
export async function readAdapter({ sha256, name }) {
  try {
    const folder = await (await openFolder()).getDirectoryHandle(sha256);
    const file = await (await folder.getFileHandle(`${name}.safetensors`)).getFile();
    if (await digest(await file.arrayBuffer()) === sha256) return file;
  } catch {
    throw userError('AdapterError', message('store.adapter-gone', 'The adapter {name} is no longer in this browser. Add its file again.', { name }));
  }
  throw userError('AdapterError', message('store.adapter-damaged', 'The copy of the adapter {name} in this browser is damaged. Delete it, then add its file again.', { name }));
}

/** Delete an adapter; does nothing if there is none. @param {string} sha256 */
export async function removeAdapter(sha256) {
  await alone(() => removeFolder(sha256));
  tell();
}

/** Delete every adapter, and the remains of others. */
export async function removeAdapters() {
  const root = await openRoot().catch(() => null);
  if (!root) return; // this browser stores nothing
  await alone(() => root.removeEntry(FOLDER, { recursive: true }).catch(unlessMissing));
  tell();
}

/** Delete what closed tabs left unfinished. The lock must be held. */
async function clean() {
  for await (const [sha256, entry] of (await openFolder()).entries()) {
    const isComplete = entry.kind === 'directory' && await entry.getFileHandle(FACTS).catch(() => null);
    if (!isComplete) await removeFolder(sha256);
  }
}

/**
 * @returns {Promise<AdapterFacts|null>} null if it is incomplete. If its facts are damaged, so that its model is unknown, the
 *   facts that its file holds: it can still be saved and deleted
 */
async function readFacts(folder, sha256) {
  const kept = await folder.getFileHandle(FACTS).catch(() => null);
  if (!kept) return null;
  try {
    const facts = JSON.parse(await (await kept.getFile()).text());
    if (facts.sha256 === sha256 && typeof facts.name === 'string' && typeof facts.base.sha256 === 'string') return facts;
  } catch { /* damaged */ }
  for await (const [file, handle] of folder.entries()) {
    if (file === FACTS || handle.kind !== 'file') continue;
    const name = file.replace(/\.safetensors$/, '');
    return { sha256, name, bytes: (await handle.getFile()).size, rank: 0, linears: 0, lost: 0, base: { sha256: '', title: '' } };
  }
  return null;
}

async function write(folder, name, bytes) {
  const access = await (await folder.getFileHandle(name, { create: true })).createSyncAccessHandle();
  try {
    access.truncate(0);
    if (access.write(bytes, { at: 0 }) !== bytes.length) throw new Error('the disk is full');
    access.flush();
  } finally {
    access.close();
  }
}

async function removeFolder(name) {
  await (await openFolder()).removeEntry(name, { recursive: true }).catch(unlessMissing);
}

async function openRoot() {
  return navigator.storage.getDirectory();
}

async function openFolder() {
  return (await openRoot()).getDirectoryHandle(FOLDER, { create: true });
}

/** Let no other tab write or delete meanwhile. */
async function alone(act) {
  const locks = await webLocks();
  if (!locks) return act();
  try {
    return await locks.request(LOCK, { signal: AbortSignal.timeout(PATIENCE_MS) }, act);
  } catch (error) {
    if (error.name !== 'TimeoutError') throw error;
    throw userError('BusyError', message('store.adapter-busy', 'Another tab is adding an adapter. Wait until it has finished, then try again.'));
  }
}

async function digest(bytes) {
  const sum = await crypto.subtle.digest('SHA-256', bytes);
  return Array.from(new Uint8Array(sum), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

function unlessMissing(error) {
  if (error.name !== 'NotFoundError') throw error;
}
