/** A timeline: what each loop did and when, a lane a loop, by Chart.js; with a list of the same events. */
import { html, render } from '../../vendor/lit-html/lit-html.js';
import { wholeEnd } from '../../common/cut.js';
import { t } from '../../i18n/i18n.js';
import { element } from '../../common/dom.js';
import { formatDate } from '../../common/format.js';
import { themeColour } from '../../shell/theme.js';

/** @typedef {import('../../protocol_calls.js').LearningEvent} LearningEvent */

const LOOPS = ['instant', 'background', 'deep']; // from the top down
const LEAST_SECONDS = 3600; // that the line spans

export class TimelineFigure {
  element = element('figure', 'plot timeline');
  #Chart;
  #chart = /** @type {any} */ (null);
  #events = /** @type {LearningEvent[]} */ ([]);
  #shown = '';
  #canvas = element('canvas');

  /** @param {any} Chart the library */
  constructor(Chart) {
    this.#Chart = Chart;
    this.#canvas.setAttribute('role', 'img');
  }

  /** @param {LearningEvent[]} events at least one, the oldest first */
  show(events) {
    const now = JSON.stringify(events);
    if (now === this.#shown) return;
    this.#shown = now;
    this.#events = events;
    this.#canvas.setAttribute('aria-label', `${t('progress.history')}. ${summaryOf(events)}`);
    render(html`
      <figcaption><p class="panel-lead">${t('progress.historyAbout')}</p></figcaption>
      <div class="plot-box">${this.#canvas}</div>
      <details class="plot-numbers">
        <summary>${t('progress.historyList', { count: events.length })}</summary>
        <div class="plot-scroller" tabindex="0" role="group" aria-label=${t('progress.history')}>
          <ol class="timeline-list">${events.toReversed().map(lineOf)}</ol>
        </div>
      </details>`, this.element);
    this.draw();
  }

  /** Draw it, also again if the colours have changed. */
  draw() {
    if (!this.#events.length) return;
    this.#chart?.destroy();
    this.#chart = new this.#Chart(this.#canvas, chartOf(this.#events));
  }

  destroy() {
    this.#chart?.destroy();
    this.#chart = null;
    this.#shown = '';
  }
}

/** "Trained with 8 new facts: it is used" @param {LearningEvent} event */
export function wordsOf({ loop, kind, count, text }) {
  return t(`progress.did_${kind}_${loop}`, { count, text });
}

/** "From 12 Nov to 14:05: At once: 12, Training: 1." @param {LearningEvent[]} events */
function summaryOf(events) {
  const lanes = LOOPS.map((loop) => [loop, events.filter((one) => one.loop === loop).length]).filter(([, count]) => count);
  const what = lanes.map(([loop, count]) => t('progress.lane', { name: t(`progress.loop_${loop}`), count })).join(', ');
  return t('progress.historySaid', { first: formatDate(events[0].created), last: formatDate(events[events.length - 1].created), what });
}

/** @param {LearningEvent} event */
function lineOf(event) {
  return html`<li><time datetime=${new Date(1000 * event.created).toISOString()}>${formatDate(event.created)}</time><b>${
    t(`progress.loop_${event.loop}`)}</b><span dir="auto">${wordsOf(event)}</span></li>`;
}

/** @param {LearningEvent[]} events */
function chartOf(events) {
  const [ink, muted, line, surface] = ['--ink', '--muted', '--line', '--surface'].map(themeColour);
  const font = { family: getComputedStyle(document.body).fontFamily, size: 12 };
  const first = events[0].created, last = events[events.length - 1].created;
  const room = Math.max((last - first) * 0.04, (LEAST_SECONDS - (last - first)) / 2, 0);
  const datasets = LOOPS.map((loop, lane) => {
    const own = events.filter((one) => one.loop === loop);
    const colour = themeColour(`--stage-${lane}`);
    return {
      label: t(`progress.loop_${loop}`), events: own,
      data: own.map(({ created }) => ({ x: created, y: LOOPS.length - 1 - lane })),
      pointStyle: own.map(({ kind }) => (kind === 'refused' ? 'triangle' : 'circle')),
      pointRadius: 6, pointHoverRadius: 8, pointHitRadius: 10, borderColor: surface, borderWidth: 1, backgroundColor: colour,
    };
  });
  const ticks = { color: muted, font, maxRotation: 0, autoSkipPadding: 24 };
  return {
    type: 'scatter',
    data: { datasets },
    options: {
      animation: false,
      maintainAspectRatio: false,
      scales: {
        x: { min: first - room, max: last + room, ticks: { ...ticks, maxTicksLimit: 5, callback: (value) => formatDate(Number(value)) }, grid: { display: false }, border: { color: line } },
        y: {
          min: -0.5, max: LOOPS.length - 0.5, grid: { color: line }, border: { display: false },
          afterBuildTicks: (axis) => { axis.ticks = LOOPS.map((_, value) => ({ value })); },
          ticks: { ...ticks, color: ink, autoSkip: false, callback: (value) => t(`progress.loop_${LOOPS[LOOPS.length - 1 - Number(value)]}`) },
        },
      },
      plugins: {
        legend: { display: false },
        tooltip: {
          backgroundColor: surface, titleColor: ink, bodyColor: ink, borderColor: line, borderWidth: 1, titleFont: font, bodyFont: font, displayColors: false,
          callbacks: {
            title: ([item]) => (item ? formatDate(item.raw.x) : ''),
            label: ({ dataset, dataIndex }) => cut(wordsOf(dataset.events[dataIndex])),
          },
        },
      },
    },
  };
}

function cut(text) {
  return text.length <= 80 ? text : `${text.slice(0, wholeEnd(text, 79)).trimEnd()}…`;
}
