/** "Reading 1,200 of 2,500 tokens", with the remaining time if a prompt is long; it counts down between two reports. */
import { element } from '../common/dom.js';
import { t } from '../i18n/i18n.js';

const LEAST_LEFT_S = 2; // less is not worth showing

export class ReadingLine {
  element = element('span', 'reading');
  #until = 0; // time at which the rest will be read, as of performance.now()
  #words = '';
  #ticking = 0;

  /** @param {number} done tokens that the model has read @param {number} total @param {number|null} [secondsLeft] */
  show(done, total, secondsLeft = null) {
    this.#until = performance.now() + (secondsLeft ?? 0) * 1000;
    this.#words = done < total ? t('answers.reading', { done, total }) : '';
    this.#draw();
  }

  #draw() {
    const seconds = this.#words ? Math.round((this.#until - performance.now()) / 1000) : 0;
    this.element.textContent = this.#words + left(seconds);
    clearTimeout(this.#ticking);
    if (seconds >= LEAST_LEFT_S) this.#ticking = setTimeout(() => this.#draw(), 1000);
  }
}

function left(seconds) {
  if (seconds < LEAST_LEFT_S) return '';
  if (seconds < 90) return t('answers.secondsLeft', { count: seconds });
  return t('answers.minutesLeft', { count: Math.round(seconds / 60) });
}
