/** One quiet recommendation: the best model of the list that this computer runs fast enough, judging by measurements. */
import { t } from '../../i18n/i18n.js';
import { formatBytes } from '../../common/format.js';

const READING_TOK_S = 8; // as fast as people read
const WORDS_A_TOKEN = 0.75;
const MOST_BYTES = 3.2e9; // largest file that the CPU's kernels can hold: their memory ends at 4.3 GB
const WORTH = 1.5; // a model that is less than this many times larger does not answer much better

/**
 * @param {{tokS: number, bytes: number}|null} measured the speed of the model of this size
 * @param {{name: string, title: string, bytes: number}[]} offered by the hub
 * @param {number} memory bytes of this computer, as far as the browser reports it
 * @returns {string|null} a sentence
 */
export function advise(measured, offered, memory) {
  if (!measured?.tokS || !measured.bytes) return null;
  const speed = ({ bytes }) => measured.tokS * measured.bytes / bytes; // a token reads all of the weights once
  const fits = offered.filter((model) => model.bytes > WORTH * measured.bytes && model.bytes < Math.min(MOST_BYTES, memory / 2)
    && speed(model) >= READING_TOK_S);
  const best = fits.sort((one, other) => other.bytes - one.bytes)[0];
  if (!best) return null;
  const words = Math.round(WORDS_A_TOKEN * speed(best));
  return t('models.advice', { title: best.title, size: formatBytes(best.bytes), count: words });
}

/** "12.3 of 98.4 MB, 3.2 MB/s, 27 s left" */
export function progressWords({ done, total, perSecond }) {
  const parts = [t('models.ofBytes', { done: formatBytes(done), total: formatBytes(total) })];
  if (perSecond > 0) {
    const seconds = Math.ceil((total - done) / perSecond);
    const left = seconds < 90 ? `${seconds} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
    parts.push(`${formatBytes(perSecond)}/s`, t('models.left', { time: left }));
  }
  return parts.join(', ');
}
