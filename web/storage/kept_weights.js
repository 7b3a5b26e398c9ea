/**
 * A kept model's weights as the CPU's kernels have them in their memory: NAME.gguf.weights beside the model, made after its
 * first load if there is room. Later loads read it while Python starts, instead of repacking the model. It has a line of
 * JSON, then the bytes of each region. Runs in the engine's worker; kernel_worker.js reads the regions.
 */
import { HAS_MODES } from './kept_file.js';
import { findModel, modelFolder, openAlone, PART, WEIGHTS } from './model_store.js';

const ROOM = 3; // times the bytes must be free: the browser may report a rounded number
const PIECE = 1 << 20;
const PAUSE_MS = 50; // between pieces, which take 5 to 10 ms of this worker: an answer goes on meanwhile
const MOST_HEADER = 1 << 18;
const ALIGNMENT = 64;

/**
 * Where the regions are, and what they are of. `version`: of the kernels; `key`: of what brought the weights to the memory
 * (kernel_pool.js); regions: (address, bytes) of each; sums: the kernels' checksum of each; file: with the bytes of the
 * regions from `from` on.
 * @typedef {{version: string, key: string, regions: number[], sums: string[], file: FileSystemFileHandle, from: number}} KeptWeights
 */

/** @param {{sha256?: string, name?: string}} model @returns {Promise<KeptWeights|null>} null also if they are damaged */
export async function findWeights({ sha256, name }) {
  if (!sha256 || !HAS_MODES) return null;
  try {
    const handle = await (await modelFolder(sha256)).getFileHandle(name + WEIGHTS);
    const file = await handle.getFile();
    const [line] = (await file.slice(0, MOST_HEADER).text()).split('\n', 1);
    const { version, key, regions, sums } = JSON.parse(line);
    const from = dataAt(line), isWhole = file.size === from + bytesOf(regions) && sums.length === regions.length / 2;
    return isWhole ? { version, key, regions, sums, file: handle, from } : null;
  } catch {
    return null;
  }
}

/**
 * Keep the weights of a model that is kept itself. Without them the next load takes longer, so a failure is not reported.
 * @param {{sha256?: string, name?: string, bytes?: number}} model
 * @param {import('../backends/wasm/kernel_pool.js').KernelPool} pool
 */
export async function keepWeights(model, pool) {
  const { uploaded } = pool, { sha256, name } = model;
  if (!uploaded || !sha256 || !HAS_MODES || !await findModel(model)) return;
  const { quota = 0, usage = 0 } = await navigator.storage.estimate();
  if (quota - usage < ROOM * bytesOf(uploaded.regions)) return;
  const folder = await modelFolder(sha256), part = name + WEIGHTS + PART;
  const file = await folder.getFileHandle(part, { create: true });
  const access = await openAlone(file);
  try {
    access.truncate(0);
    await writeAll(access, uploaded, pool);
    access.flush();
    access.close();
    await /** @type {any} */ (file).move(folder, name + WEIGHTS);
  } catch {
    access.close();
    await folder.removeEntry(part).catch(() => {});
  }
}

async function writeAll(access, { version, key, regions }, pool) {
  const line = JSON.stringify({ version, key, regions, sums: await pool.checksums(regions) });
  const write = (bytes, at) => {
    if (access.write(bytes, { at }) !== bytes.length) throw new Error('there is no room');
  };
  let at = dataAt(line), paused = at;
  for (let i = 0; i < regions.length; i += 2) {
    const [address, nbytes] = regions.slice(i, i + 2);
    for (let done = 0; done < nbytes; done += PIECE) {
      const bytes = await pool.read(address + done, Math.min(PIECE, nbytes - done));
      write(bytes, at);
      at += bytes.length;
      if (at - paused < PIECE) continue;
      paused = at;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }
  write(new TextEncoder().encode(`${line}\n`), 0); // last: without it the rest is not taken for weights
}

function bytesOf(regions) {
  return regions.reduce((sum, value, at) => sum + (at % 2 ? value : 0), 0);
}

/** Where the regions begin behind a line of ASCII. */
function dataAt(line) {
  return Math.ceil((line.length + 1) / ALIGNMENT) * ALIGNMENT;
}
