/** Reports a deletion, for as long as it can be undone. */
import { html, render } from '../vendor/lit-html/lit-html.js';
import { t } from '../i18n/i18n.js';
import { button, element } from '../common/dom.js';

const UNDO_MS = 10_000;

export class Removal {
  element = element('div', 'chats-removed');
  #end = /** @type {(() => void)|null} */ (null);
  #timer = 0;

  constructor() {
    this.element.setAttribute('role', 'status');
    this.element.hidden = true;
    for (const name of ['pointerenter', 'focusin']) this.element.addEventListener(name, () => clearTimeout(this.#timer));
    for (const name of ['pointerleave', 'focusout']) this.element.addEventListener(name, () => this.#wait());
  }

  /** @param {string} sentence @param {{undo: () => unknown, end: () => unknown}} callbacks end: it can no longer be undone */
  say(sentence, { undo, end }) {
    this.#close();
    this.#end = end;
    const takeBack = () => {
      this.#end = null;
      this.#close();
      undo();
    };
    render(html`<span>${sentence}</span>${button(t('sidebar.undo'), 'link', takeBack)}`, this.element);
    this.element.hidden = false;
    this.#wait();
  }

  #wait() {
    clearTimeout(this.#timer);
    if (!this.element.hidden) this.#timer = setTimeout(() => this.#close(), UNDO_MS);
  }

  #close() {
    clearTimeout(this.#timer);
    this.element.hidden = true;
    this.#end?.();
    this.#end = null;
  }
}
