// An engine for this tab alone, like that of web/main.js for all tabs.
import { Engine } from './engine/engine.js';
import { ModelTabs } from './engine/model_tabs.js';

const PATIENCE = 60;

/** @returns {Promise<object>} of app.generation.speed.profile_report */
export async function profileOf(engine) {
  for await (const { report } of await engine.developer.profile()) if (report) return report;
}

/**
 * @param {object} options of Engine.start, those that are not the usual ones
 * @returns {Promise<{engine: Engine, info: object}>} with its model
 */
export async function startEngine(options) {
  const tabs = new ModelTabs(crypto.randomUUID(), { patience: PATIENCE, onMoved() {} });
  const engine = new Engine(tabs.connect({ take: true }));
  const usual = { workers: null, precision: 'precise', patience: PATIENCE * 1000, context: null, maxTokens: null,
                  autotune: true, routing: false };
  return { engine, info: await engine.start({ ...usual, ...options }, () => {}) };
}
