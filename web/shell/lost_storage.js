/** The storage that the browser forbids the page: with blocked cookies, or in some private windows. */
import { local, session } from '../common/web_storage.js';
import { currentLanguage, t } from '../i18n/i18n.js';

/** @typedef {'chats'|'model'|'settings'|'drafts'|'offline'|'tabs'} Lost */

const SILENT_MS = 10_000; // for the browser, which then counts as allowing it: its users will find out

/** Each rejects, or is false, if it is forbidden. A feature that a browser does not have at all is not reported. */
const TRIES = /** @type {Record<Lost, (tabs: import('../engine/model_tabs.js').ModelTabs) => Promise<unknown>>} */ ({
  chats: async () => indexedDB.databases(),
  model: async () => !isSecureContext || navigator.storage.getDirectory(),
  settings: async () => local.isAllowed,
  drafts: async () => session.isAllowed,
  offline: async () => !isSecureContext || (await caches.keys() && (!('serviceWorker' in navigator) || navigator.serviceWorker.getRegistration().then(() => true))),
  tabs: async (tabs) => !isSecureContext || !('SharedWorker' in globalThis) || tabs.areTogether(),
});

/** @param {import('../engine/model_tabs.js').ModelTabs} tabs @returns {Promise<Lost[]>} in the order in which they matter */
export async function lostStorage(tabs) {
  const names = /** @type {Lost[]} */ (Object.keys(TRIES));
  const silence = new Promise((resolve) => setTimeout(resolve, SILENT_MS, true));
  const kept = await Promise.all(names.map((name) => Promise.race([TRIES[name](tabs), silence]).catch(() => false)));
  return names.filter((_, at) => !kept[at]);
}

/** @param {Lost[]} lost @returns {string|null} */
export function describeLost(lost) {
  const kept = lost.filter((name) => name !== 'tabs').map((name) => t(`lost.${name}`));
  const what = new Intl.ListFormat(currentLanguage()).format(kept);
  const said = [...kept.length ? [t('lost.keeps', { what })] : [], ...lost.includes('tabs') ? [t('lost.tabs')] : []];
  return said.length ? [...said, t('lost.allow')].join(' ') : null;
}
