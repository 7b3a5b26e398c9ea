/**
 * The kernel of web/kernels/hnsw on Pyodide's own memory, so that it works on numpy's arrays in place.
 * py_core/hnsw/wasm_kernel.py (PyodideHnswKernel) takes the result, and says where its stack is.
 */
import { message } from '../common/message.js';
import { fetchFile } from '../common/file_fetch.js';

/** @returns {Promise<WebAssembly.Exports>} */
export async function loadHnswKernel(pyodide) {
  const bytes = await fetchFile(new URL('../kernels/hnsw.wasm', import.meta.url), message('part.index', 'The index\'s kernel'));
  const imports = { env: { memory: pyodide._module.memory } };
  return (await WebAssembly.instantiate(bytes, imports)).instance.exports;
}
