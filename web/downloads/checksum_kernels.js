/** The kernels of web/kernels/checksums, each user with a memory of its own. */
import { message } from '../common/message.js';
import { fetchFile } from '../common/fetch_file.js';

export const PAGE = 65536; // the kernels' own; the bytes to be summed lie behind it

let loading = /** @type {Promise<WebAssembly.Module>|null} */ (null);

/**
 * @param {number} nbytes of memory, behind the kernels' own
 * @returns {Promise<{kernels: any, buffer: ArrayBuffer}>} Throws a userError where they cannot be loaded.
 */
export async function checksumKernels(nbytes) {
  loading ??= fetchFile(new URL('../kernels/checksums.wasm', import.meta.url), message('part.page', 'A part of the page'))
    .then((bytes) => WebAssembly.compile(bytes));
  try {
    const memory = new WebAssembly.Memory({ initial: 1 + Math.ceil(nbytes / PAGE) });
    const { exports } = await WebAssembly.instantiate(await loading, { env: { memory } });
    return { kernels: exports, buffer: memory.buffer };
  } catch (error) {
    loading = null; // the next one tries again
    throw error;
  }
}
