/**
 * Hosts that the user allows models to come from, besides those of the site (app/models/models.toml). They are kept in this
 * browser; the terminal has --allow-host and $SONATA_MODEL_HOSTS. For the page only.
 */
import { message } from '../common/message.js';
import { local } from '../common/web_storage.js';
import { userError } from '../common/user_error.js';
import { readCatalog } from './hub.js';

const KEY = 'sonata.hosts';
const HOST = /^(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?$/;
const LOCAL = /^http:\/\/(localhost|127\.0\.0\.1):\d{1,5}$/;

/** @returns {string[]} */
export function addedHosts() {
  try {
    const kept = JSON.parse(local.getItem(KEY) ?? '[]');
    return Array.isArray(kept) ? kept.filter(isHost) : [];
  } catch {
    return []; // something else changed it
  }
}

/** @param {string} text a host, "*." before one for all below it, or an https address. Throws a userError for anything else. */
export function addHost(text) {
  const given = text.trim().toLowerCase();
  const entry = /^https:\/\//.test(given) && URL.canParse(given) ? new URL(given).host : given;
  if (!isHost(entry)) {
    throw userError('HostError', message('hosts.no-host', '"{text}" is not a host that models can come from: write it like "huggingface.co" or "*.hf.co".', { text }));
  }
  keep([...addedHosts().filter((host) => host !== entry), entry]);
}

/** @param {string} entry */
export function removeHost(entry) {
  keep(addedHosts().filter((host) => host !== entry));
}

/** A catalog with the user's hosts. @param {import('./hub.js').Catalog} catalog */
export function withAdded(catalog) {
  return { ...catalog, hosts: [...catalog.hosts, ...addedHosts()] };
}

/** Hosts that a model in the page's address may come from: those of the list, the user's, and the site's own. */
export async function allowedHosts() {
  const catalog = await readCatalog().catch(() => ({ hosts: [] })); // then the user's alone
  return [...catalog.hosts, ...addedHosts(), ownHost()];
}

/** The site's own host, as an entry of such a list. */
export function ownHost() {
  const { protocol, hostname, host, port } = location;
  return protocol === 'http:' ? `http://${hostname}:${port || '80'}` : host;
}

function isHost(entry) {
  if (typeof entry !== 'string') return false;
  return LOCAL.test(entry) || (HOST.test(entry) && entry.replace(/^\*\./, '').includes('.'));
}

function keep(hosts) {
  local.setItem(KEY, JSON.stringify(hosts));
}
