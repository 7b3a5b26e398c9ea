/** The menu of one chat of the side bar: opened by its button or a right click, worked by keys. */
import { html, render } from '../vendor/lit-html/lit-html.js';
import { icon } from '../common/icon.js';
import { element } from '../common/dom.js';
import { ownKeys } from '../shell/keyboard.js';

export class ChatMenu {
  element = element('div', 'chat-menu');
  #opener = /** @type {HTMLElement|null} */ (null);

  constructor() {
    this.element.popover = 'auto';
    this.element.setAttribute('role', 'menu');
    this.element.addEventListener('keydown', ownKeys((event) => this.#onKey(event)));
    this.element.addEventListener('toggle', (event) => {
      if (/** @type {ToggleEvent} */ (event).newState === 'open') return;
      this.#opener?.setAttribute('aria-expanded', 'false');
      if (this.element.contains(document.activeElement) || document.activeElement === document.body) this.#opener?.focus();
    });
  }

  /**
   * @param {HTMLElement} opener the button that it belongs to
   * @param {string} label
   * @param {{icon: string, label: string, danger?: boolean, run: () => unknown}[]} entries
   */
  open(opener, label, entries) {
    this.#opener = opener;
    this.element.setAttribute('aria-label', label);
    render(entries.map((entry) => this.#entry(entry)), this.element);
    this.element.showPopover();
    opener.setAttribute('aria-expanded', 'true');
    const at = opener.getBoundingClientRect(), { offsetWidth: width, offsetHeight: height } = this.element;
    const left = Math.max(8, Math.min(at.right - width, innerWidth - width - 8));
    const below = at.bottom + 4;
    const top = below + height < innerHeight - 8 ? below : Math.max(8, at.top - height - 4);
    this.element.style.left = `${left}px`;
    this.element.style.top = `${top}px`;
    this.#items[0]?.focus();
  }

  /** @param {{icon: string, label: string, danger?: boolean, run: () => unknown}} entry */
  #entry({ icon: name, label, danger, run }) {
    const choose = () => {
      this.element.hidePopover();
      run();
    };
    return html`<button type="button" class=${danger ? 'chat-menu-item danger-item' : 'chat-menu-item'} role="menuitem" tabindex="-1" @click=${choose}>${
      icon(name)}<span>${label}</span></button>`;
  }

  get #items() {
    return /** @type {HTMLElement[]} */ ([...this.element.children]);
  }

  #onKey(event) {
    const items = this.#items;
    const now = items.findIndex((item) => item === document.activeElement);
    const next = { ArrowDown: now + 1, ArrowUp: now - 1 + items.length, Home: 0, End: items.length - 1 }[event.key];
    if (next !== undefined) {
      event.preventDefault();
      items[next % items.length].focus();
    } else if (event.key === 'Escape' || event.key === 'Tab') {
      event.preventDefault(); // the drawer stays open
      this.element.hidePopover();
      this.#opener?.focus();
    }
  }
}
