/** XXH64 of whole pieces, by web/kernels/checksums: 20 times as fast as SHA-256. */
import { checksumKernels, PAGE } from './checksum_kernels.js';

export class Xxh64 {
  #kernel;
  #room;

  /** @param {number} most bytes of the largest piece. Throws a userError where the kernel cannot be loaded. */
  static async create(most) {
    const { kernels, buffer } = await checksumKernels(most);
    return new Xxh64(kernels.xxh64, new Uint8Array(buffer, PAGE));
  }

  constructor(kernel, room) {
    this.#kernel = kernel;
    this.#room = room;
  }

  /** @param {Uint8Array} bytes @returns {bigint} */
  sum(bytes) {
    this.#room.set(bytes);
    return BigInt.asUintN(64, this.#kernel(PAGE, bytes.length));
  }
}
