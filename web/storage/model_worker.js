/**
 * Brings models into the browser's store, in a worker: from the hub, or from a file that the user picked. What was
 * broken off stays, and goes on from there. model_keeper.js is the page's side.
 */
import * as Comlink from '../vendor/comlink.mjs';
import { addressOf, askHub } from './hub.js';
import { hexOf } from './model_download.js';
import { fetchFrom } from './model_hosts.js';
import { canKeep, findModel, lockModel, PartialModel, readFacts, removeModel, writeFacts } from './model_store.js';
import { Sha256 } from './sha256.js';
import { userError } from '../common/user_error.js';

const PIECE = 4 << 20; // bytes of a piece that has a checksum of its own
const EVERY_MS = 100; // between two reports of progress
const TRIES = 5; // broken connections in a row, without a new byte, before it is given up

const FINAL = ['RefusedError', 'NoRoomError']; // errors that trying again does not help

let stopping = new AbortController();

Comlink.expose({
  /** See hub.js. Asked here: what the page itself may connect to is its own server only. */
  ask: askHub,

  /**
   * @param {import('./hub.js').Catalog} catalog @param {import('./hub.js').Entry} entry
   * @param {{bytes: number, sha256: string}} listed by the hub
   * @param {(done: number, total: number, perSecond: number) => void} onProgress
   * @returns {Promise<boolean>} false where it was stopped: what there is of it is kept
   */
  async download(catalog, entry, { bytes, sha256 }, onProgress) {
    const { title, name, licence } = entry;
    const model = { sha256, bytes, name: `${name}.gguf`, title, licence, source: addressOf(catalog, entry) };
    return keep(model, onProgress, (signal) => fromHub(catalog, model, signal));
  },

  /**
   * Copy a file that is no model of the hub's.
   * @param {File} file
   * @returns {Promise<{sha256: string}|null>} null where it was stopped. Throws a NoRoomError where it cannot be kept.
   */
  async importFile(file, onProgress) {
    const { signal } = (stopping = new AbortController());
    try {
      const report = reporter(onProgress, 2 * file.size); // read once for its checksum, once to copy it
      const state = new Sha256();
      let read = 0;
      await checkMagic(file);
      for await (const chunk of chunksOf(file.stream(), signal)) {
        state.update(chunk);
        report(read += chunk.length);
      }
      const sha256 = state.hex();
      const name = `${file.name.replace(/\.gguf$/i, '').replace(/[^\w.-]+/g, '-').slice(0, 60) || 'model'}.gguf`;
      const model = { sha256, bytes: file.size, name, title: file.name.replace(/\.gguf$/i, ''), licence: '', source: file.name };
      const kept = await keep(
        model, (done) => report(read + done),
        async () => async (from) => ({ begun: from, chunks: chunksOf(file.slice(from).stream(), stopping.signal) }),
      ).catch(async (error) => {
        await removeModel(sha256); // the file itself is still there
        throw error;
      });
      if (!kept) await removeModel(sha256);
      return kept ? { sha256 } : null;
    } catch (error) {
      if (signal.aborted) return null;
      throw error;
    }
  },

  stop() {
    stopping.abort();
  },
});

/** A file that does not begin like a GGUF is refused before anything is read or copied. */
async function checkMagic(file) {
  const magic = new Uint8Array(await file.slice(0, 4).arrayBuffer());
  if (String.fromCharCode(...magic) !== 'GGUF') {
    throw new Error(`${file.name} is no GGUF file (it does not begin with GGUF). Choose a model file that ends in .gguf.`);
  }
}

/**
 * Bring what is missing of a model, check all of it, and keep it.
 * @param {(signal: AbortSignal) => Promise<(from: number) => Promise<{begun: number, chunks: AsyncIterable<Uint8Array>}>>} from
 *   opens the source at a byte; `begun` is 0 where it begins again instead
 */
async function keep(model, onProgress, from) {
  if (!await canKeep()) throw userError('NoRoomError', 'This browser stores no files for the page (as in a private window), so it cannot keep models.');
  const { signal } = (stopping = new AbortController());
  const report = reporter(onProgress, model.bytes);
  let release;
  try {
    release = await lockModel(model.sha256, signal);
    if (await findModel(model) && (await readFacts(model.sha256))?.pieces) return true;
    await writeFacts({ ...model, pieces: null });
    const open = await from(signal);
    const partial = await PartialModel.open(model);
    try {
      await complete(partial, model, open, report, signal);
    } catch (error) {
      if (partial.size === 0) await partial.discard();
      throw error;
    } finally {
      partial.close();
    }
    return true;
  } catch (error) {
    if (signal.aborted) return false;
    throw error;
  } finally {
    release?.();
  }
}

async function complete(partial, model, open, report, signal) {
  for (let again = false; ; again = true) {
    const resumed = partial.size > 0;
    const sums = new Sums();
    partial.truncate(model.bytes);
    for (let at = 0; at < partial.size; at += PIECE) {
      signal.throwIfAborted();
      await sums.add(partial.read(at, PIECE));
      report(Math.min(at + PIECE, partial.size));
    }
    await append(partial, model, open, report, sums, signal);
    const pieces = await sums.pieces();
    if (sums.sha256() === model.sha256) {
      await writeFacts({ ...model, pieces: { bytes: PIECE, sha256: pieces } }); // before it has its name
      await partial.finish();
      return;
    }
    partial.truncate(0);
    if (!resumed || again) {
      await partial.discard();
      throw new Error('What came is not the file that was listed: its checksum is wrong. It was thrown away. Try again later.');
    }
  }
}

/** Bring the bytes behind those that are there, over as many connections as it takes. */
async function append(partial, model, open, report, sums, signal) {
  for (let failures = 0; partial.size < model.bytes;) {
    const before = partial.size;
    try {
      const { begun, chunks } = await open(before);
      let skipped = before - begun;
      for await (let chunk of chunks) {
        const part = chunk.subarray(Math.min(skipped, chunk.length));
        skipped -= chunk.length - part.length;
        if (!part.length) continue;
        if (partial.size + part.length > model.bytes) throw userError('RefusedError', 'What came is longer than the file that was listed.');
        if (partial.size === 0 && !startsLikeGguf(part)) throw userError('RefusedError', `${model.title} is no GGUF file.`);
        if (!partial.append(part)) throw userError('NoRoomError', await noRoom(model.bytes - partial.size));
        await sums.add(part);
        report(partial.size);
      }
      if (partial.size < model.bytes) throw new Error('The connection was lost.');
    } catch (error) {
      if (signal.aborted || FINAL.includes(error.name)) throw error;
      failures = partial.size > before ? 0 : failures + 1;
      if (failures >= TRIES) {
        throw new Error(`${error.message} ${(partial.size / 1e6).toFixed(1)} MB are kept: "Continue" goes on from there.`);
      }
      await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** failures));
      signal.throwIfAborted();
    }
  }
}

function startsLikeGguf(chunk) {
  return 'GGUF'.startsWith(String.fromCharCode(...chunk.subarray(0, 4)));
}

async function noRoom(missing) {
  const { quota = 0, usage = 0 } = await navigator.storage.estimate();
  const left = Math.max(0, quota - usage) / 1e9;
  return `There is no room in this browser: ${(missing / 1e9).toFixed(2)} GB are missing, about ${left.toFixed(2)} GB are left. Delete a model, or free some disk space.`;
}

/** The source of a file on the hub. */
async function fromHub({ hosts }, model, signal) {
  return async (from) => {
    const headers = from ? { Range: `bytes=${from}-` } : {};
    const response = await fetchFrom(model.source, hosts, { headers, signal, cache: 'no-store' });
    if ([401, 403, 404, 410].includes(response.status)) throw userError('RefusedError', `${new URL(model.source).host} has this file no more.`);
    if (!response.ok) throw new Error(`${new URL(response.url).host} does not answer (HTTP ${response.status}).`);
    return { begun: response.status === 206 ? from : 0, chunks: chunksOf(response.body, signal) };
  };
}

async function* chunksOf(body, signal) {
  const reader = body.getReader();
  try {
    for (;;) {
      signal.throwIfAborted();
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The checksum of all bytes, and of each piece. */
class Sums {
  #whole = new Sha256();
  #piece = new Uint8Array(PIECE);
  #filled = 0;
  #found = /** @type {string[]} */ ([]);

  async add(bytes) {
    this.#whole.update(bytes);
    for (let rest = bytes; rest.length;) {
      const part = rest.subarray(0, PIECE - this.#filled);
      this.#piece.set(part, this.#filled);
      this.#filled += part.length;
      rest = rest.subarray(part.length);
      if (this.#filled === PIECE) await this.#end();
    }
  }

  async #end() {
    this.#found.push(await hexOf(this.#piece.subarray(0, this.#filled)));
    this.#filled = 0;
  }

  async pieces() {
    if (this.#filled) await this.#end();
    return this.#found;
  }

  sha256() {
    return this.#whole.hex();
  }
}

/** Reports progress now and then, with the speed of the last seconds. */
function reporter(onProgress, total) {
  const seen = /** @type {{at: number, done: number}[]} */ ([]);
  let newest = 0;
  let waiting = false;
  const tell = () => {
    waiting = false;
    const now = performance.now();
    seen.push({ at: now, done: newest });
    while (seen.length > 2 && now - seen[0].at > 5000) seen.shift();
    const [first] = seen;
    onProgress(newest, total, now > first.at ? 1000 * (newest - first.done) / (now - first.at) : 0);
  };
  return (done) => {
    newest = done;
    if (seen.length === 0) {
      tell();
    } else if (!waiting) {
      waiting = true;
      setTimeout(tell, EVERY_MS); // so the last of a burst is told, too
    }
  };
}
