/** Loads files when a part of the page is first opened. Each is loaded once; a file that failed to load is tried again. */
import { t } from '../i18n/i18n.js';
import { ownScript } from './own_script.js';
import { userError } from './user_error.js';

/** @type {Map<string, Promise<void>>} */
const files = new Map(); // by their href

/** @param {string} path from the site's folder */
export function loadStyles(path) {
  return load(path, (href) => Object.assign(document.createElement('link'), { rel: 'stylesheet', href }));
}

/** A classic script, such as one that defines a global. @param {string} path from the site's folder */
export function loadScript(path) {
  return load(path, (src) => Object.assign(document.createElement('script'), { src: ownScript(src) }));
}

/** @returns {Promise<void>} rejects with a sentence for the user */
function load(path, make) {
  const href = new URL(`../${path}`, import.meta.url).href;
  if (!files.has(href)) {
    files.set(href, new Promise((/** @type {(value: void) => void} */ resolve, reject) => {
      const tag = make(href);
      tag.addEventListener('load', () => resolve());
      tag.addEventListener('error', () => {
        tag.remove();
        files.delete(href);
        reject(userError('LoadError', t('problems.partNotLoaded')));
      });
      document.head.append(tag);
    }));
  }
  return files.get(href) ?? Promise.resolve();
}
