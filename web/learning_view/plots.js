/** What the plots of the Learning view show, of what app/learning_api.py tells. Null: there is too little to plot. */
import { formatDate, formatShare } from '../page/format.js';

/** @typedef {import('./plot_figure.js').Plot} Plot */

const LONGEST_LABEL = 24;
const PARTS = { fits: 'fits the question', coherent: 'coherent', diverse: 'diverse', new: 'new', finished: 'finished' };

/** @param {{question: string, nllBefore: number, nllAfter: number}[]} lessons @returns {Plot|null} */
export function instantPlot(lessons) {
  if (lessons.length === 0) return null;
  return {
    title: 'How sure the model is of what you taught',
    about: 'The probability of each word of the answer, on average: without what you taught, and with it.',
    axis: 'Fact', kind: 'bar',
    labels: lessons.map(({ question }) => cut(question)),
    series: [
      { name: 'before', values: lessons.map(({ nllBefore }) => Math.exp(-nllBefore)), colour: 1 },
      { name: 'now', values: lessons.map(({ nllAfter }) => Math.exp(-nllAfter)), colour: 0 },
    ],
    format: formatShare, from: 0, to: 1,
  };
}

/** @param {{created: number, count: number, quality: number|null, parts: Record<string, number|null>}[]} answers groups of them @returns {Plot|null} */
export function answersPlot(answers) {
  if (answers.length < 2) return null;
  const ofPart = (part) => answers.map(({ parts }) => parts[part] ?? null);
  const parts = Object.keys(PARTS).filter((part) => ofPart(part).some((value) => value !== null));
  return {
    title: 'Quality of the answers',
    about: 'By what you said of them, and else by signs such as a stop, another try or repetition.',
    axis: 'Answered',
    labels: answers.map(({ created }) => formatDate(created)),
    series: [
      { name: 'quality', values: answers.map(({ quality }) => quality) },
      ...parts.map((part) => ({ name: PARTS[part], values: ofPart(part) })),
    ],
    format: formatShare, from: 0, to: 1,
  };
}

/** @param {import('../learning/client.js').Training[]} runs the oldest first @returns {Record<string, Plot|null>} by a name of each */
export function trainingPlots(runs) {
  const last = runs.at(-1);
  if (!last) return {};
  const { losses } = last;
  const when = { axis: 'Training', labels: runs.map(({ created }) => formatDate(created)) };
  const of = (name, colour, pick) => ({ name, colour, values: runs.map(pick) });
  return {
    loss: losses.length < 2 ? null : {
      title: 'Loss of the last training',
      about: 'How surprising the right words were to the model, step by step: less is better.',
      axis: 'Step', labels: losses.map((_, at) => String(at + 1)), series: [{ name: 'loss', values: losses }],
      format: formatNumber, from: 0,
    },
    probe: {
      title: 'Perplexity of other texts',
      about: 'Texts that were never trained on: a training that makes them less likely is made smaller, or thrown away.',
      ...when,
      series: [
        of('plain model', 2, ({ probe }) => probe.base ?? null), of('before', 1, ({ probe }) => probe.before ?? null),
        of('after', 0, ({ probe }) => probe.after ?? null),
      ],
      format: formatNumber,
    },
    recall: {
      title: 'Facts that the model itself knows',
      about: 'The share of the facts whose answers come word by word, without what is learned at once.',
      ...when,
      series: [of('before', 1, ({ recall }) => recall.before ?? null), of('after', 0, ({ recall }) => recall.after ?? null)],
      format: formatShare, from: 0, to: 1,
    },
    norm: {
      title: 'Size of the adapter',
      about: 'The norm of all that is added to the weights; 0 where a training was thrown away.',
      ...when, series: [of('norm', 0, ({ norm }) => norm)], format: formatNumber, from: 0,
    },
  };
}

/** "0.042", "3.14", "142" */
function formatNumber(value) {
  return value.toLocaleString('en', { maximumSignificantDigits: 3 });
}

function cut(text) {
  return text.length <= LONGEST_LABEL ? text : `${text.slice(0, LONGEST_LABEL - 1).trimEnd()}…`;
}
