/** Settings, Answers: instructions for all answers, the sampling, their length (app/generation/answer_settings.py). */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { live } from '../../vendor/lit-html/directives/live.js';
import { t } from '../../i18n/i18n.js';
import { ProblemLine } from '../../common/dom.js';
import { readNumber, SAMPLING } from '../agents/agent_fields.js';
import { ToolServersSection } from './tool_servers.js';

const INSTRUCTIONS = 'answers.instructions';
const SAMPLED = 'answers.sampling';
const LONGEST = 'answers.longest';
const EXACT = 'tools.exact'; // app/chat/exact_answers.py
const CALLS = 'tools.calls'; // app/generation/answer_settings.py
const PYTHON = 'tools.python';
const ROUTING = 'routing.automatic'; // app/routing/agent_choice.py
const LONGEST_INSTRUCTIONS = 4000; // characters, as in app/generation/answer_settings.py
const PRESETS = ['agent', 'precise', 'balanced', 'varied'];
const OWN = 'own'; // the full list
/** Initial values of the full list: temperature 0.7 and the penalty that keeps small models out of loops. */
const FIRST = { temperature: 0.7, frequency_penalty: 0.2 };

export class AnswersPart {
  #root;
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #problem = new ProblemLine();
  #servers = new ToolServersSection();
  #values = /** @type {Record<string, any>} */ ({});
  #saved = '';
  #storing = /** @type {Record<string, any>} */ ({}); // values being saved: an earlier read does not overwrite them

  /** @param {HTMLElement} root @param {import('../../memory/client.js').Memory} memory */
  constructor(root, memory) {
    this.#root = root;
    this.#memory = memory;
  }

  show() {
    this.#saved = '';
    this.#problem.say(null);
    render(nothing, this.#root); // refused input
    return Promise.all([this.refresh(), this.#servers.show()]);
  }

  hide() {}

  async refresh() {
    const policies = await this.#memory.policies();
    this.#values = { ...Object.fromEntries(policies.map(({ name, value }) => [name, value])), ...this.#storing };
    this.#draw();
  }

  get #sampling() {
    return this.#values[SAMPLED] ?? 'agent';
  }

  /** The fields of the full list, if it is chosen. @returns {Record<string, number>|null} */
  get #own() {
    try {
      return PRESETS.includes(this.#sampling) ? null : JSON.parse(this.#sampling);
    } catch {
      return null;
    }
  }

  /** Input in progress stays: a field changes only if the stored value changes. */
  #draw() {
    const own = this.#own;
    render(html`
      <form class="settings-form" @submit=${(event) => event.preventDefault()}>
        <label class="field">
          <span>${t('settings.instructions')}</span>
          <textarea rows="4" maxlength=${LONGEST_INSTRUCTIONS} aria-describedby="instructions-about" .value=${this.#values[INSTRUCTIONS] ?? ''}
            placeholder=${t('settings.instructionsExample')}
            @change=${(event) => this.#save(INSTRUCTIONS, event.target.value.trim())}></textarea>
          <small id="instructions-about">${t('settings.instructionsAbout')}</small>
        </label>
        <fieldset class="choices">
          <legend>${t('settings.sampling')}<small>${t('settings.samplingAbout')}</small></legend>
          ${[...PRESETS, OWN].map((name) => html`
            <label class="choice">
              <input type="radio" name="sampling" value=${name} .checked=${live(name === OWN ? own !== null : name === this.#sampling)}
                @change=${() => this.#save(SAMPLED, name === OWN ? JSON.stringify(FIRST) : name)}>
              <span>${t(`settings.sampling_${name}`)}<small>${t(`settings.sampling_${name}About`)}</small></span>
            </label>`)}
        </fieldset>
        ${own === null ? '' : html`<div class="settings-grid">${SAMPLING.map(({ name, standard }) => html`
          <label class="field">
            <span>${t(`sampling.${name}`)}</span>
            <input inputmode="decimal" .value=${String(own[name] ?? standard)} aria-describedby=${`about-${name}`}
              @change=${(event) => this.#saveField(own, name, event.target.value, standard)}>
            <small id=${`about-${name}`}>${t(`sampling.${name}_hint`)}</small>
          </label>`)}</div>`}
        <label class="field settings-number">
          <span>${t('settings.longest')}</span>
          <input inputmode="numeric" .value=${String(this.#values[LONGEST] ?? '')} placeholder="1024" aria-describedby="longest-about"
            @change=${(event) => this.#saveLongest(event.target.value)}>
          <small id="longest-about">${t('settings.longestAbout')}</small>
        </label>
        <label class="choice">
          <input type="checkbox" name="routing" .checked=${live(this.#values[ROUTING] !== false)}
            @change=${(event) => this.#save(ROUTING, event.target.checked)}>
          <span>${t('choice.switch')}<small>${t('choice.switchAbout')}</small></span>
        </label>
        <label class="choice">
          <input type="checkbox" name="exact" .checked=${live(this.#values[EXACT] !== false)}
            @change=${(event) => this.#save(EXACT, event.target.checked)}>
          <span>${t('tools.switch')}<small>${t('tools.switchAbout')}</small></span>
        </label>
        <label class="choice">
          <input type="checkbox" name="calls" .checked=${live(this.#values[CALLS] === true)}
            @change=${(event) => this.#save(CALLS, event.target.checked)}>
          <span>${t('calls.switch')}<small>${t('calls.switchAbout')}</small></span>
        </label>
        <label class="choice">
          <input type="checkbox" name="python" .checked=${live(this.#values[PYTHON] === true)} ?disabled=${this.#values[CALLS] !== true}
            @change=${(event) => this.#save(PYTHON, event.target.checked)}>
          <span>${t('calls.python')}<small>${t('calls.pythonAbout')}</small></span>
        </label>
        ${this.#problem.element}
        <p class="outcome" role="status">${this.#saved}</p>
      </form>
      ${this.#servers.element}`, this.#root);
  }

  #saveField(own, name, typed, standard) {
    return this.#try(async () => {
      const value = readNumber(typed, name, standard);
      await this.#store(SAMPLED, JSON.stringify({ ...own, [name]: value }));
    });
  }

  #saveLongest(typed) {
    return this.#try(async () => {
      const value = readNumber(typed, LONGEST, 0);
      await this.#store(LONGEST, value ? Math.round(value) : '');
    });
  }

  #save(name, value) {
    return this.#try(() => this.#store(name, value));
  }

  /** An empty value, and the agents' own values, are not stored as a policy. */
  async #store(name, value) {
    this.#storing[name] = value;
    try {
      if (value === '' || (name === SAMPLED && value === 'agent')) await this.#memory.removePolicies({ names: [name] });
      else await this.#memory.editPolicy({ name, value });
    } finally {
      delete this.#storing[name];
    }
  }

  async #try(run) {
    this.#problem.say(null);
    try {
      await run();
      this.#saved = t('settings.saved');
      await this.refresh();
    } catch (error) {
      this.#saved = '';
      this.#problem.say(error);
      this.#draw();
    }
  }
}
