// The worker of training.html: Sonata's Python with a model and its backend. A message is the page's query; the answer
// is the result of training_measure.py, or {error}.
import { KernelPool } from './backends/wasm/kernel_pool.js';
import { createExecutor } from './backends/webgpu/executor.js';
import { WeightStream } from './backends/weight_stream.js';
import { bootPython } from './engine/python_runtime.js';

async function open({ backend, workers }) {
  if (backend === 'webgpu') return await createExecutor();
  if (backend === 'wasm') {
    return await KernelPool.create({ folder: new URL('./kernels/', location.href).href, workers: Number(workers ?? 2) });
  }
  return null;
}

async function text(address) {
  return (await fetch(address)).text();
}

onmessage = async ({ data }) => {
  try {
    const [pyodide, device, measure] = await Promise.all([bootPython(), open(data), text('./training_measure.py')]);
    if (data.backend === 'webgpu' && !device) throw new Error('there is no GPU here');
    const bytes = new Uint8Array(await (await fetch(data.model)).arrayBuffer());
    const stream = await WeightStream.open({
      open: async () => ({
        size: bytes.length, version: '', parts: [], head: async (_index, n) => bytes.slice(0, n),
        chunks: (async function* () { for (let at = 0; at < bytes.length; at += 1 << 20) yield bytes.slice(at, at + (1 << 20)); })(),
      }),
    });
    pyodide.runPython(measure);
    const { model, ...options } = data;
    const said = await pyodide.globals.get('in_page')(device, stream, JSON.stringify(options), () => pyodide._module.HEAPU8.length);
    postMessage(JSON.parse(said));
  } catch (error) {
    postMessage({ error: String(error) });
  }
};
