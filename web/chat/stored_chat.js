/**
 * The stored conversation that the page shows: its address, its turns, and what other tabs add to it.
 *
 * The memory opens before the model is loaded, so the turns are on the page early; the model reads them afterwards
 * (Engine.resume).
 */
import { describe, fromError } from '../page/problems.js';
import { chatInAddress, showInAddress } from './address.js';

const GONE = 'This conversation is not in this browser: it was deleted, or belongs to another browser.';
const SHARED = 'This conversation is open in another tab, too. What is said there appears here.';

export class StoredChat {
  /** @type {string|null} null until the first answer is stored */
  id = chatInAddress();
  #shown = 0; // how many of its stored turns are on the page
  #answer = ''; // the text of the last of them: another tab may replace it
  #answering = new Set(); // answers that are not yet stored
  #opened = 0; // how often another conversation was opened
  #looking = Promise.resolve(false); // one look after the other
  #engine = /** @type {import('../engine/engine.js').Engine|null} */ (null); // whose memory was looked into last
  #view;
  #notices;
  #onGone;

  /**
   * @param {import('./chat_view.js').ChatView} view
   * @param {import('../page/notices.js').Notices} notices
   * @param {() => void} onGone the conversation that was on the page is not stored any more
   */
  constructor(view, notices, onGone) {
    this.#view = view;
    this.#notices = notices;
    this.#onGone = onGone;
    view.clear(this.id === null);
  }

  /** Show another conversation in place of this one; null is a new chat. Its turns come with `look`. */
  open(id) {
    this.id = id;
    this.#opened += 1;
    this.#shown = 0;
    this.#notices.say('chat', null);
    this.#view.clear(id === null);
  }

  /**
   * An answer is on its way: `look` leaves the page alone until `end` is called.
   * @param {boolean} again it takes the place of the one before
   * @returns {{stored: (event: {chat: string, turns: number, answer: string}) => void, end: () => unknown}} `stored`:
   *   question and answer are in the memory now, as the last two of so many turns
   */
  begin(again) {
    const opened = this.#opened;
    const answer = {};
    this.#answering.add(answer);
    return {
      stored: ({ chat, turns, answer: text }) => {
        if (this.#opened !== opened) return; // the user has left for another conversation
        this.id = chat;
        this.#answer = text;
        this.#shown = turns === this.#shown + (again ? 0 : 2) ? turns : -1; // else another tab wrote in between
        showInAddress(chat, 'replace');
      },
      end: () => this.#answering.delete(answer),
    };
  }

  /** Whether the page shows what is stored of it. */
  get isShown() {
    return this.#shown > 0;
  }

  /**
   * Show the turns that the memory has and the page has not, or all of them anew where the last one is another.
   * @param {import('../engine/engine.js').Engine} engine
   * @param {import('./message_queue.js').MessageQueue} queue whose messages stay below them
   * @returns {Promise<boolean>} whether there were any
   */
  look(engine, queue) {
    if (engine !== this.#engine) { // the one before answers no more
      this.#engine = engine;
      this.#looking = Promise.resolve(false);
      this.#answering.clear();
    }
    this.#looking = this.#looking.then(() => this.#look(engine, queue));
    return this.#looking;
  }

  async #look(engine, queue) {
    const { id } = this, { memory } = engine;
    if (!id || this.#answering.size) return false;
    const isLate = () => id !== this.id || engine !== this.#engine || this.#answering.size > 0;
    let turns;
    try {
      const { state } = await memory.info();
      if (state !== 'ready') return false;
      ({ turns } = await memory.conversation(id));
    } catch (error) {
      if (isLate()) return false;
      if (error.reason === 'record') this.#gone();
      else this.#notices.say('chat', describe(fromError(error)).message);
      return false;
    }
    const asShown = this.#shown === 0 || turns[this.#shown - 1]?.content === this.#answer;
    if (isLate() || (asShown && turns.length === this.#shown)) return false;
    const isShared = this.#shown !== 0;
    if (!asShown) {
      this.#view.clear(false);
      this.#shown = 0;
    }
    this.#view.addStored(turns.slice(this.#shown), engine);
    this.#shown = turns.length;
    this.#answer = turns.at(-1)?.content ?? '';
    queue.moveToEnd();
    this.#notices.say('chat', isShared ? SHARED : null);
    return true;
  }

  /**
   * The model reads what is on the page.
   * @param {import('../engine/engine.js').Engine} engine whose model is loaded
   * @returns {Promise<boolean>} whether it knows now what was said
   */
  async read(engine) {
    if (!this.id || !this.isShown) return false;
    try {
      await engine.resume(this.id);
      return true;
    } catch (error) {
      this.#notices.say('chat', describe(fromError(error)).message);
      return false;
    }
  }

  #gone() {
    const text = this.#shown === 0 ? GONE : 'This conversation was deleted.';
    this.open(null);
    showInAddress(null, 'replace');
    this.#notices.say('chat', text);
    this.#onGone();
  }
}
