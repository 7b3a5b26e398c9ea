/** Which backend runs the model on this machine, and why. Runs in the worker. */
import { findAdapter, isSoftware } from './webgpu/adapter.js';
import { createExecutor } from './webgpu/executor.js';
import { KernelPool } from './wasm/kernel_pool.js';
import { userError } from '../common/user_error.js';

/**
 * @param {{backend: 'auto'|'webgpu'|'wasm'|'numpy', workers: number|null, patience: number}} wanted `auto`: a real GPU,
 *   else the CPU; `workers` on the CPU, null for as many as suit the machine; `patience`: ms of their silence
 * @returns {Promise<{executor: object|null, pool: KernelPool|null, reason: string|null}>} with neither, numpy runs the
 *   model; `reason` is a sentence for the user, null where the best there is was taken
 * Throws a userError.
 */
export async function chooseBackend({ backend, workers, patience }) {
  if (backend === 'numpy') return { executor: null, pool: null, reason: 'Numpy on the CPU was chosen, which is slow.' };
  if (backend === 'wasm') return onTheCpu(workers, patience, 'this was chosen.');
  const { executor, missing } = await openGPU(backend === 'webgpu');
  if (executor) return { executor, pool: null, reason: null };
  if (backend === 'webgpu') throw userError('NoWebGPUError', `${missing}${howToGetIt()}`);
  return onTheCpu(workers, patience, missing === SOFTWARE ? missing : `${missing}${howToGetIt()}`);
}

const SOFTWARE = "this machine's graphics adapter is a software one.";

/** {executor}, or {missing}: why there is none. */
async function openGPU(evenSoftware) {
  try {
    const adapter = self.isSecureContext ? await findAdapter() : null;
    if (!adapter) return { missing: 'there is no WebGPU here. ' };
    if (isSoftware(adapter) && !evenSoftware) return { missing: SOFTWARE };
    return { executor: await createExecutor(adapter) };
  } catch (error) {
    return { missing: `WebGPU could not be started (${error.message}). ` };
  }
}

async function onTheCpu(workers, patience, why) {
  const folder = new URL('../kernels/', import.meta.url).href;
  const pool = await KernelPool.create({ folder, patience, ...(workers && { workers }) });
  const count = pool.workers === 1 ? '1 worker' : `${pool.workers} workers`;
  const alone = pool.shared || navigator.hardwareConcurrency === 1
    ? '' : ' More workers need a server that isolates the page (COOP and COEP headers).';
  return { executor: null, pool, reason: `Runs on the CPU, ${count}: ${why}${alone}` };
}

function howToGetIt() {
  if (!self.isSecureContext) return 'WebGPU needs an address that begins with https, or localhost.';
  return 'Chrome or Edge 121+ with hardware acceleration turned on has WebGPU.';
}
