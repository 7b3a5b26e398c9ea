/**
 * Brings models into the browser's store, in a worker: from the hub, or from files that the user picked. A download that broke
 * off stays, and continues from there. model_keeper.js is the page's side.
 */
import { message } from '../common/message.js';
import * as Comlink from '../vendor/comlink.mjs';
import { addressOf, askHub } from './hub.js';
import { blobPieces } from './model_download.js';
import { fetchFrom } from './model_hosts.js';
import { placed, sumOfParts } from './model_parts.js';
import { canKeep, findModel, IMPORT, lockModel, PartialModel, readFacts, removeFiles, writeFacts } from '../storage/model_store.js';
import { PIECE, reporter, Sums } from './model_sums.js';
import { releaseMemory } from '../common/buffer_release.js';
import '../common/error_transfer.js';
import { userError } from '../common/user_error.js';

const TRIES = 5; // broken connections in a row, without a new byte, before it gives up

const FINAL = ['RefusedError', 'NoRoomError', 'WrongSumError']; // errors for which a retry does not help

/**
 * Opens the file in which a byte of the model lies. Returns its number, its first byte in the model and the byte behind its
 * last, and the chunks from `begun` on, which is that byte or the beginning of the file.
 * @typedef {(from: number) => Promise<{index: number, start: number, end: number, begun: number, chunks: AsyncIterable<Uint8Array>}>} Opener
 */

let stopping = new AbortController();

Comlink.expose({
  /** See hub.js. Asked here, because the page itself may connect to its own server only. */
  ask: askHub,

  /**
   * @param {import('./hub.js').Catalog} catalog @param {import('./hub.js').Entry} entry
   * @param {import('./hub.js').Listed} listed by the hub
   * @param {(done: number, total: number, perSecond: number) => void} onProgress
   * @returns {Promise<boolean>} false if it was stopped; the downloaded part is kept
   */
  async download(catalog, entry, { bytes, sha256, parts }, onProgress) {
    const { title, name, licence } = entry;
    const addresses = parts.map((part) => addressOf(catalog, { ...entry, file: part.name }));
    const model = { sha256, bytes, name: `${name}.gguf`, title, licence, source: addresses[0], parts };
    return keep(model, onProgress, (signal) => fromHub(catalog.hosts, addresses, parts, signal));
  },

  /**
   * Copy the files of a model that the user has: one, or all parts in their order.
   * @param {File[]} files @param {{title: string, licence: string}} known
   * @returns {Promise<{sha256: string}|null>} null if it was stopped. Throws a NoRoomError if it cannot be kept.
   */
  async importFiles(files, known, onProgress) {
    await mustKeep();
    const { signal } = (stopping = new AbortController());
    let release;
    try {
      release = await lockModel(IMPORT, signal);
      return await copy(files, known, onProgress, signal);
    } catch (error) {
      if (signal.aborted) return null;
      throw await noRoomOr(error, files.reduce((sum, { size }) => sum + size, 0));
    } finally {
      release?.();
    }
  },

  stop() {
    stopping.abort();
  },
});

async function mustKeep() {
  if (!await canKeep()) throw userError('NoRoomError', message('store.no-models', 'This browser stores no files for the page (as in a private window), so it cannot keep models.'));
}

/** Copies under a temporary name: a model is named after its checksum, which is known at the end. */
async function copy(files, { title, licence }, onProgress, signal) {
  const bytes = files.reduce((sum, file) => sum + file.size, 0);
  const report = reporter(onProgress, bytes);
  const sums = await Sums.create(files.map(({ size }) => size));
  const name = `${title.replace(/[^\w.-]+/g, '-').slice(0, 60) || 'model'}.gguf`;
  const partial = await PartialModel.open({ sha256: IMPORT, name });
  let release;
  try {
    partial.truncate(0);
    for (const file of files) {
      for await (const piece of blobPieces(file, signal)) {
        if (!partial.append(piece)) throw userError('NoRoomError', await noRoom(bytes - partial.size));
        await sums.add(piece);
        releaseMemory(piece);
        report(partial.size);
      }
    }
    const pieces = { bytes: PIECE, sha256: await sums.pieces() };
    const parts = files.map((file, index) => ({ name: file.name, bytes: file.size, sha256: sums.files[index] }));
    const sha256 = await sumOfParts(sums.files);
    const model = { sha256, bytes, name, title, licence, source: files[0].name, parts, pieces };
    release = await lockModel(sha256, signal);
    const known = await readFacts(sha256);
    if (!known?.pieces || !await findModel(known)) {
      await removeFiles(sha256);
      await writeFacts(model);
      await partial.finish(model);
    }
    return { sha256 };
  } finally {
    release?.();
    await partial.discard();
  }
}

/**
 * Download the missing part of a model of the hub, check all of it, and keep it.
 * @param {(signal: AbortSignal) => Opener} from
 * @returns {Promise<boolean>} false if it was stopped
 */
async function keep(model, onProgress, from) {
  await mustKeep();
  const { signal } = (stopping = new AbortController());
  const report = reporter(onProgress, model.bytes);
  let release;
  try {
    release = await lockModel(model.sha256, signal);
    if (await findModel(model) && (await readFacts(model.sha256))?.pieces) return true;
    await writeFacts({ ...model, pieces: null });
    const partial = await PartialModel.open(model);
    try {
      await complete(partial, model, from(signal), report, signal);
    } catch (error) {
      if (partial.size === 0) await partial.discard();
      throw error;
    } finally {
      partial.close();
    }
    return true;
  } catch (error) {
    if (signal.aborted) return false;
    throw await noRoomOr(error, model.bytes);
  } finally {
    release?.();
  }
}

async function complete(partial, model, open, report, signal) {
  for (let again = false; ; again = true) {
    const resumed = partial.size;
    const sums = await Sums.create(model.parts.map(({ bytes }) => bytes));
    partial.truncate(model.bytes);
    try {
      for (let at = 0; at < partial.size; at += PIECE) {
        signal.throwIfAborted();
        await sums.add(partial.read(at, PIECE));
        mustMatch(sums, model);
        report(Math.min(at + PIECE, partial.size));
      }
      await append(partial, model, open, report, sums, signal);
      const pieces = { bytes: PIECE, sha256: await sums.pieces() };
      await writeFacts({ ...model, pieces }); // before it has its name
      await partial.finish(model);
      return;
    } catch (error) {
      if (error.name !== 'WrongSumError') throw error;
      partial.truncate(error.start);
      if (resumed <= error.start || again) throw error; // otherwise bytes of an earlier connection may be wrong
    }
  }
}

/** Throws a WrongSumError if a complete file is not the listed one; `start` is its first byte in the model. */
function mustMatch({ files }, { parts }) {
  const wrong = files.findIndex((sum, index) => sum !== parts[index].sha256);
  if (wrong < 0) return;
  const { name } = parts[wrong];
  const error = userError('WrongSumError', parts.length > 1
    ? message('download.wrong-part', '{name} is not the file that was listed: its checksum is wrong. It was deleted. Try again later.', { name })
    : message('download.wrong-file', 'The download is not the file that was listed: its checksum is wrong. It was deleted. Try again later.'));
  throw Object.assign(error, { start: parts.slice(0, wrong).reduce((sum, { bytes }) => sum + bytes, 0) });
}

/** Download the bytes behind the existing ones, over as many connections as needed. */
async function append(partial, model, open, report, sums, signal) {
  for (let failures = 0; partial.size < model.bytes;) {
    const before = partial.size;
    try {
      const { index, start, end, begun, chunks } = await open(before);
      let skipped = before - begun;
      report(before); // so the first report has a speed, too
      for await (let chunk of chunks) {
        const part = chunk.subarray(Math.min(skipped, chunk.length));
        skipped -= chunk.length - part.length;
        if (!part.length) continue;
        if (partial.size + part.length > end) throw userError('RefusedError', message('download.longer', 'The download is longer than the file that was listed.'));
        const title = model.parts.length > 1 ? model.parts[index].name : model.title;
        if (partial.size === start && !startsLikeGguf(part)) throw userError('RefusedError', message('download.no-gguf', '{title} is not a GGUF file.', { title }));
        if (!partial.append(part)) throw userError('NoRoomError', await noRoom(model.bytes - partial.size));
        await sums.add(part);
        mustMatch(sums, model);
        report(partial.size);
      }
      if (partial.size < end) throw userError('Error', message('download.connection-lost', 'The connection was lost.'));
    } catch (error) {
      if (signal.aborted || FINAL.includes(error.name)) throw error;
      failures = partial.size > before ? 0 : failures + 1;
      if (failures >= TRIES) {
        throw userError('Error', message('download.kept', '{why} {size} MB are kept: "Continue" resumes from there.', { why: error.said ?? error.message, size: (partial.size / 1e6).toFixed(1) }));
      }
      await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** failures));
      signal.throwIfAborted();
    }
  }
}

function startsLikeGguf(chunk) {
  return 'GGUF'.startsWith(String.fromCharCode(...chunk.subarray(0, 4)));
}

/** The error itself, or a NoRoomError: if no space is left, a browser does not even make an empty file. */
async function noRoomOr(error, bytes) {
  return error.name === 'QuotaExceededError' ? userError('NoRoomError', await noRoom(bytes)) : error;
}

async function noRoom(missing) {
  const { quota = 0, usage = 0 } = await navigator.storage.estimate().catch(() => ({ quota: 0, usage: 0 }));
  const left = Math.max(0, quota - usage) / 1e9;
  return message('store.no-room-for-model', 'There is no room in this browser: {missing} GB are missing, about {left} GB are left. Delete a model, or free some disk space.', { missing: (missing / 1e9).toFixed(2), left: left.toFixed(2) });
}

/** @returns {Opener} files of the hub, one after the other */
function fromHub(hosts, addresses, parts, signal) {
  const starts = placed(parts).map(({ start }) => start);
  return async (from) => {
    const index = starts.findLastIndex((start) => start <= from);
    const start = starts[index], url = addresses[index];
    const headers = from > start ? { Range: `bytes=${from - start}-` } : {};
    const response = await fetchFrom(url, hosts, { headers, signal, cache: 'no-store' });
    if ([401, 403, 404, 410].includes(response.status)) throw userError('RefusedError', message('hub.file-gone', '{host} no longer has this file.', { host: new URL(url).host }));
    if (!response.ok) throw userError('Error', message('hub.silent', '{host} does not answer (HTTP {code}).', { host: new URL(response.url).host, code: response.status }));
    const begun = response.status === 206 ? from : start; // a server without ranges sends the whole file again
    return { index, start, end: start + parts[index].bytes, begun, chunks: chunksOf(response.body, signal) };
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
