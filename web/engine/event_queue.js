/**
 * An async iterator that is fed by hand: `push` values, then `end` or `fail`.
 * `return` ends it from the reader's side at once, also while a `next` is pending; what is pushed later is dropped.
 */
export class EventQueue {
  #values = [];
  #readers = [];
  #closed = false;
  #error = null;
  #onReturn;

  /** @param {() => void} [onReturn] called once when the reader leaves before the end */
  constructor(onReturn) {
    this.#onReturn = onReturn;
  }

  push(value) {
    if (this.#closed) return;
    const reader = this.#readers.shift();
    if (reader) reader.resolve({ value, done: false });
    else this.#values.push(value);
  }

  end() {
    if (this.#closed) return;
    this.#closed = true;
    for (const reader of this.#readers.splice(0)) reader.resolve({ value: undefined, done: true });
  }

  fail(error) {
    if (this.#closed) return;
    this.#closed = true;
    const reader = this.#readers.shift();
    if (reader) reader.reject(error);
    else this.#error = error;
    for (const other of this.#readers.splice(0)) other.resolve({ value: undefined, done: true });
  }

  next() {
    if (this.#values.length > 0) return Promise.resolve({ value: this.#values.shift(), done: false });
    if (this.#error) {
      const error = this.#error;
      this.#error = null;
      return Promise.reject(error);
    }
    if (this.#closed) return Promise.resolve({ value: undefined, done: true });
    return new Promise((resolve, reject) => this.#readers.push({ resolve, reject }));
  }

  return(value) {
    const early = !this.#closed;
    this.#values.length = 0;
    this.#error = null;
    this.end();
    if (early) this.#onReturn?.();
    return Promise.resolve({ value, done: true });
  }

  [Symbol.asyncIterator]() {
    return this;
  }
}
