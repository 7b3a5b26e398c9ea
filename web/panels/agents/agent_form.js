/** The form of an agent: its settings, and a question before unsaved input is discarded. */
import { t } from '../../i18n/i18n.js';
import { element } from '../../common/dom.js';
import { PLAIN } from '../../memory/client.js';
import { ask } from '../../common/confirmation.js';
import { MAX_TOKENS, NEW_AGENT, SAMPLING, changedFields, freeId, readExamples, readNumber } from './agent_fields.js';
import { editForm, labelled } from '../../common/edit_form.js';

const discard = () => ask({ title: t('agents.discardTitle'), paragraphs: [t('agents.discardAbout')], yes: t('agents.discard') });

export class AgentForm {
  element = element('section', 'agent-form');
  #agent;
  #controls;
  #close;
  #before;
  #saved = false;
  #id;
  #taken;

  /**
   * @param {any} agent as Memory.agents() gives it; null: a new one
   * @param {{save: (fields: object) => Promise<void>, close: (id: string) => void, taken: string[]}} given save: the id and all fields
   *   of a new agent, else those that changed; close: it was saved or given up; taken: ids that a new agent cannot have
   */
  constructor(agent, { save, close, taken }) {
    this.#agent = agent;
    this.#id = agent?.id ?? '';
    this.#taken = taken;
    this.#close = close;
    const head = element('h3', '', agent ? t('agents.editTitle', { title: agent.title }) : t('agents.add'));
    head.id = 'agent-form-title';
    this.element.setAttribute('aria-labelledby', head.id);
    this.#controls = this.#makeControls();
    const form = editForm({
      fields: this.#layOut(),
      save: async () => {
        await save(this.#read());
        this.#saved = true;
      },
      close: () => this.#leave(),
      label: agent ? t('forms.save') : t('agents.addIt'),
      controls: this.#controls,
    });
    this.element.append(head, form);
    this.#before = this.#typed();
  }

  get isChanged() {
    return !this.#saved && this.#typed() !== this.#before;
  }

  focus() {
    this.#controls.title.focus();
  }

  async #leave() {
    if (!this.isChanged || await discard()) this.#close(this.#id);
  }

  #makeControls() {
    const agent = this.#agent ?? NEW_AGENT;
    const controls = {
      title: line(agent.title),
      definition: area(agent.definition),
      system_prompt: Object.assign(area(agent.system_prompt), { placeholder: t('agents.promptExample') }),
      examples: area((agent.examples ?? []).join('\n'), 'agent-examples'),
      max_tokens: line(agent.max_tokens, String(MAX_TOKENS)),
    };
    for (const { name, standard } of SAMPLING) controls[name] = line(agent.sampling?.[name], String(standard));
    for (const name of ['max_tokens', ...SAMPLING.map((field) => field.name)]) controls[name].inputMode = 'decimal';
    return controls;
  }

  #layOut() {
    const { title, definition, system_prompt: prompt, examples, max_tokens: maxTokens } = this.#controls;
    const sampling = element('details', 'agent-sampling');
    sampling.append(element('summary', '', t('agents.sampling')));
    sampling.open = Object.keys(this.#agent?.sampling ?? {}).some((name) => name !== 'frequency_penalty');
    const grid = element('div', 'agent-grid');
    grid.append(
      hinted(t('agents.longest'), maxTokens, t('agents.longestHint')),
      ...SAMPLING.map(({ name }) => hinted(t(`sampling.${name}`), this.#controls[name], t(`sampling.${name}_hint`))),
    );
    sampling.append(grid);
    /** @type {HTMLElement[]} */
    const fields = [
      labelled(t('agents.name'), title),
      hinted(t('agents.description'), definition, t('agents.descriptionHint')),
      hinted(t('agents.prompt'), prompt, t('agents.promptHint')),
    ];
    if (this.#agent?.id !== PLAIN) {
      const beside = this.#agent?.shipped ? `${t('agents.examplesBeside')} ` : '';
      const hint = `${beside}${t('agents.examplesHint')}`;
      fields.push(hinted(t('agents.examples'), examples, hint));
    }
    return [...fields, sampling];
  }

  /** All fields of a new agent, else only the changed ones. */
  #read() {
    const { title, definition, system_prompt: prompt, examples, max_tokens: maxTokens } = this.#controls;
    const number = ({ name, standard }) => [name, readNumber(this.#controls[name].value, name, standard)];
    const all = {
      title: title.value.trim(),
      definition: definition.value.trim(),
      system_prompt: prompt.value.trim(),
      max_tokens: readNumber(maxTokens.value, 'max_tokens', MAX_TOKENS),
      sampling: Object.fromEntries(SAMPLING.map(number)),
      examples: readExamples(examples.value),
    };
    if (this.#agent) return changedFields(this.#agent, all);
    const { sampling } = changedFields({}, all); // default values are left out
    this.#id = freeId(all.title, this.#taken);
    return { ...all, id: this.#id, sampling: sampling ?? {} };
  }

  #typed() {
    return JSON.stringify(Object.values(this.#controls).map(({ value }) => value));
  }
}

function line(value, placeholder = '') {
  return Object.assign(element('input'), { type: 'text', value: value ?? '', placeholder, autocomplete: 'off' });
}

function area(value, className = '') {
  return Object.assign(element('textarea', className), { value: value ?? '' });
}

/** A control with its name above it and its explanation below. */
function hinted(name, control, hint) {
  const made = element('div', 'agent-field');
  const below = element('p', 'agent-hint', hint);
  below.id = `agent-hint-${name.replace(/\W+/g, '-').toLowerCase()}`;
  control.setAttribute('aria-describedby', below.id);
  made.append(labelled(name, control), below);
  return made;
}
