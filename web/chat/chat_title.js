/**
 * The title of the conversation on the page, in its header. The browser's tab does not show it: browsers keep the titles of
 * pages in their history, some sync that to other machines, and a page cannot delete a title from it.
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

  /** @param {string|null} title null: no message was sent yet */
  show(title) {
    this.#heading.textContent = title && !isBlank(title) ? visible(title) : t('chat.newChat');
  }
}
