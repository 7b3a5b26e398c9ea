/**
 * Runs a Python file in Pyodide: `node runner.mjs PYODIDE FILE FOLDER`. PYODIDE is the folder of the npm package;
 * the file has FOLDER of this machine as /work.
 */
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [pyodide, file, folder] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${pyodide}/pyodide.mjs`).href);
const python = await loadPyodide();
python.mountNodeFS('/work', folder);
await python.runPythonAsync(readFileSync(file, 'utf8'));
