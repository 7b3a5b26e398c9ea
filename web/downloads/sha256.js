/**
 * SHA-256 of bytes that come one after the other (FIPS 180-4): crypto.subtle only takes all of them at once. The blocks are
 * the work of web/kernels/checksums.
 */
import { checksumKernels, PAGE } from './checksum_kernels.js';

const BLOCK = 64, ROOM = 1 << 20; // bytes that are given to the kernel at once
const STATE = PAGE, DATA = STATE + 64; // addresses
// The first 32 bits of the fractions of the square roots of the first 8 primes.
const START = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];

export class Sha256 {
  #blocks;
  #state;
  #data;
  #filled = 0;
  #length = 0;

  /** Throws a userError where the kernel cannot be loaded. */
  static async create() {
    const { kernels, buffer } = await checksumKernels(DATA + ROOM - PAGE);
    return new Sha256(kernels.blocks, buffer);
  }

  constructor(blocks, buffer) {
    this.#blocks = blocks;
    this.#state = new Uint32Array(buffer, STATE, START.length);
    this.#data = new Uint8Array(buffer, DATA, ROOM);
    this.#state.set(START);
  }

  /** @param {Uint8Array} bytes */
  update(bytes) {
    this.#length += bytes.length;
    for (let at = 0; at < bytes.length;) {
      const part = bytes.subarray(at, at + ROOM - this.#filled);
      this.#data.set(part, this.#filled);
      this.#filled += part.length;
      at += part.length;
      if (this.#filled === ROOM) this.#flush();
    }
  }

  /** Nothing may follow. @returns {string} 64 hexadecimal digits */
  hex() {
    const bits = this.#length * 8;
    if (ROOM - this.#filled < 2 * BLOCK) { // whole blocks go first: the end needs up to 72 bytes
      const whole = this.#filled - this.#filled % BLOCK;
      this.#blocks(STATE, DATA, whole / BLOCK);
      this.#data.copyWithin(0, whole, this.#filled);
      this.#filled -= whole;
    }
    const end = Math.ceil((this.#filled + 9) / BLOCK) * BLOCK;
    this.#data.fill(0, this.#filled, end)[this.#filled] = 0x80;
    const view = new DataView(this.#data.buffer, DATA + end - 8);
    view.setUint32(0, Math.floor(bits / 2 ** 32));
    view.setUint32(4, bits >>> 0);
    this.#filled = end;
    this.#flush();
    return Array.from(this.#state, (word) => word.toString(16).padStart(8, '0')).join('');
  }

  #flush() {
    this.#blocks(STATE, DATA, this.#filled / BLOCK);
    this.#filled = 0;
  }
}
