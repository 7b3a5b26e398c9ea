/**
 * Chooses the conversation that the page shows: a new one, a stored one, or the one that the browser's Back and Forward
 * buttons lead to.
 */
import { chatInAddress, showInAddress } from './address.js';

export class Navigation {
  opening = Promise.resolve(); // the last switch to another conversation, until the model has read it
  #stored;
  #queue;
  #composer;
  #page;

  /**
   * @param {{stored: import('./stored_chat.js').StoredChat, queue: import('./message_queue.js').MessageQueue,
   *   composer: import('./composer.js').Composer}} parts of the page
   * @param {{stop: () => unknown, forget: () => void, engine: () => import('../engine/engine.js').Engine, isReady: () =>
   *   boolean, hasBegun: () => boolean}} page stop: the running answer, if any; forget: the model starts a new conversation;
   *   hasBegun: a question was sent in the one on the page
   */
  constructor({ stored, queue, composer }, page) {
    this.#stored = stored;
    this.#queue = queue;
    this.#composer = composer;
    this.#page = page;
    addEventListener('popstate', () => this.#onAddress());
  }

  /** @param {'push'|'replace'} how see showInAddress */
  newChat(how = 'push') {
    this.#leave(null);
    showInAddress(null, how);
    this.#composer.focus();
    if (this.#page.isReady()) this.#page.forget();
  }

  /**
   * Continue a stored conversation instead of the one on the page.
   * @param {string} id
   * @param {'push'|'replace'} how see showInAddress
   */
  async resume(id, how = 'push') {
    const engine = this.#page.engine();
    this.#leave(id);
    showInAddress(id, how);
    this.#composer.focus();
    this.opening = (async () => {
      await this.#stored.look(engine, this.#queue);
      const isHere = this.#stored.id === id && engine === this.#page.engine();
      if (isHere && this.#page.isReady()) await this.#stored.read(engine);
    })();
    await this.opening;
  }

  /**
   * Remove the conversation from the page. Unanswered messages go back into the message box, which shows them when the
   * conversation is opened again.
   */
  #leave(id) {
    const { questions } = this.#queue, { openings, id: left } = this.#stored;
    this.#queue.clear();
    const giveBack = () => questions.length && this.#composer.add(questions.join('\n\n'));
    if (left !== null) giveBack();
    this.#composer.turn(left ?? (this.#page.hasBegun() ? openings : null), id);
    if (left === null) giveBack();
    this.#page.stop();
    this.#stored.open(id);
  }

  /** The browser's Back or Forward button, or an address that was typed. */
  #onAddress() {
    const id = chatInAddress();
    if (id === this.#stored.address) return;
    if (id) this.resume(id, 'replace');
    else this.newChat('replace');
  }
}
