/** A plot of lines or bars by Chart.js, with a table of the same values. */
import { html, render } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { element } from '../../common/dom.js';
import { themeColour } from '../../shell/theme.js';

const COLOURS = 6; // --stage-0 and so on, of panel.css
const STYLES = [
  { pointStyle: 'circle', borderDash: [] }, { pointStyle: 'triangle', borderDash: [6, 3] },
  { pointStyle: 'rect', borderDash: [2, 3] }, { pointStyle: 'rectRot', borderDash: [8, 3, 2, 3] },
]; // so that the lines can be told apart without colours
const MOST_POINTS = 40; // up to this number, points are drawn as marks

/**
 * @typedef {{title: string, about: string, labels: string[], axis: string, series: Series[], format: (value: number) => string,
 *   from?: number, to?: number, kind?: 'line'|'bar', stacked?: boolean, isHeaded?: boolean}} Plot `labels`: of the horizontal
 *   axis, whose name is `axis`; `from`, `to`: the range that the vertical one shows at least; `isHeaded`: a heading above it
 *   shows its title
 * @typedef {{name: string, values: (number|null)[], colour?: number, kind?: 'line'|'bar', format?: (value: number) => string,
 *   right?: number}} Series `kind`, `format`: if they differ from the plot's; `right`: drawn against an axis on the right, from
 *   0 to this
 */
export class PlotFigure {
  element = element('figure', 'plot');
  #Chart;
  #chart = /** @type {any} */ (null);
  #plot = /** @type {Plot|null} */ (null);
  #shown = ''; // the plot that is shown, as JSON
  #canvas = element('canvas');

  /** @param {any} Chart the library */
  constructor(Chart) {
    this.#Chart = Chart;
    this.#canvas.setAttribute('role', 'img');
  }

  /** @param {Plot} plot */
  show(plot) {
    const now = JSON.stringify(plot);
    if (now === this.#shown) return;
    this.#shown = now;
    this.#plot = plot;
    this.#canvas.setAttribute('aria-label', `${plot.title}. ${summaryOf(plot)}`);
    render(html`
      <figcaption><h4 ?hidden=${plot.isHeaded ?? false}>${plot.title}</h4><p class="panel-lead">${plot.about}</p></figcaption>
      <div class="plot-box">${this.#canvas}</div>
      <details class="plot-numbers">
        <summary>${t('plots.asTable')}</summary>
        <div class="plot-scroller" tabindex="0" role="group" aria-label=${t('plots.table')}>${tableOf(plot)}</div>
      </details>`, this.element);
    this.draw();
  }

  /** Draw it, also again if the colours have changed. */
  draw() {
    if (!this.#plot) return;
    this.#chart?.destroy();
    this.#chart = new this.#Chart(this.#canvas, chartOf(this.#plot));
  }

  destroy() {
    this.#chart?.destroy();
    this.#chart = null;
    this.#shown = '';
  }
}

/** @param {Plot} plot */
function tableOf({ labels, axis, series, format }) {
  const cells = (at) => series.map((one) => html`<td>${said(one.values[at], one.format ?? format)}</td>`);
  return html`
    <table class="plot-table">
      <thead><tr>${[axis, ...series.map((one) => one.name)].map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>${labels.map((label, at) => html`<tr><th scope="row">${label}</th>${cells(at)}</tr>`)}</tbody>
    </table>`;
}

function said(value, format) {
  return value === null || value === undefined ? '–' : format(value);
}

/** "Loss: from 3.1 to 0.2. ..." */
function summaryOf({ series, format }) {
  return series.map(({ name, values, format: own }) => {
    const say = own ?? format;
    const known = values.filter((value) => value !== null && value !== undefined);
    if (known.length === 0) return '';
    const last = say(/** @type {number} */ (known.at(-1)));
    return known.length === 1
      ? t('plots.summaryOfOne', { name, last }) : t('plots.summary', { name, first: say(/** @type {number} */ (known[0])), last });
  }).join(' ');
}

/** @param {Plot} plot */
function chartOf({ labels, axis, series, format, from, to, kind: usual = 'line', stacked = false }) {
  const right = series.find((one) => one.right !== undefined);
  const [ink, muted, line, surface] = ['--ink', '--muted', '--line', '--surface'].map(themeColour);
  const font = { family: getComputedStyle(document.body).fontFamily, size: 12 };
  const datasets = series.map(({ name, values, colour, kind = usual, right: most }, at) => ({
    label: name,
    type: kind,
    yAxisID: most === undefined ? 'y' : 'right',
    order: kind === 'line' ? 0 : 1, // lines lie above bars
    data: values,
    borderColor: themeColour(`--stage-${(colour ?? at) % COLOURS}`),
    backgroundColor: themeColour(`--stage-${(colour ?? at) % COLOURS}`),
    borderWidth: kind === 'line' ? 2 : 0,
    maxBarThickness: 28,
    spanGaps: true,
    pointRadius: labels.length > MOST_POINTS ? 0 : 3.5,
    pointHitRadius: 12,
    ...(kind === 'line' ? STYLES[at % STYLES.length] : { pointStyle: 'rect' }),
  }));
  const ticks = { color: muted, font, maxRotation: 0, autoSkipPadding: 16 };
  return {
    type: usual,
    data: { labels, datasets },
    options: {
      animation: false,
      maintainAspectRatio: false,
      interaction: { mode: 'index', intersect: false },
      scales: {
        x: { stacked, ticks, grid: { display: false }, border: { color: line }, title: { display: true, text: axis, color: muted, font } },
        y: {
          ticks: { ...ticks, callback: (number) => format(Number(number)), maxTicksLimit: 6 }, grid: { color: line }, border: { display: false },
          stacked, suggestedMin: from, suggestedMax: to,
        },
        ...(right && {
          right: {
            position: 'right', min: 0, max: right.right, grid: { display: false }, border: { display: false },
            ticks: { ...ticks, callback: (number) => (right.format ?? format)(Number(number)), maxTicksLimit: 6 },
          },
        }),
      },
      plugins: {
        legend: { display: series.length > 1, align: 'start', labels: { color: ink, font, usePointStyle: true, boxHeight: 7 } },
        tooltip: {
          backgroundColor: surface, titleColor: ink, bodyColor: ink, borderColor: line, borderWidth: 1, titleFont: font, bodyFont: font,
          usePointStyle: true, callbacks: { label: ({ dataset, raw, datasetIndex }) => `${dataset.label}: ${said(raw, series[datasetIndex].format ?? format)}` },
        },
      },
    },
  };
}
