/** One of the loops that learn: its purpose and its results, and its plot. Its switch is in Settings, Learning. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { element, ProblemLine } from '../../common/dom.js';

export class LoopSection {
  element = element('section', 'loop');
  #name;
  #learning;
  #problem = new ProblemLine();

  /** @param {string} name @param {import('../../learning/client.js').Learning} learning */
  constructor(name, learning) {
    this.#name = name;
    this.#learning = learning;
    this.element.setAttribute('aria-labelledby', `loop-${name}`);
  }

  /** @param {import('../../i18n/engine_texts.js').Said<import('../../protocol_calls.js').LoopView>} loop @param {HTMLElement} [plot] */
  show({ on, words: sentences, runs }, plot) {
    const name = this.#name, words = sentences.join(' ');
    const learn = () => this.#try(() => this.#learning.learnNow({ name }));
    render(html`
      <h3 id="loop-${name}">${t(`loops.${name}`)}</h3>
      <p class="panel-lead">${t(`loops.${name}About`)}</p>
      ${this.#problem.element}
      <p class="loop-state" ?hidden=${on && !words}>${on ? words : `${t('loops.off')} ${words}`}</p>
      <button type="button" class="quiet loop-now" ?hidden=${!runs || !on} @click=${learn}>${t('learning.now')}</button>
      <div class="loop-plots">${plot ?? nothing}</div>`, this.element);
  }

  async #try(run) {
    this.#problem.say(null);
    try {
      await run();
    } catch (error) {
      this.#problem.say(error);
    }
  }
}
