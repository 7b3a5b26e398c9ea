/** The adapter that the page answers with, for each model that had one. The choice is remembered. */
import { local } from '../common/web_storage.js';

const KEY = 'sonata.adapters'; // {sha256 of a model: sha256 of an adapter}

/** @param {string} model its sha256 @returns {string|null} the sha256 of an adapter; null: none */
export function chosenAdapter(model) {
  return read()[model] ?? null;
}

/** @param {string} model its sha256 @param {string|null} adapter its sha256; null: none */
export function rememberAdapter(model, adapter) {
  const { [model]: _, ...others } = read();
  local.setItem(KEY, JSON.stringify(adapter ? { ...others, [model]: adapter } : others));
}

/** @returns {Record<string, string>} */
function read() {
  try {
    const chosen = JSON.parse(local.getItem(KEY) ?? '{}');
    return typeof chosen === 'object' && chosen ? chosen : {};
  } catch {
    return {}; // something else changed it
  }
}
