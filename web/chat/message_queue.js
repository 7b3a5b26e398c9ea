/** Messages that were sent while the model loads. Each is shown as waiting, with a way to take it back. */
export class MessageQueue {
  #chat;
  #onCancel;
  /** @type {{question: string, view: import('./turn_view.js').TurnView}[]} */
  #waiting = [];

  /**
   * @param {import('./chat_view.js').ChatView} chat
   * @param {(question: string) => void} onCancel the user took a message back
   */
  constructor(chat, onCancel) {
    this.#chat = chat;
    this.#onCancel = onCancel;
  }

  /** In the order they were sent. @returns {string[]} */
  get questions() {
    return this.#waiting.map(({ question }) => question);
  }

  add(question) {
    const message = { question, view: this.#chat.addTurn(question) };
    message.view.queue(() => {
      this.#waiting = this.#waiting.filter((other) => other !== message);
      this.#chat.removeTurn(message.view);
      this.#onCancel(question);
    });
    this.#waiting.push(message);
  }

  /** One that was being answered: it comes before all that wait. */
  addFirst(question) {
    this.add(question);
    this.#waiting.unshift(...this.#waiting.splice(-1));
    this.moveToEnd();
  }

  /** The next one, which waits no longer; null where there is none. */
  take() {
    const message = this.#waiting.shift() ?? null;
    message?.view.begin();
    return message;
  }

  /** Show those that still wait below what was put on the page in the meantime. */
  moveToEnd() {
    for (const { view } of this.#waiting) this.#chat.moveToEnd(view);
  }

  clear() {
    this.#waiting = [];
  }
}
