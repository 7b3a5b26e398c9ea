/** Checksums and progress while a model is brought: of its files and pieces, with the speed. */
import { hexOf } from './model_download.js';
import { createSHA256 } from '../vendor/hash-wasm.mjs';

export const PIECE = 4 << 20; // bytes of a piece; each piece has a checksum
const EVERY_MS = 100; // between two reports of progress

/** The checksum of each file of a model, and of each piece, computed as its bytes arrive in order. */
export class Sums {
  /** Checksums of the complete files, in hexadecimal digits. */
  files = /** @type {string[]} */ ([]);
  #sizes;
  #file;
  #inFile = 0; // bytes of the incomplete file so far
  #piece = new Uint8Array(PIECE);
  #filled = 0;
  #found = /** @type {Promise<string>[]} */ ([]);

  /** @param {number[]} sizes of the files, in their order */
  static async create(sizes) {
    return new Sums(sizes, await createSHA256());
  }

  constructor(sizes, file) {
    this.#sizes = sizes;
    this.#file = file;
  }

  async add(bytes) {
    for (let rest = bytes; rest.length;) {
      const part = rest.subarray(0, Math.min(PIECE - this.#filled, this.#sizes[this.files.length] - this.#inFile));
      this.#file.update(part);
      this.#piece.set(part, this.#filled);
      this.#filled += part.length;
      this.#inFile += part.length;
      rest = rest.subarray(part.length);
      if (this.#filled === PIECE) await this.#endPiece();
      if (this.#inFile === this.#sizes[this.files.length]) this.#endFile();
    }
  }

  #endFile() {
    this.files.push(this.#file.digest());
    this.#inFile = 0;
    this.#file.init();
  }

  /** The browser computes it on another thread; one piece at a time, or waiting pieces would need memory. */
  async #endPiece() {
    await this.#found.at(-1);
    this.#found.push(hexOf(this.#piece.subarray(0, this.#filled))); // which copies them at once
    this.#filled = 0;
  }

  /** @returns {Promise<string[]>} the checksums of the pieces; no more bytes may follow */
  async pieces() {
    if (this.#filled) await this.#endPiece();
    return Promise.all(this.#found);
  }
}

/** Reports progress at intervals, with the speed of the last seconds. @returns {(done: number) => void} */
export function reporter(onProgress, total) {
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
      setTimeout(tell, EVERY_MS); // so the last of a burst is reported, too
    }
  };
}
