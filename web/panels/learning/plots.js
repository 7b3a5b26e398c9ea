/** The plots of the Learning view, made from the data of app/consolidation/api.py. Null: there is too little to plot. */
import { wholeEnd } from '../../common/cut.js';
import { t } from '../../i18n/i18n.js';
import { formatDate, formatNumber, formatRounded, formatShare } from '../../common/format.js';

/** @typedef {import('./plot_figure.js').Plot} Plot */

const LONGEST_LABEL = 24;

/** @param {{question: string, nllBefore: number, nllAfter: number}[]} lessons @returns {Plot|null} */
export function instantPlot(lessons) {
  if (lessons.length === 0) return null;
  return {
    title: t('plots.instant'), about: t('plots.instantAbout'),
    axis: t('plots.fact'), kind: 'bar',
    labels: lessons.map(({ question }) => cut(question)),
    series: [
      { name: t('plots.before'), values: lessons.map(({ nllBefore }) => Math.exp(-nllBefore)), colour: 1 },
      { name: t('plots.now'), values: lessons.map(({ nllAfter }) => Math.exp(-nllAfter)), colour: 0 },
    ],
    format: formatShare, from: 0, to: 1,
  };
}

/** @param {import('../../protocol_calls.js').TrainingView[]} runs the oldest first @returns {Record<string, Plot|null>} by a name of each */
export function trainingPlots(runs) {
  const last = runs.at(-1);
  if (!last) return {};
  const { losses } = last;
  const when = { axis: t('plots.training'), labels: runs.map(({ created }) => formatDate(created)) };
  const of = (name, colour, pick) => ({ name, colour, values: runs.map(pick) });
  return {
    loss: losses.length < 2 ? null : {
      title: t('plots.loss'), about: t('plots.lossAbout'),
      axis: t('plots.step'), labels: losses.map((_, at) => formatNumber(at + 1)), series: [{ name: t('plots.lossName'), values: losses }],
      format: formatRounded, from: 0,
    },
    probe: {
      title: t('plots.probe'), about: t('plots.probeAbout'),
      ...when,
      series: [
        of(t('plots.plain'), 2, ({ probe }) => probe.base ?? null), of(t('plots.before'), 1, ({ probe }) => probe.before ?? null),
        of(t('plots.after'), 0, ({ probe }) => probe.after ?? null),
      ],
      format: formatRounded,
    },
    recall: {
      title: t('plots.recall'), about: t('plots.recallAbout'),
      ...when,
      series: [of(t('plots.before'), 1, ({ recall }) => recall.before ?? null), of(t('plots.after'), 0, ({ recall }) => recall.after ?? null)],
      format: formatShare, from: 0, to: 1,
    },
    norm: {
      title: t('plots.norm'), about: t('plots.normAbout'),
      ...when, series: [of(t('plots.normName'), 0, ({ norm }) => norm)], format: formatRounded, from: 0,
    },
  };
}

function cut(text) {
  return text.length <= LONGEST_LABEL ? text : `${text.slice(0, wholeEnd(text, LONGEST_LABEL - 1)).trimEnd()}…`;
}
