/** Which backend runs the model on this machine, and why. Runs in the worker. */
import { message } from '../common/message.js';
import { findAdapter, isSoftware } from './webgpu/adapter.js';
import { createExecutor } from './webgpu/executor.js';
import { KernelPool } from './wasm/kernel_pool.js';
import { userError } from '../common/user_error.js';

/**
 * @param {{backend: 'auto'|'webgpu'|'wasm'|'numpy', workers: number|null, patience: number}} wanted `auto`: a real GPU, else
 *   the CPU; `workers` on the CPU, null for the number that suits the machine; `patience`: ms without a sign of life from them
 * @returns {Promise<{executor: object|null, pool: KernelPool|null, reason: import('../common/message.js').Message|null}>} numpy
 *   runs the model if both are null; `reason` is a sentence for the user, null if the best backend was taken
 * Throws a userError.
 */
export async function chooseBackend({ backend, workers, patience }) {
  if (backend === 'numpy') return { executor: null, pool: null, reason: message('backend.numpy', 'Numpy on the CPU was chosen, which is slow.') };
  if (backend === 'wasm') return onTheCpu(workers, patience, (count) => message('backend.cpu-chosen', 'Runs on the CPU ({count}), as you chose.', { count }));
  const { executor, missing, advice } = await openGPU(backend === 'webgpu');
  if (executor) return { executor, pool: null, reason: null };
  if (backend === 'webgpu') throw userError('NoWebGPUError', message('backend.no-webgpu', '{missing}. {advice}', { missing, advice }));
  return onTheCpu(workers, patience, (count) => (advice
    ? message('backend.cpu-advice', '{missing}, so Sonata runs on the CPU ({count}). {advice}', { missing, count, advice })
    : message('backend.cpu', '{missing}, so Sonata runs on the CPU ({count}).', { missing, count })));
}

/** Returns {executor}, or why there is none and what to do about it: {missing, advice}. */
async function openGPU(evenSoftware) {
  const advice = self.isSecureContext
    ? message('backend.turn-on', 'Current Chrome, Edge and Safari have WebGPU when hardware acceleration is turned on, Firefox on Windows and macOS.')
    : message('backend.needs-https', 'WebGPU needs an address that begins with https, or localhost.');
  try {
    const adapter = self.isSecureContext ? await findAdapter() : null;
    if (!adapter) return { missing: message('backend.none-here', 'This browser has no WebGPU'), advice };
    if (isSoftware(adapter) && !evenSoftware) return { missing: message('backend.no-gpu', 'No GPU available'), advice: null };
    return { executor: await createExecutor(adapter) };
  } catch (error) {
    return { missing: message('backend.not-started', 'WebGPU could not be started ({why})', { why: error.said ?? error.message }), advice };
  }
}

/** @param {(count: import('../common/message.js').Message) => import('../common/message.js').Message} why the sentence for the user,
 *   given "2 workers" */
async function onTheCpu(workers, patience, why) {
  const folder = new URL('../kernels/', import.meta.url).href;
  const pool = await KernelPool.create({ folder, patience, ...(workers && { workers }) });
  const count = pool.workers === 1 ? message('backend.worker', '1 worker') : message('backend.workers', '{count} workers', { count: pool.workers });
  if (pool.shared || navigator.hardwareConcurrency === 1) return { executor: null, pool, reason: why(count) };
  return { executor: null, pool, reason: message('backend.alone', '{reason} {why}', { reason: why(count), why: whyAlone() }) };
}

function whyAlone() {
  return self.crossOriginIsolated
    ? message('backend.no-shared-memory', 'This browser shares no memory between workers, so only one of them answers, more slowly.')
    : message('backend.not-isolated', 'More workers need a server that isolates the page (COOP and COEP headers).');
}
