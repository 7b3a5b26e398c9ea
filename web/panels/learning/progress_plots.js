/** Plots of the results of learning: quality over time, and how strong an adapter is. Null: there is nothing to plot yet. */
import { t } from '../../i18n/i18n.js';
import { formatDay, formatNumber, formatRounded, formatShare } from '../../common/format.js';

/** @typedef {import('./plot_figure.js').Plot} Plot */

const SAID = ['good', 'corrected', 'bad', 'helped'];
const COLOURS = { good: 0, corrected: 1, bad: 3, helped: 2 };

/** @param {import('../../protocol_calls.js').Period[]} periods the oldest first @returns {Plot|null} */
export function qualityPlot(periods) {
  if (!periods.some((one) => SAID.some((name) => one[name]))) return null;
  return {
    title: t('progress.answers'), about: t('progress.answersAbout'), isHeaded: true,
    axis: t(periods[0].days === 1 ? 'progress.day' : 'progress.week'),
    labels: periods.map(({ created }) => formatDay(created)),
    kind: 'bar', stacked: true, from: 0, to: 4, format: formatCount,
    series: [
      ...SAID.map((name) => ({ name: t(`progress.${name}`), values: periods.map((one) => one[name]), colour: COLOURS[name] })),
      { name: t('progress.quality'), values: periods.map(({ quality }) => quality), colour: 5, kind: 'line', format: formatShare, right: 1 },
    ],
  };
}

/** @param {[number, number][]} norms [layer, norm] @returns {Plot|null} */
export function strengthPlot(norms) {
  if (!norms.length) return null;
  return {
    title: t('adapters.strengthOf'), about: t('adapters.strengthAbout'), axis: t('adapters.axis'), kind: 'bar', from: 0,
    labels: norms.map(([layer]) => String(layer)), series: [{ name: t('adapters.norm'), values: norms.map(([, norm]) => norm) }],
    format: formatRounded,
  };
}

function formatCount(value) {
  return Number.isInteger(value) ? formatNumber(value) : '';
}
