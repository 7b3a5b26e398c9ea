/** Pyodide with the wheels that build.py put beside it and Sonata's own packages. Runs in the worker. */
import { loadPyodide } from '../pyodide/pyodide.mjs';
import { userError } from '../common/user_error.js';

const here = (path) => new URL(path, import.meta.url).href;

/** @returns {Promise<object>} Pyodide, ready to import app and py_core */
export async function bootPython() {
  try {
    // Everything is under way before Pyodide itself is up.
    const wheels = fetchWheels();
    const sonata = fetchBytes('../sonata.zip');
    wheels.catch(() => {});
    sonata.catch(() => {});
    const pyodide = await loadPyodide({ indexURL: here('../pyodide/'), packages: [] });
    for (const wheel of await wheels) pyodide.unpackArchive(wheel, 'wheel');
    const extractDir = pyodide.runPython('import site; site.getsitepackages()[0]');
    pyodide.unpackArchive(await sonata, 'zip', { extractDir });
    return pyodide;
  } catch (error) {
    const what = `Python could not be loaded (${error.message}).`;
    throw userError('DownloadError', `${what} Check your connection, then load again.`);
  }
}

async function fetchWheels() {
  const names = JSON.parse(new TextDecoder().decode(await fetchBytes('../pyodide/wheels.json')));
  return Promise.all(names.map((name) => fetchBytes(`../pyodide/${name}`)));
}

async function fetchBytes(path) {
  const response = await fetch(here(path));
  if (!response.ok) throw new Error(`HTTP ${response.status} for ${path}`);
  return response.arrayBuffer();
}
