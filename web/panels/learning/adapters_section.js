/** The adapters that answers use: what each was learned from, its strength, and its test results. */
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
  #figures = /** @type {PlotFigure[]} */ ([]);
  #shown = '';
  #states = /** @type {((on: boolean) => void)[]} */ ([]); // show whether each is in use
  #empty = element('p', 'panel-lead', t('adapters.empty'));
  #about = element('p', 'panel-lead', t('adapters.about'));
  #problem = new ProblemLine();
  #list = element('div', 'adapter-list');

  /** @param {import('../../learning/client.js').Learning} learning */
  constructor(learning) {
    this.#learning = learning;
    const title = element('h3', '', t('adapters.title'));
    title.id = 'adapters-title';
    this.element.setAttribute('aria-labelledby', title.id);
    this.element.append(title, this.#about, this.#empty, this.#problem.element, this.#list);
  }

  /** @param {AdapterView[]} adapters @param {any} Chart the library */
  show(adapters, Chart) {
    const now = JSON.stringify(adapters, (name, value) => (name === 'on' ? undefined : value));
    if (now !== this.#shown) {
      this.hide();
      this.#shown = now;
      this.#empty.hidden = adapters.some(({ kind }) => kind === 'learned');
      this.#about.hidden = !adapters.length;
      this.#list.replaceChildren(...adapters.map((one) => this.#card(one, Chart)));
    }
    adapters.forEach(({ on }, at) => this.#states[at](on)); // updated in place: a switch keeps the focus, details stay open
  }

  /** Draw the plots again: the colours have changed. */
  draw() {
    for (const figure of this.#figures) figure.draw();
  }

  hide() {
    for (const figure of this.#figures) figure.destroy();
    this.#figures = [];
    this.#shown = '';
    this.#states = [];
    this.#list.replaceChildren();
  }

  /** @param {AdapterView} adapter @param {any} Chart */
  #card(adapter, Chart) {
    const { kind, id, older, created, bytes, rank, norms, norm, facts, count, tests } = adapter;
    const card = element('article', 'adapter');
    const head = element('div', 'loop-head');
    const title = element('h4', '', t(`adapters.kind_${kind}`, { name: id }));
    head.append(title, kind === 'learned' && !older ? this.#switch(id, title.textContent ?? '') : this.#state(older));
    const known = [
      created === null ? null : t('adapters.made', { when: formatDate(created) }), bytes === null ? null : formatBytes(bytes),
      rank === null ? null : t('adapters.rank', { rank }), norm === null ? null : t('adapters.strength', { norm: formatRounded(norm) }),
    ].filter((one) => one !== null);
    card.append(head);
    if (known.length) card.append(element('p', 'adapter-facts', known.join(' · ')));
    if (kind === 'reader' && norm === null) card.append(element('p', 'panel-lead', t('adapters.notRead')));
    if (kind === 'style') card.append(element('p', 'panel-lead', t('adapters.answers', { count })));
    if (facts.length) card.append(factsOf(facts, count));
    if (tests.length) card.append(testsOf(tests));
    const plot = strengthPlot(norms);
    if (plot) {
      const figure = new PlotFigure(Chart);
      this.#figures.push(figure);
      card.append(figure.element);
      figure.show(plot);
    }
    return card;
  }

  /** @param {boolean} older */
  #state(older) {
    const words = element('span', 'adapter-state');
    this.#states.push((on) => { words.textContent = t(older ? 'adapters.older' : on ? 'adapters.on' : 'adapters.off'); });
    return words;
  }

  /** @param {string} id @param {string} name */
  #switch(id, name) {
    const label = element('label', 'switch');
    const box = Object.assign(element('input'), { type: 'checkbox' });
    let was = false;
    this.#states.push((on) => { box.checked = was = on; });
    box.setAttribute('role', 'switch');
    box.setAttribute('aria-label', `${t('adapters.use')}: ${name}`);
    box.addEventListener('change', async () => {
      this.#problem.say(null);
      try {
        const wanted = box.checked;
        await this.#learning.switchAdapter({ id, on: wanted });
        box.checked = was = (await this.#learning.adapters()).some((one) => one.id === id && one.on);
        if (wanted && !was) throw userError('AdapterError', t('adapters.notUsed'));
      } catch (error) {
        box.checked = was;
        this.#problem.say(error);
      }
    });
    label.append(box, element('span', '', t('adapters.use')));
    return label;
  }
}

/** @param {string[]} facts @param {number} count */
function factsOf(facts, count) {
  const details = element('details', 'plot-numbers');
  const list = element('ul', 'adapter-learned');
  list.append(...facts.map((fact) => Object.assign(element('li', '', fact), { dir: 'auto' })));
  details.append(element('summary', '', t('adapters.facts', { count })), list);
  return details;
}

/** @param {AdapterView['tests']} tests */
function testsOf(tests) {
  const table = element('table', 'plot-table');
  const head = element('tr');
  for (const name of ['test', 'test_before', 'test_after']) {
    const cell = element('th', '', t(`adapters.${name}`));
    cell.scope = 'col';
    head.append(cell);
  }
  const rows = tests.map(([name, before, after]) => {
    const row = element('tr');
    const first = element('th', '', t(`adapters.test_${name}`));
    first.scope = 'row';
    const say = name === 'recall' ? formatShare : formatRounded;
    row.append(first, element('td', '', before === null ? '–' : say(before)), element('td', '', say(after)));
    return row;
  });
  const top = element('thead'), body = element('tbody');
  top.append(head);
  body.append(...rows);
  table.append(element('caption', 'visually-hidden', t('adapters.testCaption')), top, body);
  return table;
}
