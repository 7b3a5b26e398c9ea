/** Learning in pauses: its current step, its progress, and buttons to pause and to resume it. */
import { t } from '../../i18n/i18n.js';
import { button, element, ProblemLine } from '../../common/dom.js';

const UNDER_WAY = ['running', 'held'];
const STANDS_STILL = ['paused', 'failed'];

export class IdleSection {
  element = element('section', 'loop');
  #sentence = element('p', 'loop-state');
  #progress = element('progress');
  #pause;
  #resume;
  #problem = new ProblemLine();

  /** @param {import('../../learning/client.js').Learning} learning */
  constructor(learning) {
    const title = element('h3', '', t('idle.title'));
    title.id = 'idle-title';
    this.element.setAttribute('aria-labelledby', title.id);
    this.#progress.max = 1;
    this.#progress.setAttribute('aria-label', t('idle.done'));
    this.#sentence.setAttribute('role', 'status');
    this.#pause = button(t('idle.pause'), 'quiet', () => this.#try(() => learning.pause()));
    this.#resume = button(t('idle.goOn'), 'quiet', () => this.#try(() => learning.resume()));
    const actions = element('div', 'record-actions');
    actions.append(this.#pause, this.#resume);
    this.element.append(title, this.#sentence, this.#progress, actions, this.#problem.element);
  }

  /** @param {import('../../i18n/engine_texts.js').Said<import('../../protocol_calls.js').IdleStatus>|null} status null: nothing can learn in pauses */
  show(status) {
    this.element.hidden = status === null;
    if (status === null) return;
    const { state, sentence, done, total } = status;
    if (this.#sentence.textContent !== sentence) this.#sentence.textContent = sentence;
    const isUnderWay = UNDER_WAY.includes(state);
    this.#progress.hidden = !isUnderWay || total === 0;
    this.#progress.value = total ? done / total : 0;
    const hadFocus = this.element.contains(document.activeElement);
    this.#pause.hidden = STANDS_STILL.includes(state);
    this.#resume.hidden = !STANDS_STILL.includes(state);
    if (hadFocus) (this.#pause.hidden ? this.#resume : this.#pause).focus();
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
