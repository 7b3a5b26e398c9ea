/** The title of the conversation on the page: in the header, and on the browser's tab. */
import { isBlank, visible } from '../common/cut.js';
import { t } from '../i18n/i18n.js';

export class ChatTitle {
  #heading;

  /** @param {HTMLElement} heading */
  constructor(heading) {
    this.#heading = heading;
    this.show(null);
  }

  /**
   * @param {string|null} title null: nothing was said yet
   * @param {boolean} [isSecret] it is not for the browser's tab, whose title stays in its history
   */
  show(title, isSecret = false) {
    const seen = title && !isBlank(title) ? visible(title) : null;
    this.#heading.textContent = seen ?? t('chat.newChat');
    document.title = seen && !isSecret ? `${seen} · Sonata` : 'Sonata';
  }
}
