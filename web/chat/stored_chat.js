/**
 * The stored conversation that the page shows: its address, its turns, and what other tabs add to it.
 *
 * The memory opens before the model is loaded, so the turns are on the page early; the model reads them afterwards
 * (Engine.resume).
 */
import { t } from '../i18n/i18n.js';
import { describe, fromError } from '../shell/problems.js';
import { chatInAddress, showInAddress } from './address.js';


const OTHERS = -1; // another tab wrote in between
const VARIANT = -2; // the page shows a variant that is not stored yet

export class StoredChat {
  /** @type {string|null} null until the first answer is stored */
  id = chatInAddress();
  #shown = 0; // the number of its stored turns on the page, or OTHERS or VARIANT
  #answer = ''; // the text of the last one: another tab may replace it
  /** @type {Map<object, Promise<void>>} */
  #answering = new Map(); // promises of answers that are not stored yet; resolved once they are
  #isThere = false; // true if the memory is known to have it
  #isKept = true; // true if it will survive a reload, as far as is known
  #opened = 0; // number of times that another conversation was opened
  #looking = Promise.resolve(false); // one read after the other
  #engine = /** @type {import('../engine/engine.js').Engine|null} */ (null); // the engine whose memory was read last
  #view;
  #notices;
  #onGone;
  #onTitle;

  /**
   * @param {import('./chat_view.js').ChatView} view
   * @param {import('../shell/notices.js').Notices} notices
   * @param {{onGone: () => void, onTitle: (title: string|null) => void}} callbacks the conversation that was on the page is not
   *   stored any more; its title (null: no message was sent yet)
   */
  constructor(view, notices, { onGone, onTitle }) {
    this.#view = view;
    this.#notices = notices;
    this.#onGone = onGone;
    this.#onTitle = onTitle;
    view.clear(this.id === null);
  }

  /** Show another conversation instead of this one; null is a new chat. `look` brings its turns. */
  open(id) {
    this.id = id;
    this.#opened += 1;
    this.#shown = 0;
    this.#isThere = false;
    this.#isKept = true;
    this.#notices.say('chat', null);
    this.#onTitle(null);
    this.#view.clear(id === null);
  }

  /**
   * An answer is running: `look` leaves the page alone until `end` is called.
   * @param {boolean} isVariant true if it, or its question, is a variant of a stored one
   * @returns {{stored: (event: {chat: string, turns: number, answer: string}) => void, end: () => unknown}} `stored`: question
   *   and answer are in the memory now, as the last two of `turns`; the view knows their numbers
   */
  begin(isVariant) {
    const opened = this.#opened;
    if (isVariant && this.#shown) this.#shown = VARIANT;
    const answer = {};
    let settle = () => {};
    this.#answering.set(answer, new Promise((resolve) => { settle = resolve; }));
    return {
      stored: ({ chat, turns, answer: text }) => {
        if (this.#opened !== opened) return; // the user has left for another conversation
        this.id = chat;
        this.#isThere = true;
        this.#answer = text;
        this.#shown = turns === this.#view.storedTurns ? turns : OTHERS;
        showInAddress(this.address, 'replace');
      },
      end: () => {
        this.#answering.delete(answer);
        settle();
      },
    };
  }

  /** Resolves once the running answers are in the memory. */
  async settled() {
    while (this.#answering.size) await Promise.all(this.#answering.values());
  }

  /** The unstored conversation on the page has begun with something other than a message. */
  adopt(id) {
    this.id = id;
    this.#isThere = true;
    showInAddress(this.address, 'replace');
  }

  /** Its id for the page's address: null if it would be gone after a reload. @returns {string|null} */
  get address() {
    return this.#isKept ? this.id : null;
  }

  /** Increases with each conversation that the page opens, including new ones. */
  get openings() {
    return this.#opened;
  }

  /** True if the page shows the stored state of the conversation. */
  get isShown() {
    return this.#shown > 0;
  }

  /**
   * Show turns that are in the memory but not on the page, or all of them again if the last one differs.
   * @param {import('../engine/engine.js').Engine} engine
   * @param {import('./message_queue.js').MessageQueue} queue the queue whose messages stay below them
   * @returns {Promise<boolean>} true if there were any
   */
  look(engine, queue) {
    if (engine !== this.#engine) { // the earlier engine no longer answers
      this.#engine = engine;
      this.#looking = Promise.resolve(false);
      this.#answering.clear();
    }
    this.#looking = this.#looking.then(() => this.#look(engine, queue));
    return this.#looking;
  }

  /** @param {import('../engine/engine.js').Engine} engine */
  async #look(engine, queue) {
    const { id } = this, { memory } = engine;
    if (!id || this.#answering.size) return false;
    const isLate = () => id !== this.id || engine !== this.#engine || this.#answering.size > 0;
    let turns, title, kept;
    try {
      const info = await memory.info();
      if (info.state === 'locked' && this.#isThere) this.#keep(false);
      if (info.state !== 'ready') return false;
      ({ turns, title, kept } = await memory.conversation({ id }));
    } catch (error) {
      if (isLate()) return false;
      if (error.reason === 'record') this.#gone(queue);
      else this.#notices.say('chat', describe(fromError(error)).message);
      return false;
    }
    if (!isLate()) {
      this.#isThere = true;
      this.#keep(kept);
      this.#onTitle(title);
    }
    const isShown = this.#shown === turns.length && turns.at(-1)?.content === this.#answer;
    if (isLate()) return false;
    const isShared = this.#shown !== 0 && this.#shown !== VARIANT;
    if (isShown) {
      this.#view.placeStored(turns);
      return false;
    }
    this.#show(turns, engine).catch(reportError);
    queue.moveToEnd();
    this.#notices.say('chat', isShared ? t('problems.chatShared') : null);
    return true;
  }

  /**
   * Show another variant of a turn, with the turns below it.
   * @param {number} number of the variant
   * @param {import('../engine/engine.js').Engine} engine
   */
  async choose(number, engine) {
    const { id } = this;
    if (!id) return;
    const { turns } = await engine.memory.choose({ id, number });
    if (id === this.id) await this.#show(turns, engine, number);
  }

  /** @param {number|null} chosen the number of the turn at which the scroll position stays */
  #show(turns, engine, chosen = null) {
    this.#shown = turns.length;
    this.#answer = turns.at(-1)?.content ?? '';
    return this.#view.showStored(turns, engine, chosen);
  }

  /**
   * The model reads the conversation on the page.
   * @param {import('../engine/engine.js').Engine} engine whose model is loaded
   * @returns {Promise<boolean>} true if it has read the conversation
   */
  async read(engine) {
    if (!this.id || !this.#isThere) return false;
    try {
      await engine.conversation.resume({ id: this.id });
      return true;
    } catch (error) {
      this.#notices.say('chat', describe(fromError(error)).message);
      return false;
    }
  }

  #keep(isKept) {
    this.#isKept = isKept;
    showInAddress(this.address, 'replace');
  }

  #gone(queue) {
    const text = t(this.#shown === 0 ? 'problems.chatGone' : 'problems.chatDeleted');
    this.open(null);
    queue.moveToEnd();
    showInAddress(null, 'replace');
    this.#notices.say('chat', text);
    this.#onGone();
  }
}
