/** Pyodide with the wheels that build.py put beside it and Sonata's own packages. Runs in the worker. */
import { loadPyodide } from '../pyodide/pyodide.mjs';
import { fetchFile } from '../common/fetch_file.js';
import { userError } from '../common/user_error.js';
import { watchFiles } from '../common/watch_files.js';

const here = (path) => new URL(path, import.meta.url).href;

/**
 * @param {(bytes: number) => void} [onBytes] called with how many more bytes have come in
 * @returns {Promise<any>} Pyodide, ready to import app and py_core
 */
export async function bootPython(onBytes = () => {}) {
  const endWatch = watchFiles(/\/pyodide\/pyodide\.asm\.wasm|\/python_stdlib\.zip|\/pyodide-lock\.json/, onBytes);
  try {
    // Everything is under way before Pyodide itself is up.
    const wheels = fetchWheels(onBytes);
    const sonata = fetchBytes('../sonata.zip', onBytes);
    wheels.catch(() => {});
    sonata.catch(() => {});
    const pyodide = await loadPyodide({ indexURL: here('../pyodide/'), packages: [] });
    for (const wheel of await wheels) pyodide.unpackArchive(wheel, 'wheel');
    const extractDir = pyodide.runPython('import site; site.getsitepackages()[0]');
    pyodide.unpackArchive(await sonata, 'zip', { extractDir });
    return pyodide;
  } catch (error) {
    if (error.name === 'DownloadError') throw error;
    throw userError('DownloadError', `Python could not be loaded (${error.message}). Check your connection, then load again.`);
  } finally {
    endWatch();
  }
}

async function fetchWheels(onBytes) {
  const names = JSON.parse(new TextDecoder().decode(await fetchBytes('../pyodide/wheels.json', onBytes)));
  return Promise.all(names.map((name) => fetchBytes(`../pyodide/${name}`, onBytes)));
}

async function fetchBytes(path, onBytes) {
  return await fetchFile(here(path), 'A part of Python', onBytes);
}
