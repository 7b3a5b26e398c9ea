/** The form of an agent: its settings, and a question before unsaved input is discarded. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { element, part } from '../../common/dom.js';
import { PLAIN } from '../../memory/client.js';
import { ask } from '../../common/confirmation.js';
import { MAX_TOKENS, SAMPLING, changedFields, freeId, readExamples, readNumber } from './agent_fields.js';
import { editForm, labelled, typedIn } from '../../common/edit_form.js';

const discard = () => ask({ title: t('agents.discardTitle'), paragraphs: [t('agents.discardAbout')], yes: t('agents.discard') });

export class AgentForm {
  element = element('section', 'agent-form');
  #agent;
  #form;
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
    this.#form = editForm({
      fields: this.#fields(),
      save: async (typed) => {
        await save(this.#read(typed));
        this.#saved = true;
      },
      close: () => this.#leave(),
      label: agent ? t('forms.save') : t('agents.addIt'),
    });
    this.element.setAttribute('aria-labelledby', 'agent-form-title');
    const title = agent ? t('agents.editTitle', { title: agent.title }) : t('agents.add');
    render(html`<h3 id="agent-form-title">${title}</h3>${this.#form}`, this.element);
    this.#before = this.#typed();
  }

  get isChanged() {
    return !this.#saved && this.#typed() !== this.#before;
  }

  focus() {
    part(this.#form, '[name=title]', HTMLInputElement).focus();
  }

  async #leave() {
    if (!this.isChanged || await discard()) this.#close(this.#id);
  }

  #fields() {
    const agent = this.#agent ?? {};
    const examplesHint = `${agent.shipped ? `${t('agents.examplesBeside')} ` : ''}${t('agents.examplesHint')}`;
    const isTuned = Object.keys(agent.sampling ?? {}).length > 0;
    return html`
      ${labelled(t('agents.name'), html`<input type="text" name="title" autocomplete="off" .value=${agent.title ?? ''}>`)}
      ${area('definition', agent.definition, t('agents.description'), t('agents.descriptionHint'))}
      ${area('system_prompt', agent.system_prompt, t('agents.prompt'), t('agents.promptHint'), t('agents.promptExample'))}
      ${agent.id === PLAIN ? nothing : area('examples', (agent.examples ?? []).join('\n'), t('agents.examples'), examplesHint)}
      <details class="agent-sampling" ?open=${isTuned}>
        <summary>${t('agents.sampling')}</summary>
        <div class="agent-grid">
          ${number('max_tokens', agent.max_tokens, MAX_TOKENS, t('agents.longest'), t('agents.longestHint'))}
          ${SAMPLING.map(({ name, standard }) => number(name, agent.sampling?.[name], standard, t(`sampling.${name}`), t(`sampling.${name}_hint`)))}
        </div>
      </details>`;
  }

  /** All fields of a new agent, else only the changed ones. @param {Record<string, string>} typed */
  #read(typed) {
    const number = ({ name, standard }) => [name, readNumber(typed[name], name, standard)];
    const all = {
      title: typed.title.trim(),
      definition: typed.definition.trim(),
      system_prompt: typed.system_prompt.trim(),
      max_tokens: readNumber(typed.max_tokens, 'max_tokens', MAX_TOKENS),
      sampling: Object.fromEntries(SAMPLING.map(number)),
      examples: readExamples(typed.examples ?? ''),
    };
    if (this.#agent) return changedFields(this.#agent, all);
    const { sampling } = changedFields({}, all); // default values are left out
    this.#id = freeId(all.title, this.#taken);
    return { ...all, id: this.#id, sampling: sampling ?? {} };
  }

  #typed() {
    return JSON.stringify(typedIn(this.#form));
  }
}

/** A text of several lines. */
function area(name, value, label, hint, placeholder = '') {
  return hinted(name, label, hint, html`<textarea name=${name} class=${name === 'examples' ? 'agent-examples' : ''}
    aria-describedby=${hintOf(name)} placeholder=${placeholder} .value=${value ?? ''}></textarea>`);
}

/** A number, whose usual value is the placeholder. */
function number(name, value, standard, label, hint) {
  return hinted(name, label, hint, html`<input type="text" name=${name} inputmode="decimal" autocomplete="off"
    aria-describedby=${hintOf(name)} placeholder=${standard} .value=${String(value ?? '')}>`);
}

/** A control with its name above it and its explanation below. */
function hinted(name, label, hint, control) {
  return html`<div class="agent-field">${labelled(label, control)}<p class="agent-hint" id=${hintOf(name)}>${hint}</p></div>`;
}

function hintOf(name) {
  return `agent-hint-${name.replaceAll('_', '-')}`;
}
