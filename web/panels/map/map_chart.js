/** The map of the requests as a scatter plot by Chart.js: datasets, symbols, the agents' names, and the texts of points. */
import { html, render } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { element } from '../../common/dom.js';
import { themeColour } from '../../shell/theme.js';
import { PanZoom } from './map_zoom.js';

/** Seven colours and five shapes: thirty-five agents before two look the same. */
const COLOURS = 7;
const SHAPES = [
  { pointStyle: 'circle' }, { pointStyle: 'triangle' }, { pointStyle: 'rect' }, { pointStyle: 'rectRot' },
  { pointStyle: 'triangle', rotation: 180 },
];
const ROUND = { circle: 1, triangle: 1.2, rect: 1.15, rectRot: 1.15 }; // sizes that make all look equally large
const SMALL = 2.75; // pixels
const LARGE = 6.5;
const FINE = matchMedia('(pointer: fine)');

export class MapChart {
  #Chart;
  #canvas;
  #tip;
  #chart;
  #zoom;
  #larger = 1; // points grow a little when zoomed in
  #agents = /** @type {any[]} */ ([]); // {title, index, x, y, shown}: the centre of each agent's points

  /**
   * @param {any} Chart the library
   * @param {HTMLElement} box to fill; it has a position and a height
   * @param {(zoomed: boolean) => void} onZoom
   */
  constructor(Chart, box, onZoom) {
    this.#Chart = Chart;
    this.#canvas = element('canvas');
    this.#canvas.setAttribute('role', 'img');
    this.#tip = element('div', 'map-tip');
    this.#tip.hidden = true;
    box.prepend(this.#canvas, this.#tip);
    this.#chart = new Chart(this.#canvas, {
      type: 'scatter',
      data: { datasets: [] },
      options: {
        animation: false,
        parsing: false,
        normalized: true,
        maintainAspectRatio: false,
        layout: { padding: 0, autoPadding: false }, // the scales fill the canvas, whatever the points' size
        interaction: { mode: 'nearest', intersect: true },
        scales: { x: { display: false }, y: { display: false } },
        plugins: { legend: { display: false }, tooltip: { enabled: false, external: (context) => this.#showTooltip(context) } },
      },
      plugins: [{ id: 'names', afterDatasetsDraw: (chart) => this.#drawNames(chart) }],
    });
    this.#zoom = new PanZoom(this.#chart, box, (zoom) => {
      this.#tip.hidden = true;
      this.#larger = Math.min(2, zoom ** 0.4);
      for (const dataset of this.#chart.data.datasets) Object.assign(dataset, this.#radii(dataset));
      this.#chart.update('none');
      onZoom(zoom > 1);
    });
  }

  /**
   * @param {{title: string, index: number, shown: boolean, points: any[]}[]} agents points: {x, y, text, source}
   * @param {Set<string>} hiddenSources 'shipped', 'own'
   * @param {string} summary a description of the picture
   */
  show(agents, hiddenSources, summary) {
    this.#canvas.setAttribute('aria-label', summary);
    this.#agents = agents.map(({ points, ...agent }) => ({
      ...agent, x: median(points.map(({ x }) => x)), y: median(points.map(({ y }) => y)),
    }));
    const colours = readColours();
    this.#chart.data.datasets = agents.flatMap((agent) => [
      this.#dataset(agent, false, hiddenSources, colours),
      this.#dataset(agent, true, hiddenSources, colours),
    ]);
    this.#chart.update('none');
  }

  /** A symbol as the plot has it, on a canvas of its own. @returns {HTMLCanvasElement} */
  symbol(index) {
    const size = 16;
    const canvas = element('canvas', 'map-symbol');
    canvas.setAttribute('aria-hidden', 'true');
    canvas.width = canvas.height = size * devicePixelRatio;
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    context.scale(devicePixelRatio, devicePixelRatio);
    context.fillStyle = readColours().agents[index % COLOURS];
    const { pointStyle, rotation = 0 } = SHAPES[index % SHAPES.length];
    this.#Chart.helpers.drawPoint(context, { pointStyle, rotation, radius: 5 * ROUND[pointStyle], borderWidth: 0 }, size / 2, size / 2);
    return canvas;
  }

  zoomIn() {
    this.#zoom.by(1.6);
  }

  zoomOut() {
    this.#zoom.by(1 / 1.6);
  }

  showAll() {
    this.#zoom.reset();
  }

  destroy() {
    this.#zoom.end();
    this.#chart.destroy();
    this.#canvas.remove();
    this.#tip.remove();
  }

  #dataset({ title, index, shown, points }, own, hiddenSources, { agents, ink }) {
    const colour = agents[index % COLOURS];
    const shape = SHAPES[index % SHAPES.length];
    const kind = { own, pointStyle: shape.pointStyle, rotation: shape.rotation ?? 0 };
    return {
      ...kind,
      ...this.#radii(kind),
      label: title,
      data: points.filter(({ source }) => (source !== 'example') === own),
      hidden: !shown || hiddenSources.has(own ? 'own' : 'shipped'),
      order: own ? 0 : 1, // the user's points lie above
      hitRadius: FINE.matches ? 3 : 10,
      backgroundColor: own ? colour : colour.replace('rgb(', 'rgba(').replace(')', ', 0.53)'),
      hoverBackgroundColor: colour,
      borderColor: ink,
      borderWidth: own ? 1.5 : 0,
      hoverBorderColor: ink,
      hoverBorderWidth: 1.5,
    };
  }

  #radii({ own, pointStyle }) {
    const radius = (own ? LARGE : SMALL) * ROUND[pointStyle] * this.#larger;
    return { radius, hoverRadius: radius + 2 };
  }

  #showTooltip({ chart, tooltip }) {
    const point = tooltip.opacity ? tooltip.dataPoints?.[0] : null;
    this.#tip.hidden = !point;
    if (!point) return;
    const { text, source } = point.raw;
    render(html`<p class="map-tip-about"><b>${point.dataset.label}</b> · ${t(`map.source_${source}`)}</p><p class="map-tip-text">${text}</p>`, this.#tip);
    const { x, y } = point.element;
    const { offsetWidth: width, offsetHeight: height } = this.#tip;
    const above = y - height - 12;
    this.#tip.style.left = `${Math.max(4, Math.min(x - width / 2, chart.width - width - 4))}px`;
    this.#tip.style.top = `${above >= 0 ? above : y + 12}px`;
  }

  /** The agents' names at the middle of their points, moved up or down if they would overlap. */
  #drawNames({ ctx, chartArea, scales: { x: across, y: up } }) {
    const { surface, ink } = readColours();
    const line = 17;
    ctx.save();
    ctx.font = `600 12.5px ${getComputedStyle(this.#canvas).fontFamily}`;
    ctx.textAlign = 'center';
    ctx.textBaseline = 'middle';
    ctx.lineJoin = 'round';
    ctx.lineWidth = 4;
    ctx.strokeStyle = surface;
    ctx.fillStyle = ink;
    const taken = [];
    for (const agent of this.#agents) {
      if (!agent.shown) continue;
      const half = ctx.measureText(agent.title).width / 2 + 3;
      const x = across.getPixelForValue(agent.x);
      const y = up.getPixelForValue(agent.y);
      const { left, right, top, bottom } = chartArea;
      if (x < left || x > right || y < top || y > bottom) continue; // outside the visible part of the map
      const at = Math.max(left + half, Math.min(x, right - half));
      const free = [-1, 1, -2, 2, -3, 3] // not on the centre itself: the only point may be there
        .map((lines) => Math.max(top + line / 2, Math.min(y + lines * line, bottom - line / 2)))
        .find((place) => !taken.some((one) => Math.abs(one.x - at) < one.half + half && Math.abs(one.y - place) < line));
      if (free === undefined) continue;
      taken.push({ x: at, y: free, half });
      ctx.strokeText(agent.title, at, free);
      ctx.fillText(agent.title, at, free);
    }
    ctx.restore();
  }
}

/** The colours of the style sheet, light or dark. */
function readColours() {
  return {
    agents: Array.from({ length: COLOURS }, (_, number) => themeColour(`--map-${number}`)),
    ink: themeColour('--ink'),
    surface: themeColour('--surface'),
  };
}

function median(numbers) {
  return numbers.sort((a, b) => a - b)[numbers.length >> 1];
}
