/**
 * For the worker that reads a PDF: no array grows beyond MOST_BYTES. A file of 2 kB can unpack to gigabytes. The page is
 * told, and ends the worker.
 */
const MOST_BYTES = 2 ** 26; // a page's drawing, unpacked, takes a few megabytes
const NAMES = ['ArrayBuffer', 'Uint8Array', 'Uint8ClampedArray', 'Uint16Array', 'Uint32Array', 'Int32Array', 'Float32Array', 'Float64Array'];

for (const name of NAMES) {
  const made = /** @type {any} */ (globalThis)[name], most = MOST_BYTES / (made.BYTES_PER_ELEMENT ?? 1);
  const limited = new Proxy(made, {
    construct(_, given, target) {
      if (typeof given[0] === 'number' && given[0] > most) {
        postMessage({ isTooLarge: true });
        throw new RangeError(name);
      }
      return Reflect.construct(made, given, target === limited ? made : target);
    },
  });
  /** @type {any} */ (globalThis)[name] = limited;
}
