// A model file as a forward-only stream: the header is read first, the rest follows in the file's order. Bytes are fetched
// ahead while Python is still starting. Errors are sentences for the user.
import { userError } from '../common/user_error.js';
import { message } from '../common/message.js';
import { releaseMemory } from '../common/buffer_release.js';
import { truncated } from '../downloads/model_download.js';

export const AHEAD = 32 << 20;  // bytes that are usually fetched before they are asked for

export class WeightStream {
  size;              // bytes of the file, null if unknown
  parts;             // if the model is in several files, which follow each other: {name, start} of each
  #likely;           // size of the file as its server reports it
  #head;
  #giveBack;
  #chunks = [];      // received, not yet passed
  #position = 0;     // file offset of the first chunk
  #received = 0;
  #wanted = 0;       // file offset that a reader waits for
  #state = { done: false, error: null };
  #waiting = [];     // resolve functions of the callers that wait for bytes to come in or go out
  #source;
  #options;
  #abort;
  #version;          // tells the file from another one at the same address

  /**
   * @param {import('../storage/model_source.js').ModelSource} source
   * @param {{signal?: AbortSignal, onProgress?: (received: number, total: number|null) => void, ahead?: number}} [options]
   *   `onProgress` is called as bytes come in; ahead: see `fetchAhead`
   */
  static async open(source, { signal, onProgress = () => {}, ahead = AHEAD } = {}) {
    const abort = new AbortController();
    signal?.addEventListener('abort', () => abort.abort());
    return new WeightStream(source, await source.open(abort.signal, onProgress), abort, { signal, onProgress, ahead });
  }

  constructor(source, { size, likely, version, chunks, parts, head, giveBack = releaseMemory }, abort, options) {
    this.#source = source;
    this.#options = options;
    this.#abort = abort;
    this.#version = version;
    this.size = size;
    this.#likely = likely;
    this.parts = parts;
    this.#head = head;
    this.#giveBack = giveBack;
    abort.signal.addEventListener('abort', () => this.#changed());
    this.#pump(chunks).then(
      () => this.#finish(null),
      (error) => this.#finish(error),
    );
  }

  /** The same file from its beginning, on a new stream. */
  async again() {
    this.#abort.abort();
    const stream = await WeightStream.open(this.#source, this.#options);
    if (stream.#version === this.#version) return stream;
    stream.#abort.abort();
    throw userError('Error', message('download.changed', 'The model file on the server has changed since it was loaded. Load again to use the new one.'));
  }

  /** Fetch bytes before they are asked for, this many at most. */
  fetchAhead(nbytes) {
    this.#options = { ...this.#options, ahead: nbytes };
    this.#changed();
  }

  /** No more bytes are wanted. */
  close() {
    this.#abort.abort();
  }

  /** The first n bytes of a part, or all if it has fewer; at any time. */
  head(part, n) {
    return this.#head(part, n);
  }

  /** Read past the rest without using it, so that the whole file is kept. */
  drain() {
    this.#wanted = Infinity;
    this.#drop(this.#received);
  }

  /** The first n bytes, or all if there are fewer. Must be the first read. */
  async prefix(n) {
    if (this.#position > 0) throw new Error('prefix comes before read');
    await this.#arrived(n);
    return this.#assemble(Math.min(n, this.#received));
  }

  /** Exactly n bytes from an offset on, in `buffer` if it is large enough. Bytes before the offset are gone afterwards. */
  async read(offset, n, buffer = new ArrayBuffer(0)) {
    if (offset < this.#position) throw new Error(`byte ${offset} has passed already`);
    await this.#arrived(offset + n);
    if (this.#received < offset + n) throw truncated(this.#received);
    this.#drop(offset);
    const data = this.#assemble(n, buffer);
    this.#drop(offset + n);
    return data;
  }

  /** Fetch bytes, at most as many in front of the reader as `fetchAhead` says. */
  async #pump(chunks) {
    for await (const chunk of chunks) {
      this.#chunks.push(chunk);
      this.#received += chunk.length;
      const total = this.#likely !== null && this.#received <= this.#likely ? this.#likely : null;
      this.#options.onProgress(this.#received, total);
      if (this.#wanted === Infinity) this.#drop(this.#received);
      this.#changed();
      while (this.#received >= Math.max(this.#wanted, this.#position + this.#options.ahead)) {
        this.#abort.signal.throwIfAborted();
        await this.#change();
      }
    }
  }

  #finish(error) {
    this.#state = { done: true, error };
    this.#changed();
  }

  /** Resolves once the file has arrived up to an offset, or has ended before it. */
  async #arrived(offset) {
    this.#wanted = offset;
    this.#changed();
    while (this.#received < offset) {
      if (this.#state.error) throw this.#state.error;
      if (this.#state.done) return;
      await this.#change();
    }
  }

  #change() {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #changed() {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** Copies the first n received bytes into one array. */
  #assemble(n, buffer = new ArrayBuffer(0)) {
    let room = buffer;
    if (room.byteLength < n) {
      releaseMemory(new Uint8Array(room));
      room = new ArrayBuffer(n);
    }
    const data = new Uint8Array(room, 0, n);
    let filled = 0;
    for (const chunk of this.#chunks) {
      if (filled === n) break;
      const part = chunk.subarray(0, n - filled);
      data.set(part, filled);
      filled += part.length;
    }
    return data;
  }

  /** Drop the bytes before a file offset. */
  #drop(offset) {
    let surplus = offset - this.#position;
    while (surplus > 0) {
      const chunk = this.#chunks[0], dropped = Math.min(chunk.length, surplus);
      if (dropped < chunk.length) this.#chunks[0] = chunk.subarray(dropped);
      else this.#giveBack(this.#chunks.shift());
      surplus -= dropped;
    }
    this.#position = offset;
    this.#changed();
  }
}
