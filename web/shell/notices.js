import { t } from '../i18n/i18n.js';
import { button } from '../common/dom.js';

/** Quiet lines above the message box, each with at most one action: nothing that gets in the way. */
export class Notices {
  #root;
  #lines = new Map(); // kind -> its <p>

  /** @param {HTMLElement} root a list that is announced politely */
  constructor(root) {
    this.#root = root;
  }

  /**
   * Show a sentence, replacing the previous one of the same kind; null removes it.
   * @param {string} kind
   * @param {string|null} text
   * @param {{label: string, run: () => void}|null} [action]
   */
  say(kind, text, action = null) {
    const before = this.#lines.get(kind);
    if (before?.dataset.text === text) return;
    before?.remove();
    this.#lines.delete(kind);
    if (!text) return;
    const line = document.createElement('p');
    line.dataset.text = text;
    line.append(text);
    if (action) line.append(' ', button(action.label, 'link', action.run));
    const close = button('×', 'notice-close', () => line.remove());
    close.setAttribute('aria-label', t('notices.dismiss'));
    line.append(close);
    this.#lines.set(kind, line);
    this.#root.append(line);
  }
}
