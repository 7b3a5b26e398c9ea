/** The log of requests: the time of each, the agent that answered, errors; and the usual times of the stages. */
import { t } from '../../i18n/i18n.js';
import { element, ProblemLine } from '../../common/dom.js';
import { formatDate, formatDuration, formatMeasured, formatNumber, formatShare } from '../../common/format.js';
import { PLAIN } from '../../memory/client.js';
import { SpeedPlots } from './speed_plots.js';
import { RecordList } from '../record_list.js';
import { actions, facts } from '../record_row.js';

const FILTERS = { all: 'log.all', poor: 'log.poor', errors: 'log.errors', slow: 'log.slow' };
const COLOURS = 6; // of stages, in panel.css
const TOTAL = 'total';

export class LogPanel {
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #list;
  #titles = new Map(); // agent's id -> its title
  #colours = new Map(); // stage -> index of its colour
  #statistics = element('section', 'statistics');
  #speeds = new SpeedPlots();
  #problem = new ProblemLine();

  /** @param {HTMLElement} root @param {import('../../memory/client.js').Memory} memory */
  constructor(root, memory) {
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
    root.append(element('p', 'panel-lead', t('log.about')), this.#statistics, this.#speeds.element, this.#problem.element, this.#list.element);
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
    const head = element('p', 'record-title');
    head.append(text ? element('span', 'log-text', text) : this.#title(agent));
    if (totalMs > 0) head.append(element('span', 'log-total', formatMeasured(totalMs)));
    /** @type {HTMLElement[]} */
    const nodes = [head];
    if (error) nodes.push(element('p', 'log-error', error));
    if (totalMs > 0) nodes.push(this.#bar(stages), this.#legend(stages));
    nodes.push(facts(
      text ? element('b', 'record-agent', this.#title(agent)) : null,
      formatDate(created),
      backend,
      adapter ? t('log.adapter', { adapter }) : null,
      confidence === null || agent === PLAIN ? null : t('log.certain', { share: formatShare(confidence) }),
      quality === null ? null : t('records.quality', { share: formatShare(quality) }),
    ));
    return [...nodes, actions(row.deleteAction())];
  }

  /** A bar as long as the request took, divided into its stages; the legend says the same in words. */
  #bar(stages) {
    const bar = element('span', 'stage-bar');
    bar.setAttribute('aria-hidden', 'true');
    for (const [stage, ms] of Object.entries(stages)) {
      const part = element('span', `stage-${this.#colour(stage)}`);
      part.style.flexGrow = ms;
      bar.append(part);
    }
    return bar;
  }

  #legend(stages) {
    const legend = element('p', 'stage-legend');
    for (const [stage, ms] of Object.entries(stages)) {
      legend.append(element('span', `stage-${this.#colour(stage)}`, `${stageName(stage)} ${formatMeasured(ms)}`));
    }
    return legend;
  }

  #colour(stage) {
    if (!this.#colours.has(stage)) this.#colours.set(stage, this.#colours.size % COLOURS);
    return this.#colours.get(stage);
  }

  async #summarize() {
    try {
      const statistics = await this.#memory.statistics();
      this.#problem.say(null);
      this.#showStatistics(statistics);
      await this.#speeds.show(statistics.speeds);
    } catch (error) {
      this.#problem.say(error);
    }
  }

  #showStatistics({ percentiles, trends, agents }) {
    const stages = Object.keys(percentiles);
    const opened = this.#statistics.querySelector('details')?.open ?? false;
    this.#statistics.replaceChildren();
    if (stages.length === 0) return;
    const details = element('details');
    details.open = opened;
    const total = percentiles[TOTAL];
    const gist = total
      ? t('log.gist', { half: formatDuration(total[50] || 1), most: formatDuration(total[99] || 1) })
      : t('log.stages');
    details.append(element('summary', '', gist), this.#table(stages, percentiles, trends));
    if (agents.length) {
      const counts = agents.map(([agent, count]) => `${this.#title(agent)} ${formatNumber(count)}`);
      details.append(element('p', 'panel-lead', t('log.byAgent', { counts: counts.join(', ') })));
    }
    this.#statistics.append(details);
  }

  #table(stages, percentiles, trends) {
    const table = element('table', 'percentiles');
    const head = element('tr');
    for (const name of [t('log.stage'), ...['50', '90', '99'].map((share) => t('log.below', { share })), t('log.trend')]) {
      const cell = element('th', '', name);
      cell.scope = 'col';
      head.append(cell);
    }
    table.createTHead().append(head);
    const body = table.createTBody();
    for (const stage of [...stages.filter((name) => name !== TOTAL), ...stages.filter((name) => name === TOTAL)]) {
      const name = element('th', '', stageName(stage));
      name.scope = 'row';
      const row = body.insertRow();
      row.append(name, ...[50, 90, 99].map((p) => element('td', '', formatMeasured(percentiles[stage][p]))));
      row.append(element('td', '', trendOf(trends[stage])));
    }
    return table;
  }

  #title(agent) {
    return this.#titles.get(agent) ?? agent;
  }
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
