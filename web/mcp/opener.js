/** The user's tool servers. What speaks with them is loaded if there are any, or once Settings shows them. */
import { local } from '../common/web_storage.js';
import { t } from '../i18n/i18n.js';

export const KEPT = 'sonata.tool-servers'; // in localStorage

let tools = /** @type {import('../tools/page_tools.js').PageTools|null} */ (null);
let servers = /** @type {Promise<import('./servers.js').ToolServers>|null} */ (null);

/** @param {import('../tools/page_tools.js').PageTools} pageTools where they are offered */
export function offerToolServers(pageTools) {
  tools = pageTools;
  tellPrivacy();
  if (local.getItem(KEPT)) toolServers().catch(() => {}); // Settings says that they could not be loaded
}

/** @returns {Promise<import('./servers.js').ToolServers>} */
export function toolServers() {
  servers ??= import('./servers.js').then(({ ToolServers }) => new ToolServers(/** @type {any} */ (tools)));
  servers.catch(() => { servers = null; });
  return servers;
}

/** The sentence about privacy in an empty chat: a server of the user gets what a call says. */
export function tellPrivacy() {
  const sentence = document.querySelector('[data-t^="chat.private"]');
  if (!(sentence instanceof HTMLElement)) return;
  const key = local.getItem(KEPT) ? 'chat.privateButCalls' : 'chat.private';
  sentence.dataset.t = key;
  sentence.textContent = t(key);
}
