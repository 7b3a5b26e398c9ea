/** A model's thoughts before its answer: folded away above it, as plain text. */
import { t } from '../i18n/i18n.js';
import { element } from '../common/dom.js';
import { formatSeconds } from '../common/format.js';

export class ThoughtView {
  #summary = element('summary', '', t('answers.thinking'));
  #text = element('p');
  #begin = performance.now();
  element = document.createElement('details');

  constructor() {
    this.element.className = 'thought';
    this.#text.dir = 'auto';
    this.element.append(this.#summary, this.#text);
  }

  append(text) {
    this.#text.append(text);
  }

  /** Show this instead of the text so far. */
  replace(text) {
    this.#text.textContent = text;
  }

  /** The thought is over. @param {number} [seconds] that it took; by default the time since it began */
  finish(seconds = (performance.now() - this.#begin) / 1000) {
    this.#summary.textContent = t('answers.thought', { time: formatSeconds(seconds) });
  }
}
