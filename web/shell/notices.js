import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { t } from '../i18n/i18n.js';
import { button } from '../common/dom.js';

/** @typedef {{text: string, action: {label: string, run: () => void}|null, isClosed: boolean}} Line */

/** Quiet lines above the message box, each with at most one action: nothing that gets in the way. */
export class Notices {
  #root;
  #lines = /** @type {Map<string, Line>} */ (new Map()); // by kind

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
    if ((this.#lines.get(kind)?.text ?? null) === text) return;
    this.#lines.delete(kind);
    if (text) this.#lines.set(kind, { text, action, isClosed: false });
    this.#draw();
  }

  #draw() {
    const lines = [...this.#lines.values()].filter(({ isClosed }) => !isClosed);
    render(repeat(lines, (line) => line, (line) => this.#line(line)), this.#root); // a new sentence is a new element: it is announced
  }

  /** @param {Line} line */
  #line(line) {
    const { text, action } = line;
    const close = () => {
      line.isClosed = true;
      this.#draw();
    };
    return html`<p>${text}${action ? html` ${button(action.label, 'link', action.run)}` : nothing}<button type="button" class="notice-close"
      aria-label=${t('notices.dismiss')} @click=${close}>×</button></p>`;
  }
}
