/**
 * What is remembered and learned, as the page sees it: `engine.memory`. app/memory/api.py answers.
 *
 * Errors have the kind as their `name` ("StoreError", "AgentError", ...), a sentence for the user as their `message`, errors of
 * the store a `reason` ("locked", "passphrase", "file", ...: py_core/memory/errors.py), and errors of an agent the wrong
 * `field`, if there is one. Times are seconds since 1970.
 */
import { visible } from '../common/cut.js';
import { said } from '../i18n/engine_texts.js';

/** The agent that answers if no other suits (py_core/routing/agents.py: FALLBACK_ID). */
export const PLAIN = 'assistant';
const TOGETHER_MS = 50;

/** @typedef {import('../protocol.js').StoredTurn} StoredTurn */

/**
 * `kept`: true if it survives a reload; `turns`: of all branches; `titled`: whose title it is ('': its first words); `said`:
 * time of the last turn. A search adds the matching message, as [text, true if it is a match], and its similarity.
 * @typedef {{id: string, title: string, turns: number, pinned: boolean, archived: boolean, titled: ''|'model'|'user',
 *   said: number, created: number, updated: number, kept: boolean, similarity?: number,
 *   snippet?: {role: string, parts: [string, boolean][]}|null}} StoredConversation
 */

export class Memory {
  #call;
  #listeners = new Set();
  #telling = 0;

  /** @param {(call: string, given: any[], data: Uint8Array|null) => Promise<any>} call calls the worker */
  constructor(call) {
    this.#call = call;
  }

  /** @param {() => void} listener called after anything changed, here or in another tab @returns {() => void} unsubscribes */
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

  /**
   * @returns {Promise<{state: 'opening'|'ready'|'locked', routing: 'opening'|'ready'|'failed'|'off', learning: 'opening'|'ready'|'failed'|'off', problem: string|null,
   *   persistent: boolean, place: string, encrypted: boolean, unreadable: number, agents: {id: string, title: string}[],
   *   uncompacted: string|null, suspicion: string|null}>} the last two are sentences
   */
  async info() {
    const info = await this.#ask('info');
    for (const name of ['problem', 'uncompacted', 'suspicion']) info[name] &&= said(info[name]);
    for (const agent of info.agents) agent.title = visible(said(agent.title));
    return info;
  }

  /** The number of stored records of each kind, which has to be counted. @returns {Promise<Record<string, number>>} */
  counts() { return this.#ask('counts'); }

  /**
   * The size of the kept model states of the chats, which let them continue at once; `bytes` is null if none are kept.
   * @returns {Promise<{bytes: number|null, most: number}>}
   */
  keptPages() { return this.#ask('kept_pages'); }

  removeKeptPages() { return this.#ask('remove_kept_pages'); }

  /** Resolves once the memory is open, or has failed to open. */
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

  /** Route messages like this one to this agent. `id`: of the route event. @returns {Promise<{pattern: string}>} */
  correct(id, text, agent) { return this.#ask('correct', id, text, agent); }

  /** The route was right. */
  confirm(id) { return this.#ask('confirm', id); }

  /** Undo the user's feedback on a route; the pattern of a correction stays (removePatterns). */
  takeBack(id) { return this.#ask('take_back', id); }

  /** @returns {Promise<{total: number, items: object[]}>} id, text, agent, source, weight, uses, created, lastUsed, similarity */
  patterns({ search = '', agent = null, offset = 0, limit = 50 } = {}) { return this.#ask('patterns', search, agent, offset, limit); }

  editPattern(id, { text, agent }) { return this.#ask('edit_pattern', id, text, agent); }

  removePatterns(ids) { return this.#ask('remove_patterns', ids); }

  /** @returns {Promise<{agents: string[], points: [number, number, number, string, string, string][]}>} x, y, agent, source, text, id */
  map() { return this.#ask('map'); }

  /**
   * The chats, the most recent first; with `search`, only chats that have all its words, in the title or the messages.
   * @param {{search?: string, offset?: number, limit?: number|null}} [wanted]
   * @returns {Promise<{total: number, items: StoredConversation[]}>}
   */
  conversations({ search = '', offset = 0, limit = null } = {}) { return this.#ask('conversations', search, offset, limit); }

  /**
   * The chats in which something of a similar meaning was said, the most similar first. @returns
   * {Promise<StoredConversation[]>}
   */
  similarConversations(search) { return this.#ask('similar_conversations', search); }

  /** Read what a search needs, so that the first search does not wait for it. */
  prepareSearch() { return this.#ask('prepare_search'); }

  /** @returns {Promise<{id: string, title: string, turns: StoredTurn[], kept: boolean}>} the shown turns, see `choose` */
  conversation(id) { return this.#ask('conversation', id); }

  /**
   * Show the branch of a turn, up to the newest turn below it. The model reads it before the next answer.
   * @param {string} chat @param {number} number of any turn of it @returns {Promise<{id: string, title: string, turns: StoredTurn[]}>}
   */
  choose(chat, number) { return this.#ask('choose', chat, number); }

  /**
   * The agent that answers in a chat; null: in a chat that is not stored yet. `agent`: its id, '' if each message is routed;
   * `chosen`: the user's choice for the chat, if any; `isLost`: that agent no longer exists (app/routing/agent_choice.py).
   * @param {string|null} chat
   * @returns {Promise<{agent: string, chosen: string|null, isLost: boolean, agents: {id: string, title: string}[], routing:
   *   'opening'|'ready'|'failed'|'off'}>} `agents` is empty if the routing is not ready
   */
  async agentChoice(chat) {
    const choice = await this.#ask('agent_choice', chat);
    for (const agent of choice.agents) agent.title = visible(said(agent.title));
    return choice;
  }

  /** @param {string} chat @param {string} agent the id of the agent that answers from the next message on, '' for routing */
  chooseAgent(chat, agent) { return this.#ask('choose_agent', chat, agent); }

  renameConversation(id, title) { return this.#ask('rename_conversation', id, title); }

  pinConversation(id, pinned) { return this.#ask('pin_conversation', id, pinned); }

  archiveConversation(id, archived) { return this.#ask('archive_conversation', id, archived); }

  /** They are deleted at once, for good unless this page calls `restoreConversations`. */
  removeConversations(ids) { return this.#ask('remove_conversations', ids); }

  /** Undo the last `removeConversations`. */
  restoreConversations() { return this.#ask('restore_conversations'); }

  /** Removed chats can no longer be restored. */
  forgetRemoved() { return this.#ask('forget_removed'); }

  /** @param {string} id @param {'markdown'|'json'} form the shown branch, or everything @returns {Promise<string>} */
  exportConversation(id, form) { return this.#ask('export_conversation', id, form); }

  /**
   * @param {{filter?: 'all'|'poor'|'errors'|'slow', search?: string, offset?: number, limit?: number}} [wanted]
   * @returns {Promise<{total: number, items: object[]}>} id, created, text, agent, backend, stages, totalMs, quality, error, confidence, adapter
   */
  log({ filter = 'all', search = '', offset = 0, limit = 50 } = {}) { return this.#ask('log', filter, search, offset, limit); }

  removeLog(ids) { return this.#ask('remove_log', ids); }

  /** @returns {Promise<{percentiles: object, trends: object, agents: [string, number][]}>} */
  statistics() { return this.#ask('statistics'); }

  async policies() {
    const policies = await this.#ask('policies');
    for (const { words } of policies) for (const name of ['title', 'value', 'about', 'by', 'deletion']) words[name] = said(words[name]);
    return policies;
  }

  editPolicy(name, value) { return this.#ask('edit_policy', name, value); }

  removePolicies(names) { return this.#ask('remove_policies', names); }

  async agents() {
    const agents = await this.#ask('agents');
    for (const agent of agents) for (const name of ['title', 'definition']) agent[name] = said(agent[name]);
    return agents;
  }

  addAgent(fields) { return this.#ask('add_agent', fields); }

  editAgent(id, fields) { return this.#ask('edit_agent', id, fields); }

  removeAgent(id) { return this.#ask('remove_agent', id); }

  restoreAgent(id) { return this.#ask('restore_agent', id); }

  resetAgent(id) { return this.#ask('reset_agent', id); }

  /** @param {string|null} passphrase of the file alone @returns {Promise<Uint8Array>} */
  exportFile(passphrase = null) { return this.#ask('export_file', passphrase); }

  /**
   * @param {Uint8Array} data @param {'merge'|'replace'} mode @returns {Promise<{written: number, leftOut: number}|{chats:
   *   number, messages: number, leftOut: number, unread: number}>} items; `leftOut` counts what could not be read. For chats:
   *   see import_file in app/memory/api.py
   */
  importFile(data, mode, passphrase = null) { return this.#call('import_file', [mode, passphrase], data); }

  /** Delete the items that cannot be read. @returns {Promise<number>} their number */
  removeUnreadable() { return this.#ask('remove_unreadable'); }

  /** Accept the memory as it is: `suspicion` does not report the same again. */
  accept() { return this.#ask('accept'); }

  /** Delete everything that was learned and logged. The passphrase stays, except that of a locked memory. */
  deleteAll() { return this.#ask('delete_all'); }

  setPassphrase(passphrase, old = null) { return this.#ask('set_passphrase', passphrase, old); }

  removePassphrase(old) { return this.#ask('remove_passphrase', old); }

  unlock(passphrase) { return this.#ask('unlock', passphrase); }

  #ask(call, ...given) {
    return this.#call(call, given, null);
  }
}
