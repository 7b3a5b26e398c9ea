/** One of the loops that learn: its purpose and its results, and a place for its plots. Its switch is in Settings, Learning. */
import { t } from '../../i18n/i18n.js';
import { button, element, ProblemLine } from '../../common/dom.js';

export class LoopSection {
  element = element('section', 'loop');
  plots = element('div', 'loop-plots');
  #state = element('p', 'loop-state');
  #problem = new ProblemLine();
  #now;

  /** @param {string} name @param {import('../../learning/client.js').Learning} learning */
  constructor(name, learning) {
    const heading = element('h3', '', t(`loops.${name}`));
    heading.id = `loop-${name}`;
    this.#now = button(t('learning.now'), 'quiet loop-now', () => this.#try(() => learning.learnNow({ name })));
    this.element.setAttribute('aria-labelledby', heading.id);
    this.element.append(heading, element('p', 'panel-lead', t(`loops.${name}About`)), this.#problem.element, this.#state, this.#now, this.plots);
  }

  /** @param {import('../../i18n/engine_texts.js').Said<import('../../protocol_calls.js').LoopView>} loop */
  show({ on, words: sentences, runs }) {
    const words = sentences.join(' ');
    this.#now.hidden = !runs || !on;
    this.#state.textContent = on ? words : `${t('loops.off')} ${words}`;
    this.#state.hidden = on && !words;
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
