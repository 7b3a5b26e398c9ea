/** The hub's entry of a model's file; app/models/catalog.py does the same for the terminal. */
import { message } from '../common/message.js';
import { userError } from '../common/user_error.js';
import { fetchFrom } from './model_hosts.js';
import { partsOf, sumOfParts } from './model_parts.js';

/**
 * @typedef {{name: string, title: string, repository: string, file: string, licence: string, good_at: string}} Entry
 * @typedef {{hub: string, hosts: string[], models: Entry[]}} Catalog
 * @typedef {{name: string, bytes: number, sha256: string}} File a file of a model, as the hub lists it
 * @typedef {{bytes: number, sha256: string, parts: File[]}} Listed a model: one file, or several (model_parts.js)
 */

/** @returns {Promise<Catalog>} the list of the site */
export async function readCatalog() {
  const response = await fetch(new URL('../model_catalog.json', import.meta.url)).catch(() => null);
  if (!response?.ok) throw userError('Error', message('hub.no-list', 'The list of models could not be loaded. Check your connection, then try again.'));
  return response.json();
}

/**
 * @param {Catalog} catalog @param {Entry} entry
 * @returns {Promise<Listed|null>} null if the hub no longer has it, or lacks some of its files. Throws a userError if the hub
 *   cannot be reached.
 */
export async function askHub({ hub, hosts }, { repository, file }) {
  const folder = file.split('/').slice(0, -1).map((name) => `/${encodeURIComponent(name)}`).join('');
  const response = await fetchFrom(`${hub}/api/models/${repository}/tree/main${folder}`, hosts);
  if ([401, 404, 410].includes(response.status)) return null; // also 401 for a repository that does not exist
  if (!response.ok) throw userError('Error', message('hub.no-answer', '{host} does not answer (HTTP {code}). Try again later.', { host: new URL(hub).host, code: response.status }));
  const files = await response.json().catch(() => null);
  if (!Array.isArray(files)) throw userError('Error', message('hub.no-files', '{host} did not send a list of files for {repository}. Try again later.', { host: new URL(hub).host, repository }));
  const parts = (partsOf(file)?.names ?? [file]).map((name) => {
    const found = files.find(({ path }) => path === name);
    return { name, bytes: found?.size, sha256: found?.lfs?.oid };
  });
  const listed = ({ bytes, sha256 }) => Number.isSafeInteger(bytes) && bytes > 0 && /^[0-9a-f]{64}$/.test(sha256);
  if (!parts.every(listed)) return null;
  const bytes = parts.reduce((sum, part) => sum + part.bytes, 0);
  return { bytes, sha256: await sumOfParts(parts.map(({ sha256 }) => sha256)), parts };
}

/**
 * A file of the hub that a user names: OWNER/REPOSITORY/FILE.gguf, or its address.
 * @param {Catalog} catalog
 * @returns {Entry} Throws a userError if it is not such a file.
 */
export function entryOf({ hub }, text) {
  const given = text.trim().split('?')[0];
  const path = given.startsWith(`${hub}/`) ? given.slice(hub.length + 1).replace(/\/(resolve|blob)\/[\w.-]+\//, '/') : given;
  const [, repository, encoded] = /^([\w.-]+\/[\w.-]+)\/([^:]+\.gguf)$/.exec(path) ?? [];
  if (!encoded) {
    throw userError('RefusedError', message('hub.no-model-file', '"{text}" is not a model file on {host}: write it like OWNER/REPOSITORY/FILE.gguf, or give its address there.', { text, host: new URL(hub).host }));
  }
  const file = decodeURIComponent(encoded);
  const title = (partsOf(file)?.stem ?? file.replace(/\.gguf$/, '')).split('/').at(-1) ?? file;
  return { name: title.replace(/[^\w.-]+/g, '-'), title, repository, file, licence: '', good_at: '' };
}

/** The address of a file. @param {Catalog} catalog @param {Entry} entry */
export function addressOf({ hub }, { repository, file }) {
  return `${hub}/${repository}/resolve/main/${file.split('/').map(encodeURIComponent).join('/')}`;
}
