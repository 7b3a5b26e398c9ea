/** What learns while nothing else happens: what it does now, how far it is, and buttons to pause it or to begin now. */
import { button, element, ProblemLine } from '../page/dom.js';
import { formatShare } from '../page/format.js';

const UNDER_WAY = ['running', 'held'];

export class IdleSection {
  element = element('div', 'idle');
  #learning;
  #sentence = element('p', 'loop-state');
  #progress = element('progress');
  #now = button('Learn now', 'quiet', () => this.#try(() => this.#learning.learnNow('background')));
  #pause = button('Pause', 'quiet', () => this.#try(() => this.#learning.pause()));
  #resume = button('Go on', 'quiet', () => this.#try(() => this.#learning.resume()));
  #problem = new ProblemLine();

  /** @param {import('../learning/client.js').Learning} learning */
  constructor(learning) {
    this.#learning = learning;
    this.#progress.max = 1;
    this.#progress.setAttribute('aria-label', 'How much of it is done');
    this.#sentence.setAttribute('role', 'status');
    const actions = element('div', 'record-actions');
    actions.append(this.#now, this.#pause, this.#resume);
    this.element.append(this.#sentence, this.#progress, actions, this.#problem.element);
  }

  /** @param {import('../learning/client.js').IdleStatus} status */
  show({ state, sentence, done, total }) {
    if (this.#sentence.textContent !== sentence) this.#sentence.textContent = sentence;
    const isUnderWay = UNDER_WAY.includes(state) && total > 0;
    this.#progress.hidden = !isUnderWay;
    this.#progress.value = isUnderWay ? done / total : 0;
    this.#progress.title = isUnderWay ? formatShare(done / total) : '';
    const focused = document.activeElement;
    this.#pause.hidden = !UNDER_WAY.includes(state);
    this.#resume.hidden = !['paused', 'failed'].includes(state);
    this.#now.hidden = !this.#pause.hidden || !this.#resume.hidden || state === 'off';
    if (focused instanceof HTMLElement && focused.hidden) this.#shown()?.focus();
  }

  #shown() {
    return [this.#now, this.#pause, this.#resume].find((one) => !one.hidden);
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
