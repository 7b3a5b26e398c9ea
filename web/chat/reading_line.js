/** "Reading 1,200 of 2,500 tokens", with the time that is left where a prompt is long. */
import { element } from '../page/dom.js';
import { t } from '../i18n/i18n.js';

const LEAST_LEFT_S = 2; // less is not worth a word

export class ReadingLine {
  element = element('span', 'reading');

  /** @param {number} done tokens that the model has read @param {number} total @param {number|null} [secondsLeft] */
  show(done, total, secondsLeft = null) {
    this.element.textContent = done < total ? t('answers.reading', { done, total }) + left(Math.round(secondsLeft ?? 0)) : '';
  }
}

function left(seconds) {
  if (seconds < LEAST_LEFT_S) return '';
  if (seconds < 90) return t('answers.secondsLeft', { count: seconds });
  return t('answers.minutesLeft', { count: Math.round(seconds / 60) });
}
