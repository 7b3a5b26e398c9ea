/** Learning in pauses: its current step, its progress, and buttons to pause and to resume it. */
import { html, render } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { element, part, ProblemLine } from '../../common/dom.js';

const UNDER_WAY = ['running', 'held'];
const STANDS_STILL = ['paused', 'failed'];

export class IdleSection {
  element = element('section', 'loop');
  #learning;
  #problem = new ProblemLine();

  /** @param {import('../../learning/client.js').Learning} learning */
  constructor(learning) {
    this.#learning = learning;
    this.element.setAttribute('aria-labelledby', 'idle-title');
  }

  /** @param {import('../../i18n/engine_texts.js').Said<import('../../protocol_calls.js').IdleStatus>|null} status null: nothing can learn in pauses */
  show(status) {
    this.element.hidden = status === null;
    if (status === null) return;
    const { state, sentence, done, total } = status;
    const isStill = STANDS_STILL.includes(state);
    const hadFocus = this.element.contains(document.activeElement);
    const choice = (words, isHidden, run) => html`
      <button type="button" class="quiet" ?hidden=${isHidden} @click=${() => this.#try(run)}>${words}</button>`;
    render(html`
      <h3 id="idle-title">${t('idle.title')}</h3>
      <p class="loop-state" role="status">${sentence}</p>
      <progress max="1" aria-label=${t('idle.done')} .value=${total ? done / total : 0} ?hidden=${!UNDER_WAY.includes(state) || total === 0}></progress>
      <div class="record-actions">
        ${choice(t('idle.pause'), isStill, () => this.#learning.pause())}${choice(t('idle.goOn'), !isStill, () => this.#learning.resume())}
      </div>
      ${this.#problem.element}`, this.element);
    if (hadFocus) part(this.element, 'button:not([hidden])', HTMLElement).focus();
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
