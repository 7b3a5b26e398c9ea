/**
 * Give the memory of an array's buffer back now, if the browser can: with few objects on the heap the garbage collector leaves
 * gigabytes of such buffers uncollected. The array must not be used afterwards.
 * @param {ArrayBufferView} array
 */
export function releaseMemory({ buffer }) {
  /** @type {any} */ (buffer).transfer?.(0);
}
