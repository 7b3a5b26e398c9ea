/** The adapters that answers use: what each was learned from, its strength, and its test results. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { live } from '../../vendor/lit-html/directives/live.js';
import { repeat } from '../../vendor/lit-html/directives/repeat.js';
import { t } from '../../i18n/i18n.js';
import { element, ProblemLine } from '../../common/dom.js';
import { formatBytes, formatDate, formatRounded, formatShare } from '../../common/format.js';
import { userError } from '../../common/user_error.js';
import { PlotFigure } from './plot_figure.js';
import { strengthPlot } from './progress_plots.js';

/** @typedef {import('../../protocol_calls.js').AdapterView} AdapterView */

export class AdaptersSection {
  element = element('section', 'loop');
  /** @type {import('../../learning/client.js').Learning} */ #learning;
  #figures = /** @type {Map<string, PlotFigure>} */ (new Map()); // by the adapter's id
  #adapters = /** @type {AdapterView[]} */ ([]);
  #problem = new ProblemLine();

  /** @param {import('../../learning/client.js').Learning} learning */
  constructor(learning) {
    this.#learning = learning;
    this.element.setAttribute('aria-labelledby', 'adapters-title');
    this.#draw();
  }

  /** @param {AdapterView[]} adapters @param {any} Chart the library */
  show(adapters, Chart) {
    this.#adapters = adapters;
    const plots = adapters.flatMap((one) => {
      const plot = strengthPlot(one.norms);
      return plot ? [{ key: keyOf(one), plot }] : [];
    });
    for (const [key, figure] of this.#figures) {
      if (plots.some((one) => one.key === key)) continue;
      figure.destroy();
      this.#figures.delete(key);
    }
    for (const { key } of plots) if (!this.#figures.has(key)) this.#figures.set(key, new PlotFigure(Chart));
    this.#draw();
    for (const { key, plot } of plots) this.#figures.get(key)?.show(plot);
  }

  /** Draw the plots again: the colours have changed. */
  draw() {
    for (const figure of this.#figures.values()) figure.draw();
  }

  hide() {
    for (const figure of this.#figures.values()) figure.destroy();
    this.#figures.clear();
    this.#adapters = [];
    this.#draw();
  }

  #draw() {
    const adapters = this.#adapters;
    render(html`
      <h3 id="adapters-title">${t('adapters.title')}</h3>
      <p class="panel-lead" ?hidden=${!adapters.length}>${t('adapters.about')}</p>
      <p class="panel-lead" ?hidden=${adapters.some(({ kind }) => kind === 'learned')}>${t('adapters.empty')}</p>
      ${this.#problem.element}
      <div class="adapter-list">${repeat(adapters, keyOf, (adapter) => this.#card(adapter))}</div>`, this.element);
  }

  /** @param {AdapterView} adapter */
  #card(adapter) {
    const { kind, id, older, on, created, bytes, rank, norm, facts, count, tests } = adapter;
    const title = t(`adapters.kind_${kind}`, { name: id });
    const known = [
      created === null ? null : t('adapters.made', { when: formatDate(created) }), bytes === null ? null : formatBytes(bytes),
      rank === null ? null : t('adapters.rank', { rank }), norm === null ? null : t('adapters.strength', { norm: formatRounded(norm) }),
    ].filter((one) => one !== null);
    return html`
      <article class="adapter">
        <div class="loop-head"><h4>${title}</h4>${kind === 'learned' && !older ? this.#switch(adapter, title)
          : html`<span class="adapter-state">${t(older ? 'adapters.older' : on ? 'adapters.on' : 'adapters.off')}</span>`}</div>
        ${known.length ? html`<p class="adapter-facts">${known.join(' · ')}</p>` : nothing}
        ${kind === 'reader' && norm === null ? html`<p class="panel-lead">${t('adapters.notRead')}</p>` : nothing}
        ${facts.length ? factsOf(facts, count) : nothing}
        ${tests.length ? testsOf(tests) : nothing}
        ${this.#figures.get(keyOf(adapter))?.element ?? nothing}
      </article>`;
  }

  /** @param {AdapterView} adapter @param {string} name */
  #switch({ id, on }, name) {
    return html`
      <label class="switch"><input type="checkbox" role="switch" aria-label=${`${t('adapters.use')}: ${name}`} .checked=${live(on)}
        @change=${(event) => this.#turn(id, event.target.checked)}><span>${t('adapters.use')}</span></label>`;
  }

  /** @param {string} id @param {boolean} on */
  async #turn(id, on) {
    this.#problem.say(null);
    try {
      await this.#learning.switchAdapter({ id, on });
      this.#adapters = await this.#learning.adapters();
      if (on && !this.#adapters.some((one) => one.id === id && one.on)) throw userError('AdapterError', t('adapters.notUsed'));
    } catch (error) {
      this.#problem.say(error);
    }
    this.#draw();
  }
}

/** @param {AdapterView} adapter */
function keyOf({ kind, id }) {
  return `${kind}/${id}`;
}

/** @param {string[]} facts @param {number} count */
function factsOf(facts, count) {
  return html`
    <details class="plot-numbers">
      <summary>${t('adapters.facts', { count })}</summary>
      <ul class="adapter-learned">${facts.map((fact) => html`<li dir="auto">${fact}</li>`)}</ul>
    </details>`;
}

/** @param {AdapterView['tests']} tests */
function testsOf(tests) {
  const rows = tests.map(([name, before, after]) => {
    const say = name === 'recall' ? formatShare : formatRounded;
    return html`<tr><th scope="row">${t(`adapters.test_${name}`)}</th><td>${before === null ? '–' : say(before)}</td><td>${say(after)}</td></tr>`;
  });
  return html`
    <table class="plot-table">
      <caption class="visually-hidden">${t('adapters.testCaption')}</caption>
      <thead><tr>${['test', 'test_before', 'test_after'].map((name) => html`<th scope="col">${t(`adapters.${name}`)}</th>`)}</tr></thead>
      <tbody>${rows}</tbody>
    </table>`;
}
