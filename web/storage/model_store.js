/**
 * The models that this browser keeps, in the origin private file system (OPFS): models/SHA256/NAME.gguf. A file that is
 * still being downloaded is called NAME.gguf.part, and only its downloader, a worker that holds its lock, may touch it.
 *
 * A model that the user brought (model_worker.js) has its facts in a model.json beside it. NAME.gguf.sums are cheap checksums
 * (quick_sums.js), NAME.gguf.weights what the CPU's kernels have of it (kept_weights.js).
 *
 * `storedModels`, `broughtModels`, `readFacts` and `removeModel` are for the page; the rest is for the workers.
 */
import { webLocks } from '../common/browser_parts.js';
import { KeptFile } from './kept_file.js';

const FOLDER = 'models';
export const PART = '.part';
const FACTS = 'model.json';
const SUMS = '.sums';
/** The ending of a file of kept_weights.js beside a model. */
export const WEIGHTS = '.weights';
const FINISHING_MS = 500;
const BUSY = 'NoModificationAllowedError'; // for a file that is open elsewhere
/** Stands for the sha256 of a model that is being copied, whose checksum is not known yet. */
export const IMPORT = 'import';

/**
 * Facts about a model that the user brought: `pieces` is null until all of it is there. A model in several `parts`
 * (model_parts.js) lies in one file, in which they follow each other.
 * @typedef {{sha256: string, bytes: number, name: string, title: string, licence: string, source: string,
 *   parts: {name: string, bytes: number, sha256: string}[], pieces: {bytes: number, sha256: string[]}|null}} Facts
 */

/**
 * @returns {Promise<{sha256: string, name: string, bytes: number, weights: number, complete: boolean}[]>} the kept models,
 *   incomplete ones included; `weights`: the bytes that are kept beside a model
 */
export async function storedModels() {
  const models = [];
  const folder = await openFolder().catch(() => null);
  for await (const [sha256, entry] of folder?.entries() ?? []) {
    if (entry.kind !== 'directory' || sha256 === IMPORT) continue;
    let weights = 0;
    const found = [];
    for await (const [name, handle] of entry.entries()) {
      if (handle.kind !== 'file' || name === FACTS || [SUMS, WEIGHTS + PART].some((end) => name.endsWith(end))) continue;
      const { size } = await handle.getFile();
      if (name.endsWith(WEIGHTS)) weights = size;
      else found.push({ sha256, name: name.replace(/\.part$/, ''), bytes: size, complete: !name.endsWith(PART) });
    }
    models.push(...found.map((model) => ({ ...model, weights })));
  }
  return models;
}

/**
 * Delete what is kept of a model; does nothing if there is none. A model in use remains usable.
 * @returns {Promise<boolean>} false if it is being downloaded or read, also in another tab: then it is kept
 */
export async function removeModel(sha256) {
  const locks = await webLocks();
  const signal = AbortSignal.timeout(FINISHING_MS); // a reader of the last byte holds the lock for a moment
  const remove = async () => {
    await removeFiles(sha256);
    return true;
  };
  try {
    return await (locks ? locks.request(lockName(sha256), { signal }, remove) : remove());
  } catch (error) {
    if (['TimeoutError', BUSY].includes(error.name)) return false;
    throw error;
  }
}

/** The same, called by the holder of its lock. */
export async function removeFiles(sha256) {
  const folder = await openFolder();
  await patiently(() => folder.removeEntry(sha256, { recursive: true })).catch(unlessMissing);
}

/**
 * @returns {Promise<(Facts & {have: number, complete: boolean})[]>} the models that the user brought, incomplete ones included
 */
export async function broughtModels() {
  const found = [];
  const discard = (lock) => lock && removeFiles(IMPORT); // of a tab that was closed
  await (await webLocks())?.request(lockName(IMPORT), { ifAvailable: true }, discard).catch(() => {});
  for (const { sha256, bytes, complete } of await storedModels()) {
    const facts = await readFacts(sha256);
    if (facts) found.push({ ...facts, have: bytes, complete: complete && facts.pieces !== null });
  }
  return found.sort((one, other) => one.title.localeCompare(other.title));
}

/** @returns {Promise<Facts|null>} null for the model of the site, and if something else changed the file */
export async function readFacts(sha256) {
  try {
    const folder = await modelFolder(sha256);
    const facts = JSON.parse(await (await (await folder.getFileHandle(FACTS)).getFile()).text());
    return facts.sha256 === sha256 && facts.title && facts.name ? facts : null;
  } catch {
    return null;
  }
}

/** Store the facts about a model beside it. In a worker only. @param {Facts} facts */
export async function writeFacts(facts) {
  const folder = await (await openFolder()).getDirectoryHandle(facts.sha256, { create: true });
  const bytes = new TextEncoder().encode(JSON.stringify(facts));
  await writeFile(await folder.getFileHandle(FACTS, { create: true }), bytes);
}

/** @returns {Promise<BigUint64Array|null>} null if there are none. They may be wrong. */
export async function readSums({ sha256, name }) {
  try {
    const folder = await modelFolder(sha256);
    return new BigUint64Array(await (await (await folder.getFileHandle(name + SUMS)).getFile()).arrayBuffer());
  } catch {
    return null;
  }
}

/** In a worker only. @param {{sha256: string, name: string}} model @param {BigUint64Array<ArrayBuffer>} sums */
export async function writeSums({ sha256, name }, sums) {
  const folder = await modelFolder(sha256);
  await writeFile(await folder.getFileHandle(name + SUMS, { create: true }), sums);
}

async function writeFile(file, bytes) {
  const access = await openAlone(file);
  try {
    access.truncate(0);
    access.write(bytes, { at: 0 });
    access.flush();
  } finally {
    access.close();
  }
}

/** True if this browser can keep models: not in plain http, some not in a private window, and none with blocked cookies. */
export async function canKeep() {
  if (!globalThis.FileSystemSyncAccessHandle || !await webLocks()) return false;
  return openFolder().then(() => true, () => false);
}

/** @returns {Promise<File|null>} the model, if it is kept completely */
export async function findModel(model) {
  return (await findHandle(model))?.getFile() ?? null;
}

/** The same in a worker, for reading. The caller must close it. @returns {Promise<KeptFile|null>} */
export async function openModel(model) {
  const handle = await findHandle(model);
  return handle && KeptFile.open(handle);
}

async function findHandle({ sha256, name, bytes }) {
  try {
    const folder = await modelFolder(sha256);
    const handle = await folder.getFileHandle(name);
    return (await handle.getFile()).size === bytes ? handle : null;
  } catch {
    return null;
  }
}

/** @returns {Promise<number>} bytes already downloaded of a model */
export async function partSize({ sha256, name }) {
  try {
    const folder = await modelFolder(sha256);
    return (await (await folder.getFileHandle(name + PART)).getFile()).size;
  } catch {
    return 0; // it was completed a moment ago
  }
}

/**
 * Wait until no other tab downloads the model, and let none begin. Only if the browser can keep models.
 * @returns {Promise<() => void>} releases the lock; so does the end of the worker
 */
export function lockModel(sha256, signal) {
  return new Promise((/** @type {(release: () => void) => void} */ resolve, reject) => {
    const held = () => new Promise((/** @type {(value: void) => void} */ release) => resolve(release));
    webLocks().then((locks) => /** @type {LockManager} */ (locks).request(lockName(sha256), { signal }, held)).catch(reject);
  });
}

/** The beginning of a model, and room for the rest. Its lock must be held; `close` it, or it cannot be opened again. */
export class PartialModel {
  #folder;
  #file;
  #access;
  #model;

  static async open(model) {
    const folder = await (await openFolder()).getDirectoryHandle(model.sha256, { create: true });
    const file = await folder.getFileHandle(model.name + PART, { create: true });
    return new PartialModel(folder, file, await openAlone(file), model);
  }

  constructor(folder, file, access, model) {
    this.#folder = folder;
    this.#file = file;
    this.#access = access;
    this.#model = model;
  }

  /** Bytes that were written. They may be damaged: the machine may have been switched off. */
  get size() {
    return this.#access?.getSize() ?? 0;
  }

  read(offset, nbytes) {
    const bytes = new Uint8Array(nbytes);
    return bytes.subarray(0, this.#access.read(bytes, { at: offset }));
  }

  /** Truncate at an offset. */
  truncate(offset) {
    if (this.size > offset) this.#access.truncate(offset);
  }

  /**
   * @returns {boolean} false if there is no room for them: only an attempt can tell, because browsers report a rounded quota
   */
  append(bytes) {
    try {
      return this.#access.write(bytes, { at: this.size }) === bytes.length;
    } catch {
      return false;
    }
  }

  /** Marks it as complete and checked: from now on it counts as kept. @param {{sha256: string, name: string}} model */
  async finish({ sha256, name }) {
    this.#access.flush();
    this.close();
    await this.#file.move(await (await openFolder()).getDirectoryHandle(sha256), name);
  }

  close() {
    this.#access?.close();
    this.#access = null;
  }

  /** Free the reserved room. */
  async discard() {
    this.close();
    await this.#folder.removeEntry(this.#model.name + PART).catch(unlessMissing);
    await this.#folder.removeEntry(FACTS).catch(unlessMissing);
    await (await openFolder()).removeEntry(this.#model.sha256).catch(() => {}); // unless the folder holds something else
  }
}

/** The folder of a model. Throws if there is none. */
export async function modelFolder(sha256) {
  return (await openFolder()).getDirectoryHandle(sha256);
}

async function openFolder() {
  const root = await navigator.storage.getDirectory();
  return root.getDirectoryHandle(FOLDER, { create: true });
}

/** The lock of a worker that was ended may be free a moment before its file is. */
export function openAlone(file) {
  return patiently(() => file.createSyncAccessHandle());
}

/** Retry for two seconds if the file is open elsewhere. */
async function patiently(act) {
  for (let patience = 20; ; patience--) {
    try {
      return await act();
    } catch (error) {
      if (error.name !== BUSY || patience === 0) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

function lockName(sha256) {
  return `sonata-model-${sha256}`;
}

function unlessMissing(error) {
  if (error.name !== 'NotFoundError') throw error;
}
