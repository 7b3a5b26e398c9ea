/**
 * Messages that wait: for the model, for the answer before, or for a file that is still read. Each is shown as waiting, with
 * a way to take it back.
 */
import { t } from '../i18n/i18n.js';

/** @typedef {{question: string, view: import('../turn/turn_view.js').TurnView, isUrgent: boolean, failure: string|null}} Message
 *   isUrgent: it waits for no file; failure: a sentence on the file that it waited for, which cannot be read */

export class MessageQueue {
  #chat;
  #callbacks;
  #waiting = /** @type {Message[]} */ ([]);

  /**
   * @param {import('./chat_view.js').ChatView} chat
   * @param {{onCancel: (question: string) => void, onUrgent: () => void}} callbacks the user took a message back; the first
   *   one shall be sent without the file
   */
  constructor(chat, callbacks) {
    this.#chat = chat;
    this.#callbacks = callbacks;
  }

  /** In the order they were sent. @returns {string[]} */
  get questions() {
    return this.#waiting.map(({ question }) => question);
  }

  add(question) {
    const message = { question, view: this.#chat.addTurn(question), isUrgent: false, failure: null };
    message.view.queue(t('answers.waiting'), [this.#cancel(message)]);
    this.#waiting.push(message);
  }

  /** One that was being answered: it comes before all that wait. */
  addFirst(question) {
    this.add(question);
    this.#waiting.unshift(...this.#waiting.splice(-1));
    this.moveToEnd();
  }

  /**
   * The next one, which waits no longer; null where there is none, or it waits for a file.
   * @param {string|null} delay a sentence on the file that is still read, null: there is none
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

  /** A file cannot be read: what waits for it is not sent by itself. @param {string|null} why a sentence; null: another comes */
  fail(why) {
    for (const message of this.#waiting) message.failure = why;
  }

  /** Show those that still wait below what was put on the page in the meantime. */
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
