/** What the hub says of a model's file; app/model_catalog.py has the same for the terminal. */
import { fetchFrom } from './model_hosts.js';

/**
 * @typedef {{name: string, title: string, repository: string, file: string, licence: string, good_at: string}} Entry
 * @typedef {{hub: string, hosts: string[], models: Entry[]}} Catalog
 */

/** @returns {Promise<Catalog>} the list of the site */
export async function readCatalog() {
  const response = await fetch(new URL('../model_catalog.json', import.meta.url)).catch(() => null);
  if (!response?.ok) throw new Error('The list of models could not be loaded. Check your connection, then try again.');
  return response.json();
}

/**
 * @param {Catalog} catalog @param {Entry} entry
 * @returns {Promise<{bytes: number, sha256: string}|null>} null where the hub has it no more. Throws a sentence where it
 *   cannot be asked.
 */
export async function askHub({ hub, hosts }, { repository, file }) {
  const response = await fetchFrom(`${hub}/api/models/${repository}/tree/main`, hosts);
  if ([401, 404, 410].includes(response.status)) return null; // 401 for what does not exist, too
  if (!response.ok) throw new Error(`${new URL(hub).host} does not answer (HTTP ${response.status}). Try again later.`);
  const files = await response.json().catch(() => null);
  if (!Array.isArray(files)) throw new Error(`What ${new URL(hub).host} says of ${repository} is no list of files.`);
  const found = files.find(({ path }) => path === file);
  const bytes = found?.size, sha256 = found?.lfs?.oid;
  return Number.isSafeInteger(bytes) && bytes > 0 && /^[0-9a-f]{64}$/.test(sha256) ? { bytes, sha256 } : null;
}

/** Where a file lies. @param {Catalog} catalog @param {Entry} entry */
export function addressOf({ hub }, { repository, file }) {
  return `${hub}/${repository}/resolve/main/${encodeURIComponent(file)}`;
}
