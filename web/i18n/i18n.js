/**
 * The texts of the page, in the user's language.
 *
 *   t('panel.close')                  "Close"
 *   t(key, { count: 3 })              "3 tokens": an entry {one, other} is chosen by `count`
 *
 * A language is a file like en.js, which joins those of its folder: one for each part of the page. Each export there is a
 * section of keys, each with a sentence in which {name} stands for a value. English is there at once: no key that is
 * pressed meets a page that does not listen yet. Another language is fetched before anything is shown. A test finds what one language says and the other does not.
 */
import { visible } from '../common/cut.js';
import { local } from '../common/web_storage.js';
import { english } from './en.js';
import { setMessages } from './engine_texts.js';

/** @typedef {string|{one: string, other: string}} Entry */
/** @typedef {Record<string, Record<string, Entry>>} Catalogue */

const KEY = 'sonata.language';
/** The name of each language in itself. */
export const LANGUAGES = { en: 'English', de: 'Deutsch' };
/** @type {Record<string, () => Promise<Catalogue>>} */
const CATALOGUES = {
  en: async () => english,
  de: async () => {
    const { german, messages } = await import('./de.js');
    setMessages(messages);
    return german;
  },
};

let language = 'en';
let catalogue = /** @type {Catalogue} */ (english);

/**
 * Before anything is said.
 * @param {string} [code] else the language that was chosen, else the browser's
 */
export async function loadLanguage(code = chosenLanguage() ?? navigator.languages.map((tag) => tag.slice(0, 2)).find((tag) => tag in LANGUAGES) ?? 'en') {
  try {
    catalogue = await CATALOGUES[code]();
    language = code;
  } catch { // it could not be fetched: English then
    catalogue = await CATALOGUES.en();
  }
}

/** The texts of index.html (data-t), in the language. */
export function translatePage() {
  document.documentElement.lang = language;
  if (language !== 'en') translate(document.documentElement);
}

/** @returns {string} a code, as in `LANGUAGES`; Intl takes it, too */
export function currentLanguage() {
  return language;
}

/** @returns {string|null} null: as the browser says */
export function chosenLanguage() {
  const code = local.getItem(KEY);
  return code !== null && Object.hasOwn(LANGUAGES, code) ? code : null;
}

/** From the next load of the page on. @param {string|null} code null: as the browser says */
export function chooseLanguage(code) {
  if (code === null) local.removeItem(KEY);
  else local.setItem(KEY, code);
}

/**
 * @param {string} key section.name
 * @param {Record<string, string|number>} [values] numbers are written as the language writes them
 */
export function t(key, values = {}) {
  const entry = find(catalogue, key);
  if (entry === undefined) throw new Error(`the text ${key} is missing`);
  const sentence = typeof entry === 'string' ? entry : entry[pluralRules().select(Number(values.count)) === 'one' ? 'one' : 'other'];
  return sentence.replace(/\{(\w+)\}/g, (whole, name) => {
    const value = values[name];
    if (value === undefined) return whole;
    return typeof value === 'number' ? value.toLocaleString(language) : visible(String(value));
  });
}

/** Put the texts where elements name them: data-t="key" for their text, data-t-title and so on for an attribute. */
function translate(root) {
  for (const node of root.querySelectorAll('[data-t]')) node.textContent = t(node.dataset.t);
  for (const name of ['title', 'placeholder', 'aria-label']) {
    for (const node of root.querySelectorAll(`[data-t-${name}]`)) node.setAttribute(name, t(node.getAttribute(`data-t-${name}`)));
  }
}

/** @param {Catalogue} from @param {string} key @returns {Entry|undefined} */
function find(from, key) {
  const [section, name] = key.split('.');
  return from[section]?.[name];
}

/** @type {Intl.PluralRules|undefined} */
let rules;
function pluralRules() {
  return (rules ??= new Intl.PluralRules(language));
}
