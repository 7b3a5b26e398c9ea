/**
 * The kernels' .wasm (web/kernels, compiled by build.py): which build this browser runs, compiled once for all workers.
 *
 * The files import a shared memory. Without shared memory, one byte is changed: the limits of an imported memory begin with
 * flags, 0x03 = shared with a maximum, 0x01 = with a maximum. Atomics work on either (threads proposal).
 */
import { message } from '../../common/message.js';
import { fetchFile } from '../../common/file_fetch.js';
import { hexOf } from '../../downloads/model_download.js';
import { userError } from '../../common/user_error.js';

// (func (result v128) (i8x16.swizzle ...)) and the same with i8x16.relaxed_swizzle: valid if the browser has the feature.
const PREFIX = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 5, 1, 0x60, 0, 1, 0x7b, 3, 2, 1, 0, 10];
const SPLATS = [0, 0x41, 0, 0xfd, 0x0f, 0x41, 0, 0xfd, 0x0f];
const SIMD = [...PREFIX, 14, 1, 12, ...SPLATS, 0xfd, 0x0e, 0x0b];
const RELAXED_SIMD = [...PREFIX, 15, 1, 13, ...SPLATS, 0xfd, 0x80, 0x02, 0x0b];
// (func (export "f") (result i32) a lane of i32x4.relaxed_dot_i8x16_i7x16_add_s of 127 and 255): the result depends on the CPU
// if an operand has more than 7 bits. A CPU that adds pairs of products in 16 bits, which overflow, gives these.
const DOT = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 5, 1, 0x60, 0, 1, 0x7f, 3, 2, 1, 0, 7, 5, 1, 1, 0x66, 0, 0, 10, 23, 1, 21, 0,
  0x41, 0xff, 0, 0xfd, 0x0f, 0x41, 0x7f, 0xfd, 0x0f, 0x41, 0, 0xfd, 0x11, 0xfd, 0x93, 0x02, 0xfd, 0x1b, 0, 0x0b];
const SUM_OF_PAIRS = 2 * 32767;

/**
 * @param {string} folder URL of the folder with the .wasm files, ending in /
 * @param {boolean} shared whether the memory will be shared between workers
 * @returns {Promise<{module: WebAssembly.Module, build: string, version: string, minimum: number, maximum: number}>} build: pairs,
 *   dot or simd; version: the sha256 of a file for shared memory, else ""; with the limits of its memory, in pages
 */
export async function loadKernels(folder, shared) {
  if (!validates(SIMD)) {
    throw userError('NoSIMDError', message('cpu.no-simd', 'This browser cannot run the model on the CPU: it has no WebAssembly SIMD. Use a newer one (Chrome or Edge 91, Firefox 89, Safari 16.4), then load again.'));
  }
  const build = validates(RELAXED_SIMD) ? addsPairs() ? 'pairs' : 'dot' : 'simd';
  const bytes = await fetchFile(`${folder}kernels-${build}.wasm`, message('part.kernels', 'The CPU\'s kernels'));
  const memory = findMemoryImport(bytes);
  if (!shared) bytes[memory.flagsAt] &= ~0x02;
  const [module, version] = await Promise.all([WebAssembly.compile(bytes), shared ? hexOf(bytes) : '']);
  return { module, build, version, minimum: memory.minimum, maximum: memory.maximum };
}

/** True if this CPU adds two products in an instruction, not four. */
function addsPairs() {
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(new Uint8Array(DOT)));
  return /** @type {() => number} */ (exports.f)() === SUM_OF_PAIRS;
}

function validates(bytes) {
  return WebAssembly.validate(new Uint8Array(bytes));
}

/** The imported memory of a .wasm file: where the flags of its limits are, and the limits in pages. */
function findMemoryImport(bytes) {
  let at = 8; // after the magic number and the version
  const number = () => { // LEB128, unsigned
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at++];
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
  };
  const skipName = () => {
    const length = number(); // moves `at` itself
    at += length;
  };
  const skipLimits = () => {
    const flags = bytes[at++];
    number();
    if (flags & 1) number();
  };
  const skip = [ // the description of an import, by its kind
    () => number(), // function: its type
    () => { at += 1; skipLimits(); }, // table
    null, // memory: the one that we look for
    () => { at += 2; }, // global
    () => { at += 1; number(); }, // tag
  ];
  while (at < bytes.length) {
    const section = bytes[at++];
    const size = number();
    if (section !== 2) {
      at += size;
      continue;
    }
    for (let left = number(); left > 0; left--) {
      skipName(); // of the module
      skipName(); // of the field
      const kind = bytes[at++];
      if (kind === 2) {
        const flagsAt = at++;
        return { flagsAt, minimum: number(), maximum: bytes[flagsAt] & 1 ? number() : 65536 };
      }
      skip[kind]?.();
    }
    break;
  }
  throw new Error('the kernels import no memory');
}
