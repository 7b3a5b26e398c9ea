/**
 * The kernel of web/kernels/hnsw on Pyodide's own memory, so that it works on numpy's arrays where they are.
 * py_core/routing/kernel_wasm.py (PyodideKernel) takes what this gives, and says where its stack is.
 */
import { userError } from './user_error.js';

/** @returns {Promise<WebAssembly.Exports>} */
export async function loadHnswKernel(pyodide) {
  let why = 'there is no connection to the server';
  try {
    const response = await fetch(new URL('./kernels/hnsw.wasm', import.meta.url));
    if (response.ok) {
      const imports = { env: { memory: pyodide._module.memory } };
      return (await WebAssembly.instantiate(await response.arrayBuffer(), imports)).instance.exports;
    }
    why = `HTTP ${response.status}`;
  } catch (error) {
    why = error.message;
  }
  throw userError('DownloadError', `The index's kernel could not be loaded (${why}). Check your connection, then load again.`);
}
