/** Copies text, and shows with a word or a tick in the button that it worked. */
import { icon } from '../common/icon.js';
import { element } from '../common/dom.js';
import { t } from '../i18n/i18n.js';

const SHOWN_MS = 1500;

/**
 * @param {() => string} text
 * @param {HTMLElement} words the element with the button's text
 * @param {string} usually its text otherwise
 */
export async function copyText(text, words, usually) {
  const isCopied = await copy(text());
  words.textContent = t(isCopied ? 'answers.copied' : 'answers.notCopied');
  setTimeout(() => (words.textContent = usually), SHOWN_MS);
}

/**
 * @param {HTMLElement} pressed a button with only an icon
 * @param {() => string} text
 * @param {(() => string)|null} [html] the same with formatting
 */
export async function copyWithIcon(pressed, text, html = null) {
  const isCopied = await copy(text(), html?.());
  const said = element('span', 'visually-hidden', t(isCopied ? 'answers.copied' : 'answers.notCopied'));
  said.setAttribute('role', 'status');
  pressed.replaceChildren(icon(isCopied ? 'check' : 'x'), said);
  setTimeout(() => pressed.replaceChildren(icon('copy')), SHOWN_MS);
}

/** @returns {Promise<boolean>} true if it worked */
async function copy(text, html = '') {
  const { clipboard } = navigator;
  if (!clipboard) return false; // the page is not in a secure context
  const asText = () => clipboard.writeText(text).then(() => true, () => false);
  if (!html || !('ClipboardItem' in window)) return asText();
  const blobs = { 'text/plain': new Blob([text], { type: 'text/plain' }), 'text/html': new Blob([html], { type: 'text/html' }) };
  return clipboard.write([new ClipboardItem(blobs)]).then(() => true, asText);
}
