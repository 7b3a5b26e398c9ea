/**
 * Messages that wait: for the model, for the previous answer, or for a file that is still being read. Each is shown as waiting,
 * with a way to take it back.
 */
import { t } from '../i18n/i18n.js';

/**
 * @typedef {{question: string, view: import('../turn/turn_view.js').TurnView, isUrgent: boolean, failure: string|null}}
 *   Message isUrgent: it waits for no file; failure: a sentence about the file that it waited for and that cannot be read
 */

export class MessageQueue {
  #chat;
  #callbacks;
  #waiting = /** @type {Message[]} */ ([]);

  /**
   * @param {import('./chat_view.js').ChatView} chat
   * @param {{onCancel: (question: string) => void, onUrgent: () => void}} callbacks the user took a message back; the first
   *   message is to be sent without the file
   */
  constructor(chat, callbacks) {
    this.#chat = chat;
    this.#callbacks = callbacks;
  }

  /** In the order they were sent. @returns {string[]} */
  get questions() {
    return this.#waiting.map(({ question }) => question);
  }

  /** @param {string} question @param {string|null} [table] that it is about */
  add(question, table = null) {
    const message = { question, view: this.#chat.addTurn(question), isUrgent: false, failure: null };
    message.view.table = table;
    message.view.queue(t('answers.waiting'), [this.#cancel(message)]);
    this.#waiting.push(message);
  }

  /** Add a message that was being answered: it goes before all others. */
  addFirst(question, table = null) {
    this.add(question, table);
    this.#waiting.unshift(...this.#waiting.splice(-1));
    this.moveToEnd();
  }

  /**
   * Removes and returns the next message; null if there is none, or it waits for a file.
   * @param {string|null} delay a sentence about the file that is still being read, null: there is none
   */
  take(delay) {
    const message = this.#waiting.at(0);
    if (!message) return null;
    const why = message.isUrgent ? null : delay ?? message.failure;
    if (why === null) {
      this.#waiting.shift();
      message.view.begin();
      return message;
    }
    message.view.queue(why, [this.#urge(message), this.#cancel(message)]);
    return null;
  }

  /**
   * A file cannot be read: messages that wait for it are not sent automatically. @param {string|null} why a sentence; null:
   * another file comes
   */
  fail(why) {
    for (const message of this.#waiting) message.failure = why;
  }

  /** Move the waiting messages below the turns that were added in the meantime. */
  moveToEnd() {
    for (const { view } of this.#waiting) this.#chat.moveToEnd(view);
  }

  clear() {
    this.#waiting = [];
  }

  /** @param {Message} message */
  #urge(message) {
    const run = () => {
      message.isUrgent = true;
      this.#callbacks.onUrgent();
    };
    return { label: t('answers.sendWithout'), run };
  }

  /** @param {Message} message */
  #cancel(message) {
    const run = () => {
      this.#waiting = this.#waiting.filter((other) => other !== message);
      this.#chat.removeTurn(message.view);
      this.#callbacks.onCancel(message.question);
    };
    return { label: t('answers.cancel'), run };
  }
}
