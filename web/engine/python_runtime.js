/**
 * Pyodide with the packages that build.py put beside it and Sonata's own. Runs in the worker.
 *
 * If the site has a snapshot (docs/develop/start.md) and the browser is of the kind that made it, Python's memory is
 * restored from it. In every other case, and if that fails for any reason, Python starts as usual.
 */
import { message } from '../common/message.js';
import { loadPyodide } from '../pyodide/pyodide.mjs';
import { userError } from '../common/user_error.js';
import { watchFiles } from '../common/file_progress.js';
import { phase } from '../common/phase.js';
import { fetchPacked, putFiles, unpacked } from './packed_files.js';

const here = (path) => new URL(path, import.meta.url).href;
const LOCAL = ['localhost', '127.0.0.1', '[::1]'].includes(location.hostname);
const LOADED_BY_PYODIDE = /\/pyodide\/pyodide\.asm\.wasm|\/python_stdlib\.zip|\/pyodide-lock\.json/;

/**
 * @param {(bytes: number) => void} [onBytes] called with how many more bytes have come in
 * @param {string|null} [snapshot] the sha256 of the site's
 * @returns {Promise<any>} Pyodide, ready to import app and py_core
 */
export async function bootPython(onBytes = () => {}, snapshot = null) {
  const endWatch = watchFiles(LOADED_BY_PYODIDE, onBytes);
  try {
    const parts = askForParts(onBytes); // requested before Pyodide itself is up
    const memory = snapshot && fits() ? await memoryOf(snapshot, onBytes) : null;
    if (memory) {
      try {
        return await restored(parts, memory.bytes);
      } catch (error) {
        console.info(`Python starts without its snapshot: ${error.message}`);
      }
    }
    return await loadPyodide({ indexURL: here('../pyodide/'), packages: [], fsInit: putting(parts) });
  } catch (error) {
    if (error.name === 'DownloadError') throw error;
    throw userError('DownloadError', message('part.python-not-loaded', 'Python could not be loaded ({why}). Check your connection, then load again.', { why: error.said ?? error.message }));
  } finally {
    endWatch();
  }
}

/** For the build. @returns {Promise<Uint8Array>} the memory of a Python that has imported what the page needs */
export async function makeSnapshot() {
  const parts = askForParts(() => {});
  const pyodide = await loadPyodide({ indexURL: here('../pyodide/'), packages: [], _makeSnapshot: true });
  const { sitePackages } = /** @type {any} */ (pyodide)._api;
  await putting(parts)(pyodide.FS, { sitePackages }); // late: Pyodide makes no snapshot once it has found packages
  pyodide.runPython('import app.page.snapshot; app.page.snapshot.prepare()'); // JavaScript may hold nothing of Python
  return pyodide.makeMemorySnapshot();
}

/** Python's memory holds facts about the browser that its code found: that it can wait for JavaScript, and how. */
function fits() {
  const brands = /** @type {any} */ (navigator).userAgentData?.brands ?? [];
  return 'Suspending' in WebAssembly && brands.some(({ brand }) => brand === 'Chromium');
}

/**
 * The snapshot, if it takes no time to get: from the service worker's cache, or from this machine. A download takes
 * longer than to start without the snapshot.
 * @returns {Promise<{bytes: Promise<Uint8Array<ArrayBuffer>>}|null>}
 */
async function memoryOf(sha256, onBytes) {
  const look = async () => caches.match(here(`../.precache/${sha256}`), { ignoreVary: true });
  const kept = await look().catch(() => null);
  if (kept) return { bytes: unpacked(kept) };
  return LOCAL ? { bytes: fetchPacked(here('../pyodide/snapshot.packed'), onBytes) } : null;
}

async function restored(parts, memory) {
  memory.catch(() => {});
  // A new Python has 30 MiB, and Pyodide makes no room for a snapshot of more.
  const createPyodideModule = async (settings) => {
    const { default: create } = await import(here('../pyodide/pyodide.asm.mjs'));
    const python = await create(settings);
    python.growMemory(Math.max((await memory).length, python.HEAPU8.length));
    return python;
  };
  const pyodide = await loadPyodide({
    indexURL: here('../pyodide/'), packages: [], fsInit: putting(parts), _loadSnapshot: memory, createPyodideModule,
  });
  phase('python restored');
  pyodide.pyimport('app.page.snapshot').restore();
  return pyodide;
}

/** @returns {Promise<Uint8Array<ArrayBuffer>>[]} what Python imports besides its standard library, as zips */
function askForParts(onBytes) {
  const parts = ['../pyodide/packages.packed', '../sonata.packed'].map((path) => fetchPacked(here(path), onBytes));
  for (const part of parts) part.catch(() => {});
  return parts;
}

function putting(parts) {
  return async (files, { sitePackages }) => {
    for (const part of await Promise.all(parts)) putFiles(files, sitePackages, part);
  };
}
