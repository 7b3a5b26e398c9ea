/** The agents: the shipped ones and the user's own, to edit, add, remove and restore. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { repeat } from '../../vendor/lit-html/directives/repeat.js';
import { t } from '../../i18n/i18n.js';
import { button, ProblemLine } from '../../common/dom.js';
import { loadStyles } from '../../common/page_files.js';
import { visible } from '../../common/cut.js';
import { PLAIN } from '../../memory/client.js';
import { AgentForm } from './agent_form.js';
import { askingButton } from '../../common/confirmation.js';
import { facts } from '../record_row.js';

export class AgentsPanel {
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #run = 0; // number of the latest load
  #agents = /** @type {any[]|null} */ (null);
  #form = /** @type {AgentForm|null} */ (null);
  #root;
  #outcome = '';
  #problem = new ProblemLine();
  #onUnload = (event) => {
    if (this.#form?.isChanged && this.#form.element.isConnected) event.preventDefault(); // the browser asks
  };

  /** @param {HTMLElement} root @param {import('../../memory/client.js').Memory} memory */
  constructor(root, memory) {
    this.#root = root;
    this.#memory = memory;
    this.#draw();
  }

  /** An open form stays, with its input. */
  async show() {
    await loadStyles('panels/agents/agents.css');
    await this.refresh();
  }

  hide() {
    this.#run += 1;
  }

  async refresh() {
    const run = (this.#run += 1);
    try {
      const agents = await this.#memory.agents();
      if (run !== this.#run) return;
      this.#problem.say(null);
      this.#agents = agents;
      this.#draw();
    } catch (error) {
      if (run === this.#run) this.#problem.say(error);
    }
  }

  #draw() {
    render(html`
      <p class="panel-lead">${t('agents.about')}</p>
      <p class="outcome" role="status">${this.#outcome}</p>
      ${this.#problem.element}
      <div class="agents" ?hidden=${this.#form !== null}>${this.#agents ? this.#lists(this.#agents) : nothing}</div>
      ${this.#form?.element ?? nothing}`, this.#root);
  }

  /** @param {any[]} agents */
  #lists(agents) {
    const removed = agents.filter(({ hidden }) => hidden);
    return html`
      ${button(t('agents.add'), 'primary agents-add', () => this.#open(null))}
      <ul class="record-list" aria-label=${t('agents.list')}>
        ${repeat(agents.filter(({ hidden }) => !hidden), ({ id }) => id, (agent) => this.#row(agent))}
      </ul>
      ${removed.length ? html`
        <h3>${t('agents.removedHead')}</h3>
        <ul class="record-list" aria-label=${t('agents.removedList')}>${repeat(removed, ({ id }) => id, (agent) => this.#removedRow(agent))}</ul>` : nothing}`;
  }

  #row(agent) {
    const { id, title, shipped, edited, examples = [] } = agent;
    const own = examples.length ? t('agents.ownExamples', { count: examples.length }) : null;
    const unknown = !shipped && !examples.length ? t('agents.noExamples') : null;
    const undo = edited ? askingButton({
      label: t('agents.undoChanges'), question: t('agents.undoAsk', { title }), yes: t('agents.undo'),
      run: () => this.#act(() => this.#memory.resetAgent({ id }), t('agents.undone', { title }), id),
    }) : nothing;
    return row(agent, facts(kind(agent), own, unknown), [
      named(t('agents.edit'), title, () => this.#open(agent)), undo, id === PLAIN ? nothing : this.#removal(agent),
    ]);
  }

  /** A shipped agent can be restored, so no question is needed. */
  #removal({ id, title, shipped, examples = [] }) {
    const remove = (outcome) => this.#act(() => this.#memory.removeAgent({ id }), outcome, id);
    if (shipped) return named(t('agents.remove'), title, () => remove(t('agents.removed', { title })));
    return askingButton({
      label: t('agents.delete'), yes: t('agents.delete'), run: () => remove(t('agents.deleted', { title })),
      question: examples.length ? t('agents.askWith', { title, count: examples.length }) : t('agents.ask', { title }),
    });
  }

  #removedRow(agent) {
    const { id, title } = agent;
    const restore = () => this.#act(() => this.#memory.restoreAgent({ id }), t('agents.restored', { title }), id);
    return row(agent, nothing, named(t('agents.restore'), title, restore));
  }

  async #act(act, outcome, id) {
    this.#say('');
    this.#problem.say(null);
    try {
      await act();
    } catch (error) {
      return this.#problem.say(error);
    }
    await this.refresh();
    this.#say(outcome);
    this.#focus(id);
  }

  #say(outcome) {
    this.#outcome = outcome;
    this.#draw();
  }

  #open(agent) {
    this.#form = new AgentForm(agent, {
      save: (fields) => this.#save(agent, fields),
      close: (id) => this.#close(id),
      taken: (this.#agents ?? []).map(({ id }) => id),
    });
    this.#say('');
    this.#form.focus();
    addEventListener('beforeunload', this.#onUnload);
  }

  async #save(agent, fields) {
    if (!agent) await this.#memory.addAgent({ fields });
    else if (Object.keys(fields).length) await this.#memory.editAgent({ id: agent.id, fields });
    await this.refresh();
    this.#say(agent ? t('agents.saved', { title: fields.title ?? agent.title }) : t('agents.added', { title: fields.title }));
  }

  #close(id) {
    removeEventListener('beforeunload', this.#onUnload);
    this.#form = null;
    this.#draw();
    this.#focus(id);
  }

  /** Focus the agent's first button, at its new place in the list; if there is none, the button that adds an agent. */
  #focus(id) {
    const rows = /** @type {HTMLElement[]} */ ([...this.#root.querySelectorAll('[data-agent]')]);
    const row = rows.find(({ dataset }) => dataset.agent === id);
    (row ?? this.#root.querySelector('.agents'))?.querySelector('button')?.focus();
  }
}

function row({ id, title, definition }, about, actions) {
  return html`
    <li class="record" data-agent=${id}>
      <div class="record-body">
        <p class="record-title">${visible(title)}</p>
        <p class="agent-definition">${definition}</p>
        ${about}
        <div class="record-actions">${actions}</div>
      </div>
    </li>`;
}

function kind({ shipped, edited }) {
  if (!shipped) return t('agents.yours');
  return edited ? t('agents.edited') : null;
}

/** "Edit" for the eye, "Edit Coder" for a screen reader. */
function named(action, title, run) {
  return html`<button type="button" class="quiet" aria-label=${t('agents.named', { action, title })} @click=${run}>${action}</button>`;
}
