/**
 * The agent that answers in the chat on the page: the one that suits each message, always the plain assistant, or another
 * agent. The choice is stored with the chat (app/routing/agent_choice.py); until the chat is stored this tab keeps it, also
 * across a reload.
 */
import { html, render } from '../vendor/lit-html/lit-html.js';
import { session } from '../common/web_storage.js';
import { describe, fromError } from '../shell/problems.js';
import { PLAIN } from '../memory/client.js';
import { t } from '../i18n/i18n.js';

const KEPT = 'sonata.choice';
const AUTOMATIC = '';

export class AgentChoice {
  #root;
  #select;
  #parts;
  /** @type {() => import('../engine/engine.js').Engine} */ #engine;
  #unstored = /** @type {string|null} */ (null); // the choice in a chat that is not stored yet
  #opening = 0; // of the chat to which it belongs
  #looks = 0;
  #offered = '';

  /**
   * @param {HTMLElement} root with a select, disabled until the agents are known; hidden if there are none
   * @param {{stored: import('./stored_chat.js').StoredChat, notices: import('../shell/notices.js').Notices}} parts of the page
   * @param {() => import('../engine/engine.js').Engine} engine
   */
  constructor(root, parts, engine) {
    this.#root = root;
    this.#select = /** @type {HTMLSelectElement} */ (root.querySelector('select'));
    this.#parts = parts;
    this.#engine = engine;
    this.#keep(parts.stored.id === null ? session.getItem(KEPT) : null);
    this.#select.addEventListener('change', () => this.#choose(this.#select.value));
  }

  /** The choice as a message sends it to ConversationCalls.respond. */
  get unstored() {
    return this.#parts.stored.id === null ? { choice: this.#unstored } : {};
  }

  /** The memory, the agents or the conversation on the page changed. */
  async refresh() {
    const { id, openings } = this.#parts.stored, look = ++this.#looks;
    if (openings !== this.#opening) this.#keep(null);
    this.#opening = openings;
    const choice = await this.#engine().memory.agentChoice({ id }).catch(() => null);
    if (!choice || look !== this.#looks) return; // the memory is opening or locked, or the chat is gone
    const unstored = this.#unstored;
    if (id !== null) this.#keep(null);
    if (id !== null && unstored !== null && unstored !== choice.chosen) await this.#store(id, unstored);
    else this.#show(choice);
  }

  /** @param {Awaited<ReturnType<import('../memory/client.js').Memory['agentChoice']>>} choice */
  #show({ agent, isLost, agents, routing }) {
    this.#root.hidden = ['off', 'failed'].includes(routing);
    this.#select.disabled = routing !== 'ready';
    if (this.#select.disabled) return;
    const isThere = agents.some(({ id }) => id === this.#unstored) || this.#unstored === AUTOMATIC;
    if (this.#unstored !== null && !isThere) {
      isLost = true;
      this.#keep(null);
    }
    this.#offer(agents);
    this.#select.value = this.#unstored ?? agent;
    this.#parts.notices.say('agent', isLost ? t(agent === AUTOMATIC ? 'choice.lost' : 'choice.lostPlain') : null);
  }

  /** An open list is left alone, unless the agents have changed. @param {{id: string, title: string}[]} agents */
  #offer(agents) {
    const offered = JSON.stringify(agents);
    if (offered === this.#offered) return;
    if (!this.#offered) this.#select.replaceChildren(); // what index.html has
    this.#offered = offered;
    const others = agents.filter(({ id }) => id !== PLAIN);
    render(html`<option value=${AUTOMATIC}>${t('choice.automatic')}</option><option value=${PLAIN}>${t('choice.nobody')}</option>
      <optgroup label=${t('choice.agents')}>${others.map(({ id, title }) => html`<option value=${id}>${title}</option>`)}</optgroup>`, this.#select);
  }

  async #choose(agent) {
    const { id } = this.#parts.stored;
    this.#looks += 1; // a request under way does not know this choice
    this.#parts.notices.say('agent', null);
    if (id === null) this.#keep(agent);
    else await this.#store(id, agent);
  }

  async #store(id, agent) {
    const { notices } = this.#parts;
    try {
      await this.#engine().memory.chooseAgent({ id, agent });
      notices.say('choice', null);
    } catch (error) {
      notices.say('choice', describe(fromError(error)).message);
    }
    await this.refresh();
  }

  #keep(agent) {
    this.#unstored = agent;
    if (agent === null) session.removeItem(KEPT);
    else session.setItem(KEPT, agent);
  }
}
