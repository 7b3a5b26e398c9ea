/**
 * Shows and hides the side bar. On a wide screen it stands beside the chat and can be closed, which is remembered; on a phone
 * it is a drawer that closes itself after a choice.
 */
import { local } from '../common/web_storage.js';
import { ownKeys } from '../shell/keyboard.js';

const KEY = 'sonata.sidebar';
const IS_DRAWER = matchMedia('(max-width: 48rem)'); // as in page/shell.css

export class Drawer {
  #bar;
  #rest;
  #shade;
  #opener;

  /**
   * @param {{bar: HTMLElement, rest: HTMLElement[], shade: HTMLElement, openers: HTMLElement[], closer: HTMLElement}} elements
   *   the side bar; the elements that are out of reach while the drawer is open; the shade over them; the buttons
   */
  constructor({ bar, rest, shade, openers, closer }) {
    this.#bar = bar;
    this.#rest = rest;
    this.#shade = shade;
    this.#opener = openers[0];
    for (const opener of openers) opener.addEventListener('click', () => this.open());
    closer.addEventListener('click', () => this.close());
    shade.addEventListener('click', () => this.close());
    bar.addEventListener('keydown', ownKeys((event) => {
      if (event.key !== 'Escape' || event.defaultPrevented || !this.#isDrawerOpen) return;
      event.preventDefault();
      this.close();
    }));
    IS_DRAWER.addEventListener('change', () => this.#setDrawer(false));
  }

  open() {
    if (IS_DRAWER.matches) {
      this.#setDrawer(true);
      this.#bar.querySelector('button')?.focus();
      return;
    }
    delete document.documentElement.dataset.sidebar;
    keep(null);
    this.#bar.querySelector('button')?.focus();
  }

  close() {
    if (IS_DRAWER.matches) {
      this.#setDrawer(false);
    } else {
      document.documentElement.dataset.sidebar = 'closed';
      keep('closed');
    }
    this.#opener.focus();
  }

  /** Open it if it is closed. */
  show() {
    if (!this.#isSeen) this.open();
  }

  toggle() {
    if (this.#isSeen) this.close();
    else this.open();
  }

  get #isSeen() {
    return IS_DRAWER.matches ? this.#isDrawerOpen : document.documentElement.dataset.sidebar !== 'closed';
  }

  /** Called after a choice: a drawer makes room, a side bar stays. */
  chosen() {
    if (this.#isDrawerOpen) this.#setDrawer(false);
  }

  get #isDrawerOpen() {
    return document.documentElement.dataset.drawer === 'open';
  }

  #setDrawer(isOpen) {
    if (isOpen) document.documentElement.dataset.drawer = 'open';
    else delete document.documentElement.dataset.drawer;
    for (const element of this.#rest) element.inert = isOpen;
    this.#shade.hidden = !isOpen;
  }
}

function keep(value) {
  if (value) local.setItem(KEY, value);
  else local.removeItem(KEY);
}
