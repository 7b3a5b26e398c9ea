/** A worker that keeps the weights of a model and brings them back, without Python and without a model that runs. */
import { KernelPool } from './backends/wasm/kernel_pool.js';
import { findWeights, keepWeights } from './storage/kept_weights.js';

const REGIONS = [4 << 20, 5 << 20, 16 << 20, 64]; // address and bytes of each

const actions = {
  async keep(pool, { model, jobs, changes }) {
    await pool.holds(jobs, REGIONS, changes);
    for (let at = 0; at < REGIONS.length; at += 2) {
      pool.write(REGIONS[at], new Uint8Array(REGIONS[at + 1]).map((_, i) => 1 + i % 251));
    }
    await keepWeights(model, pool);
  },

  /** Returns whether weights were found, filled and held, and the sum of the bytes that are there then. */
  async load(pool, { model, jobs, changes, regions = REGIONS }) {
    const kept = await findWeights(model);
    const filled = kept !== null && await pool.fill(kept);
    const held = await pool.holds(jobs, regions, changes);
    let sum = 0;
    for (let at = 0; at < REGIONS.length; at += 2) {
      sum += (await pool.read(REGIONS[at], REGIONS[at + 1])).reduce((one, other) => one + other, 0);
    }
    return { found: kept !== null, filled, held, sum };
  },
};

onmessage = async ({ data: { action, ...given } }) => {
  const pool = await KernelPool.create({ folder: new URL('./kernels/', location.href).href, workers: 2 });
  await pool.reserve(32 << 20);
  postMessage(await actions[action](pool, given));
  pool.destroy();
};
