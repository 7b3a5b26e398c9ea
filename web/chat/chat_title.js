/**
 * The title of the conversation on the page, in its header. The browser's tab does not have it: a browser keeps the titles
 * of pages in its history, some bring that to other machines, and no page can take one back.
 */
import { isBlank, visible } from '../common/cut.js';
import { t } from '../i18n/i18n.js';

export class ChatTitle {
  #heading;

  /** @param {HTMLElement} heading */
  constructor(heading) {
    this.#heading = heading;
    this.show(null);
  }

  /** @param {string|null} title null: nothing was said yet */
  show(title) {
    this.#heading.textContent = title && !isBlank(title) ? visible(title) : t('chat.newChat');
  }
}
