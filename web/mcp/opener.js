/** The user's tool servers. What speaks with them is loaded if there are any, or once Settings shows them. */
import { local } from '../common/web_storage.js';

export const KEPT = 'sonata.tool-servers'; // in localStorage

let tools = /** @type {import('../tools/page_tools.js').PageTools|null} */ (null);
let servers = /** @type {Promise<import('./servers.js').ToolServers>|null} */ (null);

/** @param {import('../tools/page_tools.js').PageTools} pageTools where they are offered */
export function offerToolServers(pageTools) {
  tools = pageTools;
  if (local.getItem(KEPT)) toolServers().catch(() => {}); // Settings says that they could not be loaded
}

/** @returns {Promise<import('./servers.js').ToolServers>} */
export function toolServers() {
  servers ??= import('./servers.js').then(({ ToolServers }) => new ToolServers(/** @type {any} */ (tools)));
  servers.catch(() => { servers = null; });
  return servers;
}
