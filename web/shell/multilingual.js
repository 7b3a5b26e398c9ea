/**
 * The embedder for other languages than English: a site may have it, and a page in such a language offers it once. It is
 * downloaded only if the person wants it. Which embedder made a stored vector is stored beside it, so a change of mind
 * costs nothing but a second for each thousand messages.
 */
import { formatBytes } from '../common/format.js';
import { local } from '../common/web_storage.js';
import { currentLanguage, t } from '../i18n/i18n.js';

const CHOSEN = 'sonata.multilingual', OFFERED = 'sonata.offered-multilingual';

/** After `loadLanguage`. */
export function usesMultilingual() {
  return currentLanguage() !== 'en' && local.getItem(CHOSEN) === 'yes';
}

/** From the next load of the page on. @param {boolean} isChosen */
export function chooseMultilingual(isChosen) {
  if (isChosen) local.setItem(CHOSEN, 'yes');
  else local.removeItem(CHOSEN);
}

/** The bytes of its files; 0 if the page is in English or the site does not have it. @returns {Promise<number>} */
export async function multilingualBytes() {
  if (currentLanguage() === 'en') return 0;
  try {
    return (await (await fetch('sizes.json')).json()).multilingual ?? 0;
  } catch {
    return 0; // without a network
  }
}

/** Once in each browser. @param {import('./notices.js').Notices} notices */
export async function offerMultilingual(notices) {
  if (usesMultilingual() || local.getItem(OFFERED)) return;
  const bytes = await multilingualBytes();
  if (!bytes) return;
  local.setItem(OFFERED, 'yes');
  const load = () => { chooseMultilingual(true); location.reload(); };
  notices.say('multilingual', t('notices.multilingual'), { label: t('notices.multilingualLoad', { size: formatBytes(bytes) }), run: load });
}
