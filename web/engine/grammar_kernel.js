/** The kernel of web/kernels/grammar, with a memory of its own: see KernelHost of py_core/grammar/kernel.py. */
import { message } from '../common/message.js';
import { fetchFile } from '../common/file_fetch.js';

/**
 * @returns {Promise<{exports: WebAssembly.Exports, write: (address: number, bytes: Uint8Array) => void,
 *   read: (address: number, count: number) => Uint8Array}>}
 */
export async function openGrammarKernel() {
  const bytes = await fetchFile(new URL('../kernels/grammar.wasm', import.meta.url), message('part.grammars', 'The kernel of grammars'));
  const { exports } = (await WebAssembly.instantiate(bytes)).instance;
  const memory = /** @type {WebAssembly.Memory} */ (exports.memory);
  return {
    exports,
    write(address, data) { new Uint8Array(memory.buffer).set(data, address); },
    read(address, count) { return new Uint8Array(memory.buffer, address, count).slice(); },
  };
}
