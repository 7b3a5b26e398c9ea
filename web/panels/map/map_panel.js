/** The map of the patterns: every request that routing knows as a point, and a legend that counts them. */
import { t } from '../../i18n/i18n.js';
import { button, element, ProblemLine } from '../../common/dom.js';
import { formatNumber } from '../../common/format.js';
import { loadScript, loadStyles } from '../../common/page_files.js';
import { onThemeChange } from '../../shell/theme.js';
import { MapChart } from './map_chart.js';

export class MapPanel {
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #run = 0; // number of the latest load
  #map = /** @type {any[]|null} */ (null); // [{id, title, index, points: [{x, y, source, text}]}]: agents that have any
  #chart = /** @type {MapChart|null} */ (null);
  #hiddenAgents = new Set();
  #hiddenSources = new Set();
  #unwatchTheme = () => {};
  #onTheme = () => this.#draw();
  #status = element('p', 'panel-lead');
  #problem = new ProblemLine();
  #again;
  #figure = element('div', 'map-figure');
  #box = element('div', 'map-box');
  #whole;
  #legend = element('div', 'map-legend');

  /** @param {HTMLElement} root @param {import('../../memory/client.js').Memory} memory */
  constructor(root, memory) {
    this.#memory = memory;
    this.#again = button(t('map.again'), 'quiet', () => this.refresh());
    this.#again.hidden = true;
    this.#status.setAttribute('role', 'status');
    this.#box.tabIndex = 0;
    this.#box.setAttribute('role', 'group');
    this.#box.setAttribute('aria-label', t('map.box'));
    const plot = element('div', 'map-plot');
    plot.append(this.#box, this.#zoomButtons());
    this.#figure.append(plot, this.#legend);
    this.#figure.hidden = true;
    root.append(element('p', 'panel-lead', t('map.about')), this.#status, this.#problem.element, this.#again, this.#figure);
  }

  async show() {
    this.#unwatchTheme = onThemeChange(this.#onTheme);
    await this.refresh();
  }

  hide() {
    this.#run += 1;
    this.#unwatchTheme();
    this.#chart?.destroy();
    this.#chart = null;
  }

  /** Load the points again. */
  async refresh() {
    const run = (this.#run += 1);
    if (!this.#map) this.#status.textContent = t('map.drawing');
    try {
      const [map, { agents }] = await Promise.all([
        this.#memory.map(), this.#memory.info(), loadScript('vendor/chart.umd.min.js'), loadStyles('panels/map/map.css'),
      ]);
      if (run !== this.#run) return;
      this.#map = byAgent(map, agents);
      this.#problem.say(null);
      this.#again.hidden = true;
      this.#draw();
    } catch (error) {
      if (run !== this.#run) return;
      this.#problem.say(error);
      this.#again.hidden = false;
      if (!this.#map) this.#status.textContent = '';
    }
  }

  #draw() {
    const map = this.#map ?? [];
    const { requests, own } = count(map);
    this.#figure.hidden = requests === 0;
    if (requests === 0) return void (this.#status.textContent = `${t('map.empty')} ${t('map.nothingOwn')}`);
    this.#status.textContent = own ? '' : t('map.nothingOwn');
    this.#chart ??= new MapChart(Chart, this.#box, (zoomed) => (this.#whole.disabled = !zoomed));
    const summary = t('map.ofAgents', { count: map.length, requests: `${formatNumber(requests)} ${t('map.requests', { count: requests })}` });
    const agents = map.map((agent) => ({ ...agent, shown: !this.#hiddenAgents.has(agent.id) }));
    this.#chart.show(agents, this.#hiddenSources, summary);
    this.#drawLegend(map, this.#chart, { requests, own });
  }

  #drawLegend(map, chart, { requests, own }) {
    const focused = /** @type {HTMLElement|null} */ (document.activeElement)?.dataset.entry;
    const sources = element('ul');
    sources.append(this.#entry(this.#hiddenSources, 'shipped', t('map.shipped'), requests - own, mark('shipped')));
    if (own) sources.append(this.#entry(this.#hiddenSources, 'own', t('map.yours'), own, mark('own')));
    const agents = element('ul');
    for (const { id, title, index, points } of map) {
      agents.append(this.#entry(this.#hiddenAgents, id, title, points.length, chart.symbol(index)));
    }
    const all = this.#hiddenAgents.size ? t('map.showAll') : t('map.hideAll');
    const toggle = button(all, 'link', () => {
      this.#hiddenAgents = new Set(this.#hiddenAgents.size ? [] : map.map(({ id }) => id));
      this.#draw();
    });
    toggle.dataset.entry = 'all';
    this.#legend.replaceChildren(sources, agents, toggle);
    const entry = focused && this.#legend.querySelector(`[data-entry="${CSS.escape(focused)}"]`);
    if (entry) /** @type {HTMLElement} */ (entry).focus();
  }

  /** A line of the legend, which toggles its agent. */
  #entry(hidden, name, title, number, symbol) {
    const entry = button('', 'map-entry', () => {
      if (!hidden.delete(name)) hidden.add(name);
      this.#draw();
    });
    entry.dataset.entry = name;
    entry.setAttribute('aria-pressed', String(!hidden.has(name)));
    symbol.setAttribute('aria-hidden', 'true');
    const counted = element('span', 'map-count', formatNumber(number));
    counted.append(element('span', 'visually-hidden', ` ${t('map.requests', { count: number })}`));
    entry.append(symbol, element('span', 'map-name', title), counted);
    const line = element('li');
    line.append(entry);
    return line;
  }

  #zoomButtons() {
    const group = element('div', 'map-zoom');
    const make = (label, text, run) => {
      const made = button(text, 'quiet', run);
      made.setAttribute('aria-label', label);
      made.title = label;
      return made;
    };
    this.#whole = make(t('map.wholeTitle'), t('map.whole'), () => this.#chart?.showAll());
    this.#whole.disabled = true;
    group.append(
      make(t('map.zoomIn'), '+', () => this.#chart?.zoomIn()), make(t('map.zoomOut'), '−', () => this.#chart?.zoomOut()), this.#whole,
    );
    return group;
  }
}

/**
 * The agents that have any points, in the order in which the memory lists all of them: a colour stays with its agent.
 * @param {{agents: string[], points: Array}} map as Memory.map() gives it @param {{id: string, title: string}[]} all
 */
function byAgent({ agents, points }, all) {
  const order = [...new Set([...all.map(({ id }) => id), ...agents])];
  const titles = new Map(all.map(({ id, title }) => [id, title]));
  const made = new Map(order.map((id, index) => (
    [id, { id, title: titles.get(id) ?? id, index, points: /** @type {object[]} */ ([]) }]
  )));
  for (const [x, y, agent, source, text] of points) made.get(agents[agent])?.points.push({ x, y, source, text });
  return [...made.values()].filter((agent) => agent.points.length);
}

function count(agents) {
  const points = agents.flatMap((agent) => agent.points);
  return { requests: points.length, own: points.filter(({ source }) => source !== 'example').length };
}

function mark(kind) {
  return element('span', `map-mark map-mark-${kind}`);
}
