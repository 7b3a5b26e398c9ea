import { render } from '../vendor/lit-html/lit-html.js';
import { button } from '../common/dom.js';

/** One problem at a time: a sentence that says what to do, buttons that do it, and the details folded away. */
export class Banner {
  #root;
  #message;
  #details;
  #trace;
  #actions;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#root = root;
    this.#message = root.querySelector('.banner-message');
    this.#details = root.querySelector('details');
    this.#trace = root.querySelector('pre');
    this.#actions = root.querySelector('.banner-actions');
  }

  get isShown() {
    return !this.#root.hidden;
  }

  /**
   * @param {{message: string, details?: string|null}} problem
   * @param {{label: string, run: () => unknown}[]} actions the first one is the obvious one
   */
  show({ message, details }, actions) {
    this.#message.textContent = message;
    this.#details.hidden = !details;
    this.#details.open = false;
    this.#trace.textContent = details ?? '';
    render(actions.map(({ label, run }, index) => button(label, index === 0 ? 'primary' : 'quiet', () => {
      this.hide();
      run();
    })), this.#actions);
    this.#root.hidden = false;
  }

  hide() {
    this.#root.hidden = true;
  }
}
