/** SHA-256 of bytes that come one after the other (FIPS 180-4): crypto.subtle only takes all of them at once. */

const K = new Int32Array(64); // the first 32 bits of the fractions of the cube roots of the first 64 primes
const START = new Int32Array(8); // likewise of the square roots of the first 8

for (let n = 2, found = 0; found < 64; n++) {
  if (!isPrime(n)) continue;
  if (found < 8) START[found] = fraction(Math.sqrt(n));
  K[found++] = fraction(Math.cbrt(n));
}

export class Sha256 {
  #state = START.slice();
  #words = new Int32Array(64);
  #rest = new Uint8Array(64); // bytes of a block that is not full
  #filled = 0;
  #length = 0;

  /** @param {Uint8Array} bytes */
  update(bytes) {
    this.#length += bytes.length;
    let at = 0;
    if (this.#filled) {
      at = Math.min(64 - this.#filled, bytes.length);
      this.#rest.set(bytes.subarray(0, at), this.#filled);
      this.#filled += at;
      if (this.#filled < 64) return;
      this.#blocks(this.#rest, 0, 64);
    }
    const end = at + Math.floor((bytes.length - at) / 64) * 64;
    this.#blocks(bytes, at, end);
    this.#rest.set(bytes.subarray(end));
    this.#filled = bytes.length - end;
  }

  /** Nothing may follow. @returns {string} 64 hexadecimal digits */
  hex() {
    const bits = this.#length * 8;
    const tail = new Uint8Array(this.#filled < 56 ? 64 : 128);
    tail.set(this.#rest.subarray(0, this.#filled));
    tail[this.#filled] = 0x80;
    const view = new DataView(tail.buffer);
    view.setUint32(tail.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(tail.length - 4, bits >>> 0);
    this.#blocks(tail, 0, tail.length);
    return Array.from(this.#state, (word) => (word >>> 0).toString(16).padStart(8, '0')).join('');
  }

  #blocks(bytes, from, to) {
    const words = this.#words, state = this.#state;
    for (let at = from; at < to; at += 64) {
      for (let i = 0, byte = at; i < 16; i++, byte += 4) {
        words[i] = (bytes[byte] << 24) | (bytes[byte + 1] << 16) | (bytes[byte + 2] << 8) | bytes[byte + 3];
      }
      for (let i = 16; i < 64; i++) {
        const x = words[i - 15], y = words[i - 2];
        const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
        const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
        words[i] = (words[i - 16] + s0 + words[i - 7] + s1) | 0;
      }
      let [a, b, c, d, e, f, g, h] = state;
      for (let i = 0; i < 64; i++) {
        const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
        const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + words[i]) | 0;
        const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
        const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        h = g;
        g = f;
        f = e;
        e = (d + t1) | 0;
        d = c;
        c = b;
        b = a;
        a = (t1 + t2) | 0;
      }
      state[0] += a;
      state[1] += b;
      state[2] += c;
      state[3] += d;
      state[4] += e;
      state[5] += f;
      state[6] += g;
      state[7] += h;
    }
  }
}

function isPrime(n) {
  for (let divisor = 2; divisor * divisor <= n; divisor++) if (n % divisor === 0) return false;
  return true;
}

function fraction(value) {
  return ((value - Math.floor(value)) * 2 ** 32) | 0;
}
