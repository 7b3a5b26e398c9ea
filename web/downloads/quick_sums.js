/**
 * XXH64 of each piece of a kept model, stored beside it. The sums are made when the pieces had the right sha256, and are
 * checked instead of it from then on. They detect damage by a disk, not an attacker: an attacker who can write there could as
 * well change the page's other files.
 */
import { readSums, writeSums } from '../storage/model_store.js';
import { createXXHash64 } from '../vendor/hash-wasm.mjs';

export class QuickSums {
  #model;
  #xxh64;
  #known; // the first is the sum of all others; null if they must be made
  #found;

  /** @param {{sha256: string, name: string, pieces: {bytes: number, sha256: string[]}}} model */
  static async open(model) {
    const count = model.pieces.sha256.length;
    const [known, xxh64] = await Promise.all([readSums(model), createXXHash64()]);
    const right = known?.length === 1 + count && known[0] === sumOfSums(known, xxh64);
    return new QuickSums(model, xxh64, right ? known : null);
  }

  constructor(model, xxh64, known) {
    this.#model = model;
    this.#xxh64 = xxh64;
    this.#known = known;
    this.#found = new BigUint64Array(1 + model.pieces.sha256.length);
  }

  /** True if a piece is known and unchanged. @param {number} index @param {Uint8Array} bytes */
  match(index, bytes) {
    return this.#known !== null && this.#known[1 + index] === sumOf(bytes, this.#xxh64);
  }

  /**
   * Called if a piece that did not match has the right sha256, and all before it were right: from now on the sums are made
   * again.
   */
  add(index, bytes) {
    if (this.#known) this.#found.set(this.#known.subarray(0, 1 + index));
    this.#known = null;
    this.#found[1 + index] = sumOf(bytes, this.#xxh64);
  }

  /** Call after all pieces. Without the sums the next load takes longer, so a failure to keep them is not reported. */
  async keep() {
    if (this.#known) return;
    this.#found[0] = sumOfSums(this.#found, this.#xxh64);
    await writeSums(this.#model, this.#found).catch(() => {});
  }
}

function sumOf(bytes, xxh64) {
  return BigInt(`0x${xxh64.init().update(bytes).digest()}`);
}

function sumOfSums(sums, xxh64) {
  return sumOf(new Uint8Array(sums.buffer, 8), xxh64);
}
