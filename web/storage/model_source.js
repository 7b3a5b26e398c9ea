/**
 * Where the bytes of a model come from: the part that this browser keeps (model_store.js), and the network for the rest, which
 * is stored on its way to the engine. Runs in the engine's worker.
 */
import { userError } from '../common/user_error.js';
import { message } from '../common/message.js';
import { blobPieces, DamagedError, matches, openDownload, openDownloads, pieceBytes, wholePieces } from '../downloads/model_download.js';
import { partsOf, placed } from '../downloads/model_parts.js';
import { canKeep, lockModel, openModel, PartialModel, partSize, removeModel } from './model_store.js';
import { QuickSums } from '../downloads/quick_sums.js';
import { releaseMemory } from '../common/buffer_release.js';

const NO_ROOM = message('store.no-room', 'There is no room in this browser to store the model, so each visit downloads it again. Free some disk space to change that.');
const NO_STORE = message('store.none', 'This browser stores no files for the page (as in a private window), so each visit downloads the model again.');

const GONE = message('store.model-gone', 'This model is no longer in this browser. Choose another one in Settings, Model, or add it again.');
const DAMAGED = message('store.model-damaged', 'The copy of this model in this browser was damaged, so it was deleted. Download it, or open its file, again in Settings, Model.');

const LOOK_MS = 200; // between two checks of another tab's progress

/**
 * A model from its first byte on. `likely` is a size to show if none is known. `version` tells the model from another one. If
 * it is in several files, which follow each other, `parts` says where each begins, and `head` gives the first bytes of a file.
 * `giveBack`, if present, takes each chunk that is no longer used.
 * @typedef {{size: number|null, likely: number|null, version: string, chunks: AsyncGenerator<Uint8Array>,
 *   parts: import('../downloads/model_parts.js').Part[], head: (index: number, nbytes: number) => Promise<Uint8Array>,
 *   giveBack?: (chunk: ArrayBufferView) => void}} Opened
 */

export class ModelSource {
  /** A sentence for the user if the model is not kept, else null. */
  notice = /** @type {import('../common/message.js').Message|null} */ (null);
  #model;

  /**
   * @param {{url: string, name: string, bytes: number, sha256: string, pieces: {bytes: number, sha256: string[]}}| {url:
   *   string, hosts: string[]}|{blobs: File[]}} model without checksums it comes from the network, or from the user's files,
   *   each time. A model that the user brought has no url: it exists in the store only
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
    const whole = { size: model.bytes, likely: model.bytes, version: model.sha256, parts: [], head: onePart };
    // Without a secure context there is no crypto.subtle, and nothing can be checked or kept.
    if (!model.pieces || !globalThis.crypto?.subtle) {
      const { hosts = null } = model;
      const names = partsOf(new URL(model.url).pathname.split('/').at(-1))?.names;
      if (names) return openDownloads(names.map((name) => new URL(name, model.url).href), { signal, hosts });
      return { ...whole, ...await openDownload(model.url, { signal, hosts }) };
    }
    const file = await openModel(model);
    if (file) {
      const parts = placed(model.parts ?? []);
      const head = (index, nbytes) => file.read(parts[index].start, new Uint8Array(nbytes));
      return { ...whole, parts, head, ...this.#fromFile(file, signal) };
    }
    if (!model.url) throw userError('Error', GONE);
    if (!await canKeep()) {
      this.notice = NO_STORE;
      return { ...whole, chunks: await this.#fromNetwork(0, { signal }) };
    }
    const release = await this.#lock(signal, onWaiting);
    try {
      const fromOther = await openModel(model);
      if (!fromOther) return { ...whole, ...await this.#keeping(release, signal) };
      release();
      return { ...whole, ...this.#fromFile(fromOther, signal) };
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
    const bytes = blobs.reduce((sum, { size }) => sum + size, 0);
    return {
      size: bytes,
      likely: bytes,
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

  /** Pieces from the network. Throws at once if there is no server or no file. */
  async #fromNetwork(index, options) {
    const model = this.#model;
    const { chunks } = await openDownload(model.url, { ...options, from: index * model.pieces.bytes });
    return wholePieces(chunks, model, index);
  }

  /** Pieces of a kept file, in reused memory. */
  #fromFile(file, signal) {
    const spare = new SparePieces(this.#model.pieces.bytes);
    return { chunks: this.#piecesOf(file, spare, signal), giveBack: (chunk) => spare.put(chunk) };
  }

  /** A damaged piece deletes the file; the rest then comes from the network. */
  async* #piecesOf(file, spare, signal) {
    const { pieces, sha256 } = this.#model;
    try {
      const quick = await QuickSums.open(this.#model);
      for (let index = 0; index < pieces.sha256.length; index++) {
        signal.throwIfAborted();
        const piece = await file.read(index * pieces.bytes, spare.take(pieceBytes(this.#model, index)));
        if (!quick.match(index, piece)) {
          if (!await this.#isRight(index, piece)) {
            file.close();
            spare.end();
            await removeModel(sha256);
            if (!this.#model.url) throw userError('Error', DAMAGED);
            yield* await this.#fromNetwork(index, { signal });
            return;
          }
          quick.add(index, piece);
        }
        if (index + 1 === pieces.sha256.length) { // before it is passed on: a reader that has all of it may delete the file
          await quick.keep();
          file.close();
        }
        yield piece;
      }
    } finally {
      file.close();
      spare.end();
    }
  }

  /** Pieces of a partial file, then the missing ones from the network, which are kept. Releases the lock. */
  async #keeping(release, signal) {
    const model = this.#model;
    const partial = await PartialModel.open(model).catch(() => null); // if there is no room, not even for its folder
    if (!partial) this.notice = NO_ROOM;
    try {
      let begun = 0;
      while (partial && begun < model.pieces.sha256.length && await this.#fromPartial(partial, begun)) begun++;
      if (begun === model.pieces.sha256.length) { // it was complete but for its name
        await partial?.finish(model);
        release();
        return this.#fromFile(await openModel(model), signal);
      }
      partial?.truncate(begun * model.pieces.bytes);
      const rest = await this.#fromNetwork(begun, { signal, cache: partial ? 'no-store' : 'default' });
      return { chunks: this.#joined({ partial, begun, rest, release }) };
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
        // This comes before the last piece is passed on: a reader that has the whole file finds it kept.
        if (index === pieces.sha256.length) await partial?.finish(this.#model);
        yield piece;
      }
    } catch (error) {
      // The server may have another file now. The next download starts from the beginning.
      if (error instanceof DamagedError && begun > 0) await partial?.discard();
      throw error;
    } finally {
      partial?.close();
      release();
    }
  }

  #fromPartial(partial, index) {
    return this.#isRight(index, partial.read(index * this.#model.pieces.bytes, pieceBytes(this.#model, index)));
  }

  /** True if this is all of a piece, and has its checksum. */
  async #isRight(index, piece) {
    return piece.length === pieceBytes(this.#model, index) && matches(piece, this.#model.pieces.sha256[index]);
  }
}

/** For a model in one file. @returns {Promise<never>} */
async function onePart() {
  throw new Error('the model is in one file');
}

/** Reused memory for pieces: new memory costs more than what is read into it. */
class SparePieces {
  #free = /** @type {ArrayBuffer[]|null} */ ([]); // null once there are no more pieces
  #room;

  constructor(room) {
    this.#room = room;
  }

  take(nbytes) {
    return new Uint8Array(this.#free?.pop() ?? new ArrayBuffer(this.#room), 0, nbytes);
  }

  put({ buffer }) {
    if (this.#free && buffer.byteLength === this.#room) this.#free.push(buffer);
    else releaseMemory(new Uint8Array(buffer));
  }

  end() {
    for (const buffer of this.#free ?? []) releaseMemory(new Uint8Array(buffer));
    this.#free = null;
  }
}
