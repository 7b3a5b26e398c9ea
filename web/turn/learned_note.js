/** "Learned just now": the lesson, the earlier answer, and how sure the model was and now is of it. */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { t } from '../i18n/i18n.js';
import { button, element, ProblemLine } from '../common/dom.js';
import { formatDuration, formatShare } from '../common/format.js';

const LEAST = 0.001; // a lower probability is shown as "under 0.1%"

export class LearnedNote {
  element = element('section', 'learned');
  #taught;
  #callbacks;
  #isUndoing = false;
  #isUndone = false;
  #problem = new ProblemLine();

  /**
   * @param {import('../protocol_calls.js').TaughtLesson} taught
   * @param {{before?: string, undo: (() => Promise<unknown>)|null, ask?: (() => void)|null}} callbacks before: the model's
   *   earlier answer; undo: null if there is nothing to undo; ask: asks the question again
   */
  constructor(taught, callbacks) {
    this.#taught = taught;
    this.#callbacks = callbacks;
    this.element.tabIndex = -1;
    this.#draw();
  }

  #draw() {
    const { lesson, ms, nllBefore, nllAfter, replaced, known = false } = this.#taught;
    const { before = '', undo, ask = null } = this.#callbacks;
    const isLater = nllAfter === null;
    const title = t(known ? 'feedback.known' : isLater ? 'feedback.noted' : ms === null ? 'feedback.learned' : 'feedback.learnedNow');
    const time = known || isLater || ms === null ? nothing : html` <small>${t('feedback.inTime', { time: formatDuration(ms) })}</small>`;
    const old = replaced?.answer ?? before;
    this.element.setAttribute('aria-label', title);
    this.element.classList.toggle('undone', this.#isUndone);
    render(html`
      <h3>${title}${time}</h3>
      <dl class="learned-said">
        ${entry(t('feedback.question'), lesson.question)}
        ${old ? entry(t(replaced ? 'feedback.taught' : 'feedback.before'), old) : nothing}
        ${entry(t('feedback.next'), lesson.answer)}
      </dl>
      <p class="learned-lead">${t(isLater ? 'feedback.later' : 'feedback.sure')}</p>
      ${nllBefore !== null && nllAfter !== null ? certainties(nllBefore, nllAfter) : nothing}
      ${this.#isUndone ? nothing : html`
        <div class="learned-actions">
          ${undo ? html`<button type="button" class="quiet" ?disabled=${this.#isUndoing} @click=${() => this.#undo(undo)}>${t('feedback.undo')}</button>` : nothing}
          ${ask ? button(t('feedback.askAgain'), 'quiet', ask) : nothing}
        </div>`}
      <p class="learned-outcome" role="status">${this.#isUndone ? t('feedback.undone') : ''}</p>
      ${this.#problem.element}`, this.element);
  }

  /** Takes the focus that the form had: a screen reader announces what was learned. */
  focus() {
    this.element.focus({ preventScroll: true });
  }

  async #undo(undo) {
    this.#problem.say(null);
    this.#isUndoing = true;
    this.#draw();
    try {
      await undo();
      this.#isUndone = true;
    } catch (error) {
      this.#problem.say(error);
    }
    this.#isUndoing = false;
    this.#draw();
    if (this.#isUndone) this.focus();
  }
}

function entry(name, text) {
  return html`<dt>${name}</dt><dd dir="auto">${text}</dd>`;
}

/** Two bars: how sure the model was before, and is now. */
function certainties(before, after) {
  const bars = /** @type {[string, number][]} */ ([[t('feedback.before'), before], [t('feedback.now'), after]]);
  return html`<ul class="certainties">${bars.map(([name, nll]) => {
    const share = Math.exp(-nll);
    return html`<li><span>${name}</span><span class="certainty-track"><span class="certainty-bar" .style=${`inline-size: ${100 * share}%`}></span></span><span
      class="certainty-share">${formatCertainty(share)}</span></li>`;
  })}</ul>`;
}

/** "under 0.1%", "4.2%", "98%" */
export function formatCertainty(share) {
  if (share < LEAST) return t('feedback.lessThan', { share: formatShare(LEAST, 1) });
  return formatShare(share, share < 0.1 ? 1 : 0);
}
