// Replaces the page's worker: Sonata's Python without a model, the index's kernel as `hnsw_exports`, and `devices`:
// {executor(), pool(patience)} open what a model runs on, {stream(bytes)} is a WeightStream of a model file, {templates()} a
// TemplateCage. A message is Python source; the answer is {value}, the value of its last line, or {error}.
import { KernelPool } from './backends/wasm/kernel_pool.js';
import { createExecutor } from './backends/webgpu/executor.js';
import { WeightStream } from './backends/weight_stream.js';
import { bootPython } from './engine/python_runtime.js';
import { loadHnswKernel } from './routing/hnsw_kernel.js';
import { TemplateCage } from './tokenizers/template_cage.js';

const IMPORTED_BY_THE_PAGE = `
import sys, app.page.worker
from py_core.backends.webgpu.shaders import compose
compose("add", {}, {})
imported_by_the_page = list(sys.modules)
`;

const python = bootPython().then(async (pyodide) => {
  pyodide.runPython(IMPORTED_BY_THE_PAGE);
  pyodide.globals.set('hnsw_exports', await loadHnswKernel(pyodide));
  pyodide.globals.set('devices', {
    executor: () => createExecutor(),
    pool: (patience) => KernelPool.create({ folder: new URL('./kernels/', location.href).href, patience }),
    templates: () => new TemplateCage(),
    stream: (bytes) => WeightStream.open({
      open: async () => ({
        size: bytes.length, version: '', parts: [], head: async (_index, n) => bytes.slice(0, n),
        chunks: (async function* () { yield bytes; })(),
      }),
    }),
  });
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
