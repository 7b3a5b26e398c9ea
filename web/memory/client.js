/**
 * The page's view of the memory: `engine.memory`. app/memory/api.py answers; this translates its messages.
 *
 * Errors have the kind as their `name` ("StoreError", "AgentError", ...), a sentence for the user as their `message`, errors of
 * the store a `reason` ("locked", "passphrase", "file", ...: py_core/store/errors.py), and errors of an agent the wrong
 * `field`, if there is one. Times are seconds since 1970.
 */
import { visible } from '../common/cut.js';
import { said } from '../i18n/engine_texts.js';
import { MemoryCalls } from '../protocol_calls.js';

/** The agent that answers if no other suits (py_core/routing/agents.py: FALLBACK_ID). */
export const PLAIN = 'assistant';
const TOGETHER_MS = 50;

export class Memory extends MemoryCalls {
  #listeners = new Set();
  #telling = 0;

  /** @param {() => void} listener called after anything changed, here or in another tab @returns {() => void} ends this */
  onChange(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Called by the engine, often many times in a row: an answer alone writes five records. */
  tell() {
    this.#telling ||= setTimeout(() => {
      this.#telling = 0;
      for (const listener of this.#listeners) listener();
    }, TOGETHER_MS);
  }

  /** @returns {Promise<import('../i18n/engine_texts.js').Said<import('../protocol_calls.js').MemoryInfo>>} */
  async info() {
    const info = /** @type {any} */ (await super.info());
    for (const name of ['problem', 'uncompacted', 'suspicion']) info[name] &&= said(info[name]);
    for (const agent of info.agents) agent.title = visible(said(agent.title));
    return info;
  }

  /** Resolves once the memory is open, or it is known that it will not be. */
  async opened() {
    let changed;
    const unwatch = this.onChange(() => changed?.());
    try {
      for (;;) {
        const change = new Promise((resolve) => { changed = resolve; });
        const info = await this.info().catch(() => null);
        if (info?.state !== 'opening') return;
        await change;
      }
    } finally {
      unwatch();
    }
  }

  /** @param {{id: string|null}} chat @returns {Promise<import('../i18n/engine_texts.js').Said<import('../protocol_calls.js').ChatAgent>>} */
  async agentChoice(chat) {
    const choice = /** @type {any} */ (await super.agentChoice(chat));
    for (const agent of choice.agents) agent.title = visible(said(agent.title));
    return choice;
  }

  async policies() {
    const policies = await super.policies();
    for (const { words } of policies) for (const name of ['title', 'value', 'about', 'by', 'deletion']) words[name] = said(words[name]);
    return policies;
  }

  async agents() {
    const agents = await super.agents();
    for (const agent of agents) for (const name of ['title', 'definition']) agent[name] = said(agent[name]);
    return agents;
  }
}
