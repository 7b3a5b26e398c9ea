/**
 * What another app shared with this one. The service worker keeps the form that came (sw.js: takeShared) and opens the
 * page with ?shared; here it becomes text in the message box, and files that are attached: nobody
 * but the user sends them.
 */
import { t } from '../i18n/i18n.js';

const CACHE = 'sonata-shared'; // as in sw.js

/**
 * Take what was shared, once: the address says so no more afterwards.
 * @param {{addText: (text: string) => void, addFiles: (files: File[]) => unknown, say: (sentence: string) => void}} page
 */
export async function takeShared({ addText, addFiles, say }) {
  const url = new URL(location.href);
  const shared = url.searchParams.get('shared');
  if (shared === null) return;
  url.searchParams.delete('shared');
  history.replaceState(history.state, '', url);
  const form = shared === 'failed' ? null : await readForm().catch(() => null);
  if (!form) return say(t('pwa.notShared'));
  const words = wordsOf(form);
  const files = form.getAll('files').flatMap((file) => (file instanceof File && file.size > 0 ? [file] : []));
  if (words) addText(words);
  addFiles(files);
}

async function readForm() {
  const cache = await caches.open(CACHE);
  const [request] = await cache.keys();
  const form = await (await cache.match(request))?.formData() ?? null;
  await caches.delete(CACHE);
  return form;
}

/** Title, text and address, each in a line of its own, none twice: many apps put the address into the text as well. */
function wordsOf(form) {
  const words = /** @type {string[]} */ ([]);
  for (const name of ['text', 'url', 'title']) {
    const word = String(form.get(name) ?? '').trim();
    if (!word || words.some((other) => other.includes(word))) continue;
    if (name === 'title') words.unshift(word);
    else words.push(word);
  }
  return words.join('\n');
}
