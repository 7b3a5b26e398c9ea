/** The button that opens the Memory view, which is loaded when it is first asked for. */
export class MemoryButton {
  #frame = /** @type {import('../memory_view/frame.js').MemoryFrame|null} */ (null);
  #engine = /** @type {import('../engine/engine.js').Engine|null} */ (null);
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

  /** Show the memory of this engine from now on. */
  use(engine) {
    this.#engine = engine;
    this.#frame?.use(engine);
  }

  async open() {
    if (!this.#engine) return;
    try {
      this.#frame ??= new (await import('../memory_view/frame.js')).MemoryFrame({ onResume: this.#onResume });
      this.#notices.say('memory-view', null);
      await this.#frame.open(this.#engine);
    } catch {
      this.#notices.say('memory-view', 'The Memory view could not be loaded. Check your connection, then try again.');
    }
  }
}
