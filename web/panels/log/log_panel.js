/** The log of requests: the time of each, the agent that answered, errors; and the usual times of the stages. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { ProblemLine } from '../../common/dom.js';
import { formatDate, formatDuration, formatMeasured, formatNumber, formatShare } from '../../common/format.js';
import { PLAIN } from '../../memory/client.js';
import { SpeedPlots } from './speed_plots.js';
import { RecordList } from '../record_list.js';
import { facts } from '../record_row.js';

const FILTERS = { all: 'log.all', poor: 'log.poor', errors: 'log.errors', slow: 'log.slow' };
const COLOURS = 6; // of stages, in panel.css
const TOTAL = 'total';

export class LogPanel {
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #list;
  #titles = new Map(); // agent's id -> its title
  #colours = new Map(); // stage -> index of its colour
  #statistics = /** @type {any} */ (null);
  #root;
  #speeds = new SpeedPlots();
  #problem = new ProblemLine();

  /** @param {HTMLElement} root @param {import('../../memory/client.js').Memory} memory */
  constructor(root, memory) {
    this.#root = root;
    this.#memory = memory;
    this.#list = new RecordList({
      texts: 'log',
      searchLabel: t('log.search'),
      filters: FILTERS,
      filterLabel: t('records.show'),
      empty: t('log.empty'),
      selectable: true,
      load: (asked) => this.#load(asked),
      key: ({ id }) => id,
      render: (entry, row) => this.#render(entry, row),
      remove: (ids) => memory.removeLog({ ids }),
    });
    this.#draw();
  }

  #draw() {
    render(html`
      <p class="panel-lead">${t('log.about')}</p>
      <section class="statistics">${this.#statistics ? this.#summary(this.#statistics) : nothing}</section>
      ${this.#speeds.element}${this.#problem.element}${this.#list.element}`, this.#root);
  }

  show() {
    return this.refresh();
  }

  async refresh() {
    await Promise.all([this.#list.refresh(), this.#summarize()]);
  }

  hide() {
    this.#speeds.hide();
  }

  async #load(asked) {
    const { agents } = await this.#memory.info();
    this.#titles = new Map(agents.map(({ id, title }) => [id, title]));
    return this.#memory.log(asked);
  }

  #render({ created, text, agent, backend, stages, totalMs, quality, error, confidence, adapter }, row) {
    const total = totalMs > 0 ? html`<span class="log-total">${formatMeasured(totalMs)}</span>` : nothing;
    return html`
      <p class="record-title">${text ? html`<span class="log-text">${text}</span>` : this.#title(agent)}${total}</p>
      ${error ? html`<p class="log-error">${error}</p>` : nothing}
      ${totalMs > 0 ? this.#stages(Object.entries(stages)) : nothing}
      ${facts(
        text ? html`<b class="record-agent">${this.#title(agent)}</b>` : null,
        formatDate(created),
        backend,
        adapter ? t('log.adapter', { adapter }) : null,
        confidence === null || agent === PLAIN ? null : t('log.certain', { share: formatShare(confidence) }),
        quality === null ? null : t('records.quality', { share: formatShare(quality) }),
      )}
      <div class="record-actions">${row.deleteAction()}</div>`;
  }

  /** A bar as long as the request took, divided into its stages; the legend says the same in words. @param {[string, number][]} stages */
  #stages(stages) {
    const colour = (stage) => `stage-${this.#colour(stage)}`;
    return html`
      <span class="stage-bar" aria-hidden="true">
        ${stages.map(([stage, ms]) => html`<span class=${colour(stage)} .style=${`flex-grow: ${ms}`}></span>`)}
      </span>
      <p class="stage-legend">
        ${stages.map(([stage, ms]) => html`<span class=${colour(stage)}>${stageName(stage)} ${formatMeasured(ms)}</span>`)}
      </p>`;
  }

  #colour(stage) {
    if (!this.#colours.has(stage)) this.#colours.set(stage, this.#colours.size % COLOURS);
    return this.#colours.get(stage);
  }

  async #summarize() {
    try {
      this.#statistics = await this.#memory.statistics();
      this.#problem.say(null);
      this.#draw();
      await this.#speeds.show(this.#statistics.speeds);
    } catch (error) {
      this.#problem.say(error);
    }
  }

  #summary({ percentiles, trends, agents }) {
    const stages = Object.keys(percentiles);
    if (stages.length === 0) return nothing;
    const total = percentiles[TOTAL];
    const gist = total
      ? t('log.gist', { half: formatDuration(total[50] || 1), most: formatDuration(total[99] || 1) })
      : t('log.stages');
    const counts = agents.map(([agent, count]) => `${this.#title(agent)} ${formatNumber(count)}`);
    return html`
      <details>
        <summary>${gist}</summary>
        ${tableOf(stages, percentiles, trends)}
        ${agents.length ? html`<p class="panel-lead">${t('log.byAgent', { counts: counts.join(', ') })}</p>` : nothing}
      </details>`;
  }

  #title(agent) {
    return this.#titles.get(agent) ?? agent;
  }
}

function tableOf(stages, percentiles, trends) {
  const columns = [t('log.stage'), ...['50', '90', '99'].map((share) => t('log.below', { share })), t('log.trend')];
  const rows = [...stages.filter((name) => name !== TOTAL), ...stages.filter((name) => name === TOTAL)];
  return html`
    <table class="percentiles">
      <thead><tr>${columns.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>${rows.map((stage) => html`
        <tr>
          <th scope="row">${stageName(stage)}</th>
          ${[50, 90, 99].map((share) => html`<td>${formatMeasured(percentiles[stage][share])}</td>`)}
          <td>${trendOf(trends[stage])}</td>
        </tr>`)}</tbody>
    </table>`;
}

/** "12% slower" than in the first hour that is logged; nothing if there is only one. */
function trendOf(trend) {
  if (!trend || trend.medians.length < 2) return '–';
  const change = Math.abs(trend.change);
  if (change < 0.01) return t('log.noChange');
  return t(trend.change > 0 ? 'log.slower' : 'log.faster', { share: formatShare(change), count: trend.medians.length });
}

/** @param {string} stage a key of app/chat/answer.py's stages */
function stageName(stage) {
  return t(`stages.${stage}`);
}
