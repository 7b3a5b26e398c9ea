/** The map of the patterns: every request that routing knows as a point, and a legend that counts them. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { repeat } from '../../vendor/lit-html/directives/repeat.js';
import { t } from '../../i18n/i18n.js';
import { element, ProblemLine } from '../../common/dom.js';
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
  #root;
  #status = '';
  #problem = new ProblemLine();
  #hasFailed = false;
  #isZoomed = false;
  #box = element('div', 'map-box');

  /** @param {HTMLElement} root @param {import('../../memory/client.js').Memory} memory */
  constructor(root, memory) {
    this.#root = root;
    this.#memory = memory;
    this.#box.tabIndex = 0;
    this.#box.setAttribute('role', 'group');
    this.#box.setAttribute('aria-label', t('map.box'));
    this.#render();
  }

  #render() {
    const map = this.#map ?? [], chart = this.#chart;
    render(html`
      <p class="panel-lead">${t('map.about')}</p>
      <p class="panel-lead" role="status">${this.#status}</p>
      ${this.#problem.element}
      <button type="button" class="quiet" ?hidden=${!this.#hasFailed} @click=${() => this.refresh()}>${t('map.again')}</button>
      <div class="map-figure" ?hidden=${!map.length}>
        <div class="map-plot">${this.#box}${this.#zoomButtons()}</div>
        <div class="map-legend">${chart && map.length ? this.#legend(map, chart) : nothing}</div>
      </div>`, this.#root);
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
    this.#isZoomed = false;
  }

  /** Load the points again. */
  async refresh() {
    const run = (this.#run += 1);
    if (!this.#map) this.#say(t('map.drawing'));
    try {
      const [map, { agents }] = await Promise.all([
        this.#memory.map(), this.#memory.info(), loadScript('vendor/chart.umd.min.js'), loadStyles('panels/map/map.css'),
      ]);
      if (run !== this.#run) return;
      this.#map = byAgent(map, agents);
      this.#problem.say(null);
      this.#hasFailed = false;
      this.#draw();
    } catch (error) {
      if (run !== this.#run) return;
      this.#problem.say(error);
      this.#hasFailed = true;
      this.#say(this.#map ? this.#status : '');
    }
  }

  #say(status) {
    this.#status = status;
    this.#render();
  }

  #draw() {
    const map = this.#map ?? [];
    const { requests, own } = count(map);
    if (requests === 0) return this.#say(`${t('map.empty')} ${t('map.nothingOwn')}`);
    this.#chart ??= new MapChart(Chart, this.#box, (isZoomed) => {
      this.#isZoomed = isZoomed;
      this.#render();
    });
    this.#say(own ? '' : t('map.nothingOwn')); // the box has a size now
    const summary = t('map.ofAgents', { count: map.length, requests: `${formatNumber(requests)} ${t('map.requests', { count: requests })}` });
    const agents = map.map((agent) => ({ ...agent, shown: !this.#hiddenAgents.has(agent.id) }));
    this.#chart.show(agents, this.#hiddenSources, summary);
  }

  #legend(map, chart) {
    const { requests, own } = count(map);
    const toggleAll = () => {
      this.#hiddenAgents = new Set(this.#hiddenAgents.size ? [] : map.map(({ id }) => id));
      this.#draw();
    };
    return html`
      <ul>
        ${this.#entry(this.#hiddenSources, 'shipped', t('map.shipped'), requests - own, mark('shipped'))}
        ${own ? this.#entry(this.#hiddenSources, 'own', t('map.yours'), own, mark('own')) : nothing}
      </ul>
      <ul>${repeat(map, ({ id }) => id, ({ id, title, index, points }) => (
        this.#entry(this.#hiddenAgents, id, title, points.length, chart.symbol(index))))}</ul>
      <button type="button" class="link" data-entry="all" @click=${toggleAll}>${this.#hiddenAgents.size ? t('map.showAll') : t('map.hideAll')}</button>`;
  }

  /** A line of the legend, which toggles its agent. */
  #entry(hidden, name, title, number, symbol) {
    const toggle = () => {
      if (!hidden.delete(name)) hidden.add(name);
      this.#draw();
    };
    return html`
      <li><button type="button" class="map-entry" data-entry=${name} aria-pressed=${String(!hidden.has(name))} @click=${toggle}>${
        symbol}<span class="map-name">${title}</span><span class="map-count">${formatNumber(number)}<span class="visually-hidden"> ${
        t('map.requests', { count: number })}</span></span></button></li>`;
  }

  #zoomButtons() {
    const choice = (label, text, run, isDisabled = false) => html`
      <button type="button" class="quiet" aria-label=${label} title=${label} ?disabled=${isDisabled} @click=${run}>${text}</button>`;
    return html`
      <div class="map-zoom">${choice(t('map.zoomIn'), '+', () => this.#chart?.zoomIn())}${
        choice(t('map.zoomOut'), '−', () => this.#chart?.zoomOut())}${
        choice(t('map.wholeTitle'), t('map.whole'), () => this.#chart?.showAll(), !this.#isZoomed)}</div>`;
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
  return html`<span class="map-mark map-mark-${kind}" aria-hidden="true"></span>`;
}
