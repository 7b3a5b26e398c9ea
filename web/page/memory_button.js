/** The button that opens the Memory view, which is loaded when it is first asked for. */
export class MemoryButton {
  #frame = /** @type {import('../memory_view/frame.js').MemoryFrame|null} */ (null);
  #memory = /** @type {import('../memory/client.js').Memory|null} */ (null);
  #notices;
  #onResume;

  /**
   * @param {HTMLElement} button
   * @param {import('./notices.js').Notices} notices
   * @param {(id: string) => Promise<void>} onResume continue a stored conversation
   */
  constructor(button, notices, onResume) {
    this.#notices = notices;
    this.#onResume = onResume;
    button.addEventListener('click', () => this.open());
  }

  /** Show this memory from now on: that of an engine that was started. */
  use(memory) {
    this.#memory = memory;
    this.#frame?.use(memory);
  }

  async open() {
    if (!this.#memory) return;
    try {
      this.#frame ??= new (await import('../memory_view/frame.js')).MemoryFrame({ onResume: this.#onResume });
      this.#notices.say('memory-view', null);
      await this.#frame.open(this.#memory);
    } catch {
      this.#notices.say('memory-view', 'The Memory view could not be loaded. Check your connection, then try again.');
    }
  }
}
