/** A model's thoughts before its answer: folded away above it, as plain text. */
import { html, render } from '../vendor/lit-html/lit-html.js';
import { t } from '../i18n/i18n.js';
import { element } from '../common/dom.js';
import { formatSeconds } from '../common/format.js';

export class ThoughtView {
  element = element('details', 'thought');
  #text = element('p');
  #begin = performance.now();

  constructor() {
    this.#text.dir = 'auto';
    this.#name(t('answers.thinking'));
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
    this.#name(t('answers.thought', { time: formatSeconds(seconds) }));
  }

  /** @param {string} summary */
  #name(summary) {
    render(html`<summary>${summary}</summary>${this.#text}`, this.element);
  }
}
