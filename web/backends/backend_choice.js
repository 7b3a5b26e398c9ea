/** Which backend runs the model on this machine, and why. Runs in the worker. */
import { findAdapter, isSoftware } from './webgpu/adapter.js';
import { createExecutor } from './webgpu/executor.js';
import { KernelPool } from './wasm/kernel_pool.js';
import { userError } from '../common/user_error.js';

/**
 * @param {{backend: 'auto'|'webgpu'|'wasm'|'numpy', workers: number|null, patience: number}} wanted `auto`: a real GPU, else
 *   the CPU; `workers` on the CPU, null for the number that suits the machine; `patience`: ms without a sign of life from them
 * @returns {Promise<{executor: object|null, pool: KernelPool|null, reason: string|null}>} numpy runs the model if both are
 *   null; `reason` is a sentence for the user, null if the best backend was taken
 * Throws a userError.
 */
export async function chooseBackend({ backend, workers, patience }) {
  if (backend === 'numpy') return { executor: null, pool: null, reason: 'Numpy on the CPU was chosen, which is slow.' };
  if (backend === 'wasm') return onTheCpu(workers, patience, (count) => `Runs on the CPU (${count}), as chosen.`);
  const { executor, missing, advice } = await openGPU(backend === 'webgpu');
  if (executor) return { executor, pool: null, reason: null };
  if (backend === 'webgpu') throw userError('NoWebGPUError', `${missing}. ${advice}`);
  return onTheCpu(workers, patience, (count) => `${missing}, so Sonata runs on the CPU (${count}). ${advice}`.trim());
}

/** Returns {executor}, or why there is none and what to do about it: {missing, advice}. */
async function openGPU(evenSoftware) {
  const advice = self.isSecureContext
    ? 'Current Chrome, Edge and Safari have WebGPU when hardware acceleration is turned on, Firefox on Windows and macOS.'
    : 'WebGPU needs an address that begins with https, or localhost.';
  try {
    const adapter = self.isSecureContext ? await findAdapter() : null;
    if (!adapter) return { missing: 'This browser has no WebGPU', advice };
    if (isSoftware(adapter) && !evenSoftware) return { missing: 'No GPU available', advice: '' };
    return { executor: await createExecutor(adapter) };
  } catch (error) {
    return { missing: `WebGPU could not be started (${error.message})`, advice };
  }
}

/** @param {(count: string) => string} why the sentence for the user, given "2 workers" */
async function onTheCpu(workers, patience, why) {
  const folder = new URL('../kernels/', import.meta.url).href;
  const pool = await KernelPool.create({ folder, patience, ...(workers && { workers }) });
  const alone = pool.shared || navigator.hardwareConcurrency === 1 ? '' : ` ${whyAlone()}`;
  return { executor: null, pool, reason: why(pool.workers === 1 ? '1 worker' : `${pool.workers} workers`) + alone };
}

function whyAlone() {
  return self.crossOriginIsolated
    ? 'This browser shares no memory between workers: one of them answers, more slowly.'
    : 'More workers need a server that isolates the page (COOP and COEP headers).';
}
