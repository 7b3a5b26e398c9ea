// Takes the place of the page's worker: Sonata's Python without a model, and the index's kernel as `hnsw_exports`.
// A message is Python source; the answer is {value}, what its last line gives, or {error}.
import { bootPython } from './engine/python_runtime.js';
import { loadHnswKernel } from './routing/hnsw_kernel.js';

const python = bootPython().then(async (pyodide) => {
  pyodide.globals.set('hnsw_exports', await loadHnswKernel(pyodide));
  return pyodide;
});

onmessage = async ({ data }) => {
  try {
    const pyodide = await python;
    postMessage({ value: await pyodide.runPythonAsync(data) });
  } catch (error) {
    postMessage({ error: String(error) });
  }
};
