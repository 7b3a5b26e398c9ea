/** Searches chats: by words at each key, by meaning once the typing pauses. */

const TEXT_PAUSE_MS = 40;
const MEANING_PAUSE_MS = 300;
const MOST_FOUND = 100;

export class ChatSearch {
  text = '';
  /** Those with the words, the best first. @type {import('../protocol_calls.js').StoredConversation[]} */
  found = [];
  /** Others in which something alike was said. @type {import('../protocol_calls.js').StoredConversation[]} */
  similar = [];
  /** True if `found` belongs to the current text. */
  isDone = false;
  #memory = /** @type {import('../memory/client.js').Memory|null} */ (null);
  #onChange;
  #run = 0; // the search that has results
  #timer = 0;
  #later = 0;

  /** @param {() => void} onChange called when there is more to show */
  constructor(onChange) {
    this.#onChange = onChange;
  }

  /** @param {import('../memory/client.js').Memory} memory the memory to search from now on */
  use(memory) {
    this.#memory = memory;
    this.again();
  }

  /** Called when the user is about to search. */
  prepare() {
    this.#memory?.prepareSearch().catch(() => {}); // the search itself will report the error
  }

  /** @param {string} text '' ends the search */
  look(text) {
    this.text = text.trim();
    this.isDone = false;
    this.#begin(TEXT_PAUSE_MS);
  }

  /** Called when the memory has changed. */
  again() {
    if (this.text) this.#begin(TEXT_PAUSE_MS);
  }

  #begin(pause) {
    this.#run += 1;
    clearTimeout(this.#timer);
    clearTimeout(this.#later);
    if (!this.text) {
      this.found = [];
      this.similar = [];
      this.#onChange();
      return;
    }
    this.#timer = setTimeout(() => this.#byWords(this.#run), pause);
    this.#later = setTimeout(() => this.#byMeaning(this.#run), MEANING_PAUSE_MS);
  }

  async #byWords(run) {
    const result = await this.#memory?.conversations({ search: this.text, limit: MOST_FOUND }).catch(() => null);
    if (run !== this.#run) return;
    this.found = result?.items ?? [];
    this.isDone = true;
    this.#onChange();
  }

  async #byMeaning(run) {
    const result = await this.#memory?.similarConversations({ search: this.text }).catch(() => null);
    if (run !== this.#run) return;
    this.similar = result ?? [];
    this.#onChange();
  }
}
