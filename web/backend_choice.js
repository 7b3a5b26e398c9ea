/** Which backend runs the model on this machine, and why it is not the best one. Runs in the worker. */
import { createExecutor } from './gpu_executor.js';
import { userError } from './user_error.js';

/**
 * @param {'auto'|'webgpu'|'numpy'} wanted
 * @returns {Promise<{executor: object|null, reason: string|null}>} without an executor numpy runs the model; `reason` is
 *   a sentence for the user that says why it is a fallback
 */
export async function chooseBackend(wanted) {
  if (wanted === 'numpy') return { executor: null, reason: 'Numpy on the CPU was chosen, which is slow.' };
  let missing;
  try {
    const executor = self.isSecureContext ? await createExecutor({ powerPreference: 'high-performance' }) : null;
    if (executor) return { executor, reason: null };
    missing = 'No WebGPU here';
  } catch (error) {
    missing = `WebGPU could not be started (${error.message})`;
  }
  if (wanted === 'webgpu') throw userError('NoWebGPUError', `${missing}: ${howToGetIt()}`);
  return { executor: null, reason: `${missing}: running on the CPU with numpy, which is slow. ${howToGetIt()}` };
}

function howToGetIt() {
  if (!self.isSecureContext) return 'WebGPU needs an address that begins with https, or localhost.';
  return 'Chrome or Edge 121+ with hardware acceleration turned on has WebGPU.';
}
