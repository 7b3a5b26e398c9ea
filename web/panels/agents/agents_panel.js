/** The agents: the shipped ones and the user's own, to edit, add, remove and restore. */
import { t } from '../../i18n/i18n.js';
import { button, element, ProblemLine } from '../../common/dom.js';
import { loadStyles } from '../../common/page_files.js';
import { visible } from '../../common/cut.js';
import { PLAIN } from '../../memory/client.js';
import { AgentForm } from './agent_form.js';
import { askingButton } from '../../common/confirmation.js';
import { actions, facts } from '../record_row.js';

export class AgentsPanel {
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #run = 0; // number of the latest load
  #agents = '[]'; // the listed agents, as JSON
  #form = /** @type {AgentForm|null} */ (null);
  #root;
  #list = element('div', 'agents');
  #outcome = element('p', 'outcome');
  #problem = new ProblemLine();
  #onUnload = (event) => {
    if (this.#form?.isChanged && this.#form.element.isConnected) event.preventDefault(); // the browser asks
  };

  /** @param {HTMLElement} root @param {import('../../memory/client.js').Memory} memory */
  constructor(root, memory) {
    this.#root = root;
    this.#memory = memory;
    this.#outcome.setAttribute('role', 'status');
    root.append(element('p', 'panel-lead', t('agents.about')), this.#outcome, this.#problem.element, this.#list);
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
      const now = JSON.stringify(agents);
      if (now === this.#agents && this.#list.hasChildNodes()) return; // the focus is not lost
      this.#agents = now;
      this.#draw();
    } catch (error) {
      if (run === this.#run) this.#problem.say(error);
    }
  }

  #draw() {
    const agents = JSON.parse(this.#agents);
    const focused = this.#list.contains(document.activeElement) ? /** @type {HTMLElement|null|undefined} */ (document.activeElement?.closest('[data-agent]'))?.dataset.agent : null;
    const add = button(t('agents.add'), 'primary agents-add', () => this.#open(null));
    const shown = element('ul', 'record-list');
    shown.setAttribute('aria-label', t('agents.list'));
    shown.append(...agents.filter(({ hidden }) => !hidden).map((agent) => this.#row(agent)));
    this.#list.replaceChildren(add, shown);
    const removed = agents.filter(({ hidden }) => hidden);
    if (removed.length) {
      const list = element('ul', 'record-list');
      list.setAttribute('aria-label', t('agents.removedList'));
      list.append(...removed.map((agent) => this.#removedRow(agent)));
      this.#list.append(element('h3', '', t('agents.removedHead')), list);
    }
    if (focused) this.#focus(focused);
  }

  #row(agent) {
    const { id, title, definition, shipped, edited, examples = [] } = agent;
    const head = element('p', 'record-title', visible(title));
    const own = examples.length ? t('agents.ownExamples', { count: examples.length }) : null;
    const unknown = !shipped && !examples.length ? t('agents.noExamples') : null;
    const buttons = [named(button(t('agents.edit'), 'quiet', () => this.#open(agent)), title)];
    if (edited) {
      const question = t('agents.undoAsk', { title });
      buttons.push(askingButton(t('agents.undoChanges'), () => question, t('agents.undo'), () => {
        return this.#act(() => this.#memory.resetAgent({ id }), t('agents.undone', { title }), id);
      }));
    }
    if (shipped && id !== PLAIN) { // it can be restored, so no question is needed
      const remove = () => this.#act(() => this.#memory.removeAgent({ id }), t('agents.removed', { title }), id);
      buttons.push(named(button(t('agents.remove'), 'quiet', remove), title));
    } else if (!shipped) {
      const question = examples.length ? t('agents.askWith', { title, count: examples.length }) : t('agents.ask', { title });
      buttons.push(askingButton(t('agents.delete'), () => question, t('agents.delete'), () => {
        return this.#act(() => this.#memory.removeAgent({ id }), t('agents.deleted', { title }), id);
      }));
    }
    return row(id, head, element('p', 'agent-definition', definition), facts(kind(agent), own, unknown), actions(...buttons));
  }

  #removedRow({ id, title, definition }) {
    const restore = button(t('agents.restore'), 'quiet', () => {
      return this.#act(() => this.#memory.restoreAgent({ id }), t('agents.restored', { title }), id);
    });
    return row(id, element('p', 'record-title', visible(title)), element('p', 'agent-definition', definition), actions(named(restore, title)));
  }

  async #act(act, outcome, id) {
    this.#outcome.textContent = '';
    this.#problem.say(null);
    try {
      await act();
    } catch (error) {
      return this.#problem.say(error);
    }
    await this.refresh();
    this.#outcome.textContent = outcome;
    this.#focus(id);
  }

  #open(agent) {
    this.#outcome.textContent = '';
    const form = new AgentForm(agent, {
      save: (fields) => this.#save(agent, fields),
      close: (id) => this.#close(id),
      taken: JSON.parse(this.#agents).map(({ id }) => id),
    });
    this.#form = form;
    this.#list.hidden = true;
    this.#root.append(form.element);
    form.focus();
    addEventListener('beforeunload', this.#onUnload);
  }

  async #save(agent, fields) {
    if (!agent) await this.#memory.addAgent({ fields });
    else if (Object.keys(fields).length) await this.#memory.editAgent({ id: agent.id, fields });
    await this.refresh();
    this.#outcome.textContent = agent ? t('agents.saved', { title: fields.title ?? agent.title }) : t('agents.added', { title: fields.title });
  }

  #close(id) {
    removeEventListener('beforeunload', this.#onUnload);
    this.#form?.element.remove();
    this.#form = null;
    this.#list.hidden = false;
    this.#focus(id);
  }

  /** Focus the agent's first button, at its new place in the list; if there is none, the button that adds an agent. */
  #focus(id) {
    const rows = /** @type {HTMLElement[]} */ ([...this.#list.querySelectorAll('[data-agent]')]);
    const row = rows.find(({ dataset }) => dataset.agent === id);
    (row ?? this.#list).querySelector('button')?.focus();
  }
}

function row(id, ...content) {
  const made = element('li', 'record');
  made.dataset.agent = id;
  const body = element('div', 'record-body');
  body.append(...content);
  made.append(body);
  return made;
}

function kind({ shipped, edited }) {
  if (!shipped) return t('agents.yours');
  return edited ? t('agents.edited') : null;
}

/** "Edit" for the eye, "Edit Coder" for a screen reader. */
function named(made, title) {
  made.setAttribute('aria-label', t('agents.named', { action: made.textContent ?? '', title }));
  return made;
}
