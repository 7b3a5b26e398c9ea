/**
 * Tells the engine what it needs in order to learn only while nobody is kept waiting: that the user types or clicks, here or in
 * another tab; that another tab gives an answer; and the state of the battery, if the browser reports it.
 */
import { openChannel } from '../common/browser_parts.js';

const SIGNS = ['keydown', 'input', 'pointerdown'];
const QUIET_MS = 500; // between two reported signs
const ANSWERING_MS = 2000;

export class Presence {
  #channel = openChannel('sonata-presence');
  #engine = /** @type {import('../engine/engine.js').Engine|null} */ (null);
  #battery = /** @type {{level: number, charging: boolean}|null} */ (null);
  #told = -Infinity;
  #answering = 0;

  constructor() {
    for (const sign of SIGNS) document.addEventListener(sign, () => this.#somebodyIsHere(), { capture: true, passive: true });
    this.#channel.onmessage = () => this.#tell((engine) => engine.model.noteActivity());
    this.#watchBattery();
  }

  /** @param {import('../engine/engine.js').Engine|null} engine the engine to inform from now on, once it can learn */
  use(engine) {
    this.#engine = engine;
    this.#tellBattery();
  }

  /** @param {boolean} isAnswering true if this tab gives an answer: its own engine knows, the engines of other tabs are told */
  answering(isAnswering) {
    clearInterval(this.#answering);
    if (isAnswering) this.#answering = setInterval(() => this.#channel.postMessage(0), ANSWERING_MS);
  }

  #somebodyIsHere() {
    const now = performance.now();
    if (now - this.#told < QUIET_MS) return;
    this.#told = now;
    this.#tell((engine) => engine.model.noteActivity());
    this.#channel.postMessage(0);
  }

  async #watchBattery() {
    const { getBattery } = /** @type {any} */ (navigator);
    const battery = await getBattery?.call(navigator).catch(() => null);
    if (!battery) return;
    this.#battery = battery;
    for (const change of ['levelchange', 'chargingchange']) battery.addEventListener(change, () => this.#tellBattery());
    this.#tellBattery();
  }

  #tellBattery() {
    const battery = this.#battery;
    if (battery) this.#tell((engine) => engine.model.noteBattery({ level: battery.level, charging: battery.charging }));
  }

  /** A failed engine is told nothing more; it reports the failure itself. */
  #tell(tell) {
    if (this.#engine) tell(this.#engine).catch(() => {});
  }
}
