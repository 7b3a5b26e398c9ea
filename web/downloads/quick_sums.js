/**
 * XXH64 of each piece of a model that is kept, beside it: made when the pieces had the right sha256, and checked in its
 * place from then on. It finds what a disk damages; whoever can write there could as well change the page's other files.
 */
import { readSums, writeSums } from '../storage/model_store.js';
import { Xxh64 } from './xxh64.js';

export class QuickSums {
  #model;
  #xxh64;
  #known; // the first is of all others; null where they must be made
  #found;

  /** @param {{sha256: string, name: string, pieces: {bytes: number, sha256: string[]}}} model */
  static async open(model) {
    const count = model.pieces.sha256.length;
    const [known, xxh64] = await Promise.all([readSums(model), Xxh64.create(Math.max(model.pieces.bytes, 8 * count))]);
    const right = known?.length === 1 + count && known[0] === sumOf(known, xxh64);
    return new QuickSums(model, xxh64, right ? known : null);
  }

  constructor(model, xxh64, known) {
    this.#model = model;
    this.#xxh64 = xxh64;
    this.#known = known;
    this.#found = new BigUint64Array(1 + model.pieces.sha256.length);
  }

  /** Whether a piece is known, and as it was. @param {number} index @param {Uint8Array} bytes */
  match(index, bytes) {
    return this.#known !== null && this.#known[1 + index] === this.#xxh64.sum(bytes);
  }

  /** A piece that did not match has the right sha256, and all before it were right: from now on the sums are made anew. */
  add(index, bytes) {
    if (this.#known) this.#found.set(this.#known.subarray(0, 1 + index));
    this.#known = null;
    this.#found[1 + index] = this.#xxh64.sum(bytes);
  }

  /** After all pieces. Without the sums the next load takes longer, so nobody is told where they cannot be kept. */
  async keep() {
    if (this.#known) return;
    this.#found[0] = sumOf(this.#found, this.#xxh64);
    await writeSums(this.#model, this.#found).catch(() => {});
  }
}

function sumOf(sums, xxh64) {
  return xxh64.sum(new Uint8Array(sums.buffer, 8));
}
