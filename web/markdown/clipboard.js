/** Copies text, and shows with a word or a tick in the button that it worked. */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { directive, Directive } from '../vendor/lit-html/directive.js';
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

class CopyButton extends Directive {
  #root = element('button', 'action');
  #given = { text: () => '', asHtml: /** @type {(() => string)|null} */ (null) };

  /** @param {string} label @param {() => string} text @param {(() => string)|null} [asHtml] the same with formatting */
  render(label, text, asHtml = null) {
    this.#given = { text, asHtml };
    if (this.#root.title !== label) this.#begin(label);
    return this.#root;
  }

  /** @param {string} label */
  #begin(label) {
    this.#root.type = 'button';
    this.#root.title = label;
    this.#root.setAttribute('aria-label', label);
    this.#root.addEventListener('click', () => this.#copy());
    this.#draw('copy');
  }

  async #copy() {
    const { text, asHtml } = this.#given;
    const isCopied = await copy(text(), asHtml?.());
    this.#draw(isCopied ? 'check' : 'x', t(isCopied ? 'answers.copied' : 'answers.notCopied'));
    setTimeout(() => this.#draw('copy'), SHOWN_MS);
  }

  /** @param {string} name of the icon @param {string} said */
  #draw(name, said = '') {
    render(html`${icon(name)}${said ? html`<span class="visually-hidden" role="status">${said}</span>` : nothing}`, this.#root);
  }
}

/** In a template, a button with only an icon that copies a text. */
export const copyButton = directive(CopyButton);

/** @returns {Promise<boolean>} true if it worked */
async function copy(text, asHtml = '') {
  const { clipboard } = navigator;
  if (!clipboard) return false; // the page is not in a secure context
  const asText = () => clipboard.writeText(text).then(() => true, () => false);
  if (!asHtml || !('ClipboardItem' in window)) return asText();
  const blobs = { 'text/plain': new Blob([text], { type: 'text/plain' }), 'text/html': new Blob([asHtml], { type: 'text/html' }) };
  return clipboard.write([new ClipboardItem(blobs)]).then(() => true, asText);
}
