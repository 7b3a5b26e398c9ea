/**
 * Where the bytes of a model come from: what this browser keeps of it (model_store.js), and the network for the rest,
 * which is kept on its way to the engine. Runs in the engine's worker.
 */
import { blobPieces, DamagedError, matches, openDownload, openDownloads, pieceBytes, wholePieces } from './model_download.js';
import { partsOf, placed } from './model_parts.js';
import { canKeep, findModel, lockModel, PartialModel, partSize, removeModel } from './model_store.js';

const NO_ROOM = 'There is no room in this browser to store the model, so each visit downloads it again. Free some disk space to change that.';
const NO_STORE = 'This browser stores no files for the page (as in a private window), so each visit downloads the model again.';

const GONE = 'This model is not in this browser any more. Choose another one under Models, or bring it again.';
const DAMAGED = 'The copy of this model in this browser was damaged, so it was deleted. Download it, or open its file, again under Models.';

const LOOK_MS = 200; // between two looks at how far another tab is

/**
 * A model from its first byte on. `version` tells it from another one. Where it is in several files, which follow each
 * other, `parts` says where each begins, and `head` gives the first bytes of one of them.
 * @typedef {{size: number|null, version: string, chunks: AsyncGenerator<Uint8Array>,
 *   parts: import('./model_parts.js').Part[], head: (index: number, nbytes: number) => Promise<Uint8Array>}} Opened
 */

export class ModelSource {
  /** A sentence for the user where the model is not kept, else null. */
  notice = /** @type {string|null} */ (null);
  #model;

  /**
   * @param {{url: string, name: string, bytes: number, sha256: string, pieces: {bytes: number, sha256: string[]}}|
   *   {url: string, hosts: string[]}|{blobs: File[]}} model without checksums it comes from the network, or from the
   *   user's files, each time. A model that the user brought has no url: it is in the store, or nowhere
   */
  constructor(model) {
    this.#model = model;
  }

  /**
   * The file from its beginning.
   * @param {AbortSignal} signal
   * @param {(received: number, total: number) => void} onWaiting while another tab downloads the same model
   * @returns {Promise<Opened>}
   */
  async open(signal, onWaiting) {
    const model = this.#model;
    if (model.blobs) return this.#fromBlobs(signal);
    const whole = { size: model.bytes, version: model.sha256, parts: [], head: onePart };
    // Without a secure context there is no crypto.subtle, and nothing can be checked or kept.
    if (!model.pieces || !globalThis.crypto?.subtle) {
      const { hosts = null } = model;
      const names = partsOf(new URL(model.url).pathname.split('/').at(-1))?.names;
      if (names) return openDownloads(names.map((name) => new URL(name, model.url).href), { signal, hosts });
      return { ...whole, ...await openDownload(model.url, { signal, hosts }) };
    }
    const file = await findModel(model);
    if (file) {
      const parts = placed(model.parts ?? []);
      const head = (index, nbytes) => readFile(file, parts[index].start, parts[index].start + nbytes);
      return { ...whole, parts, head, chunks: this.#fromFile(file, signal) };
    }
    if (!model.url) throw new Error(GONE);
    if (!await canKeep()) {
      this.notice = NO_STORE;
      return { ...whole, chunks: await this.#fromNetwork(0, { signal }) };
    }
    const release = await this.#lock(signal, onWaiting);
    try {
      const fromOther = await findModel(model);
      if (!fromOther) return { ...whole, chunks: await this.#keeping(release, signal) };
      release();
      return { ...whole, chunks: this.#fromFile(fromOther, signal) };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Files that there was no room to copy. */
  #fromBlobs(signal) {
    const { blobs } = this.#model;
    const chunks = async function* () {
      for (const blob of blobs) yield* blobPieces(blob, signal);
    };
    return {
      size: blobs.reduce((sum, { size }) => sum + size, 0),
      version: blobs.map(({ name, size, lastModified }) => `${name} ${size} ${lastModified}`).join(),
      chunks: chunks(),
      parts: placed(blobs.map(({ name, size }) => ({ name, bytes: size }))),
      head: async (index, nbytes) => new Uint8Array(await blobs[index].slice(0, nbytes).arrayBuffer()),
    };
  }

  async #lock(signal, onWaiting) {
    let last = 0;
    const look = async () => {
      const size = await partSize(this.#model);
      if (size > last) onWaiting(last = size, this.#model.bytes);
    };
    const looking = setInterval(look, LOOK_MS);
    return lockModel(this.#model.sha256, signal).finally(() => clearInterval(looking));
  }

  /** Pieces from the network. That there is no server, or no file, is thrown at once. */
  async #fromNetwork(index, options) {
    const model = this.#model;
    const { chunks } = await openDownload(model.url, { ...options, from: index * model.pieces.bytes });
    return wholePieces(chunks, model, index);
  }

  /** Pieces of a file that is kept. One that is damaged is deleted; the rest then comes from the network. */
  async* #fromFile(file, signal) {
    const { pieces, sha256 } = this.#model;
    const checked = (index) => this.#checked(index, (from, to) => readFile(file, from, to));
    let next = checked(0);
    for (let index = 0; index < pieces.sha256.length; index++) {
      signal.throwIfAborted();
      const piece = await next;
      if (index + 1 < pieces.sha256.length) next = checked(index + 1); // while the reader works on this one
      if (!piece) {
        await removeModel(sha256);
        if (!this.#model.url) throw new Error(DAMAGED);
        yield* await this.#fromNetwork(index, { signal });
        return;
      }
      yield piece;
    }
  }

  /** Pieces of a partial file, then from the network those that are missing, which are kept. Releases the lock. */
  async #keeping(release, signal) {
    const model = this.#model;
    const partial = await PartialModel.open(model).catch(() => null); // where there is no room, not even for its folder
    if (!partial) this.notice = NO_ROOM;
    try {
      let begun = 0;
      while (partial && begun < model.pieces.sha256.length && await this.#fromPartial(partial, begun)) begun++;
      if (begun === model.pieces.sha256.length) { // only its name was missing
        await partial?.finish(model);
        release();
        return this.#fromFile(await findModel(model), signal);
      }
      partial?.truncate(begun * model.pieces.bytes);
      const rest = await this.#fromNetwork(begun, { signal, cache: partial ? 'no-store' : 'default' });
      return this.#joined({ partial, begun, rest, release });
    } catch (error) {
      partial?.close();
      throw error;
    }
  }

  async* #joined({ partial, begun, rest, release }) {
    const { pieces } = this.#model;
    try {
      for (let index = 0; index < begun; index++) {
        yield partial.read(index * pieces.bytes, pieceBytes(this.#model, index)); // checked a moment ago
      }
      let index = begun;
      for await (const piece of rest) {
        if (partial && !partial.append(piece)) {
          await partial.discard();
          partial = null;
          this.notice = NO_ROOM;
        }
        index += 1;
        // This comes before the last piece is passed on: a reader who has the whole file finds it kept.
        if (index === pieces.sha256.length) await partial?.finish(this.#model);
        yield piece;
      }
    } catch (error) {
      // Perhaps the server has another file now. The next download starts from the beginning.
      if (error instanceof DamagedError && begun > 0) await partial?.discard();
      throw error;
    } finally {
      partial?.close();
      release();
    }
  }

  #fromPartial(partial, index) {
    return this.#checked(index, (from, to) => partial.read(from, to - from));
  }

  /** A piece of what is kept, or null where it is missing or damaged. */
  async #checked(index, read) {
    const { pieces } = this.#model;
    const from = index * pieces.bytes, nbytes = pieceBytes(this.#model, index);
    const piece = await read(from, from + nbytes);
    return piece.length === nbytes && await matches(piece, pieces.sha256[index]) ? piece : null;
  }
}

/** Of a model in one file. @returns {Promise<never>} */
async function onePart() {
  throw new Error('the model is in one file');
}

/** Bytes of a file; none where it can no longer be read. */
async function readFile(file, from, to) {
  try {
    return new Uint8Array(await file.slice(from, to).arrayBuffer());
  } catch {
    return new Uint8Array(0);
  }
}
