/**
 * Give the memory of an array's buffer back now, where the browser can: with few objects on the heap the garbage
 * collector lets gigabytes of such buffers wait. Nobody may use the array afterwards.
 * @param {ArrayBufferView} array
 */
export function releaseMemory({ buffer }) {
  /** @type {any} */ (buffer).transfer?.(0);
}
