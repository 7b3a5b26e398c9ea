/**
 * Content that another app shared with this one, or that another site's form posted in its name. The service worker holds it
 * (sw.js: takeShared) and opens the page with ?shared; here a card shows the content. Only a click on "Add" puts its text into
 * the message box and attaches its files, and only the user sends them.
 */
import { changeAddress } from '../chat/address.js';
import { currentLanguage, t } from '../i18n/i18n.js';
import { ask } from '../common/confirmation.js';
import { formatBytes } from '../common/format.js';
import { askWorker } from './offline.js';
import { cut } from '../common/cut.js';

const MOST_NAMES = 5;

/** @typedef {{from: string|null, entries: [string, string|File][]}} Shared from: the host of the site that posted it, if it is known */

/**
 * Take the shared content, once: afterwards the address no longer mentions it.
 * @param {{addText: (text: string) => void, addFiles: (files: File[]) => unknown, say: (sentence: string) => void}} page
 */
export async function takeShared({ addText, addFiles, say }) {
  const url = new URL(location.href);
  const state = url.searchParams.get('shared');
  if (state === null) return;
  url.searchParams.delete('shared');
  changeAddress(url);
  if (state === 'large') return say(t('pwa.sharedTooLarge'));
  const shared = /** @type {Shared|null} */ (await askWorker('shared'));
  if (!shared) return say(t('pwa.notShared'));
  const words = wordsOf(shared);
  const files = shared.entries.flatMap(([name, file]) => (name === 'files' && file instanceof File && file.size > 0 ? [file] : []));
  const isWanted = (words || files.length) && await ask({
    title: shared.from ? t('pwa.sharedFrom', { host: cut(shared.from) }) : t('pwa.sharedTitle'),
    paragraphs: [
      ...words ? [t('pwa.sharedText', { words: cut(words.replace(/\s+/g, ' ')) })] : [],
      ...files.length ? [t('pwa.sharedFiles', { names: namesOf(files) })] : [],
      t('pwa.sharedAbout'),
    ],
    yes: t('pwa.sharedAdd'), no: t('pwa.sharedDiscard'), isUnexpected: true, isHarmless: true,
  });
  if (!isWanted) return;
  if (words) addText(words);
  addFiles(files);
}

/**
 * Title, text and address, each on a line of its own and without duplicates: many apps put the address into the text as well.
 */
function wordsOf({ entries }) {
  const words = /** @type {string[]} */ ([]);
  for (const name of ['text', 'url', 'title']) {
    const [, word = ''] = entries.find(([other, value]) => other === name && typeof value === 'string') ?? [];
    const trimmed = word.trim();
    if (!trimmed || words.some((other) => other.includes(trimmed))) continue;
    if (name === 'title') words.unshift(trimmed);
    else words.push(trimmed);
  }
  return words.join('\n');
}

/** @param {File[]} files */
function namesOf(files) {
  const names = files.slice(0, MOST_NAMES).map(({ name, size }) => `${cut(name)} (${formatBytes(size)})`);
  if (files.length > MOST_NAMES) names.push(t('pwa.sharedMore', { count: files.length - MOST_NAMES }));
  return new Intl.ListFormat(currentLanguage()).format(names);
}
