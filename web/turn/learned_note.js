/** "Learned just now": the lesson, the earlier answer, and how sure the model was and now is of it. */
import { t } from '../i18n/i18n.js';
import { button, element, ProblemLine } from '../common/dom.js';
import { formatDuration, formatShare } from '../common/format.js';

const LEAST = 0.001; // a lower probability is shown as "under 0.1%"

export class LearnedNote {
  element = element('section', 'learned');
  #outcome = element('p', 'learned-outcome');
  #problem = new ProblemLine();
  #actions = element('div', 'learned-actions');

  /**
   * @param {import('../protocol_calls.js').TaughtLesson} taught
   * @param {{before?: string, undo: (() => Promise<unknown>)|null, ask?: (() => void)|null}} callbacks before: the model's
   *   earlier answer; undo: null if there is nothing to undo; ask: asks the question again
   */
  constructor({ lesson, ms, nllBefore, nllAfter, replaced, known = false }, { before = '', undo, ask = null }) {
    const isLater = nllAfter === null;
    const title = t(known ? 'feedback.known' : isLater ? 'feedback.noted' : ms === null ? 'feedback.learned' : 'feedback.learnedNow');
    const head = element('h3', '', title);
    if (!known && !isLater && ms !== null) head.append(' ', element('small', '', t('feedback.inTime', { time: formatDuration(ms) })));
    const said = element('dl', 'learned-said');
    said.append(...entry(t('feedback.question'), lesson.question));
    const old = replaced?.answer ?? before;
    if (old) said.append(...entry(t(replaced ? 'feedback.taught' : 'feedback.before'), old));
    said.append(...entry(t('feedback.next'), lesson.answer));
    this.#outcome.setAttribute('role', 'status');
    this.element.setAttribute('aria-label', title);
    this.element.tabIndex = -1;
    const undoing = button(t('feedback.undo'), 'quiet', () => this.#undo(undoing, undo));
    if (undo) this.#actions.append(undoing);
    if (ask) this.#actions.append(button(t('feedback.askAgain'), 'quiet', ask));
    const sure = element('p', 'learned-lead', t(isLater ? 'feedback.later' : 'feedback.sure'));
    this.element.append(head, said, sure);
    if (nllBefore !== null && nllAfter !== null) this.element.append(certainties(nllBefore, nllAfter));
    this.element.append(this.#actions, this.#outcome, this.#problem.element);
  }

  /** Takes the focus that the form had: a screen reader announces what was learned. */
  focus() {
    this.element.focus({ preventScroll: true });
  }

  async #undo(pressed, undo) {
    this.#problem.say(null);
    pressed.disabled = true;
    try {
      await undo();
      this.element.classList.add('undone');
      this.#actions.remove();
      this.#outcome.textContent = t('feedback.undone');
      this.focus();
    } catch (error) {
      pressed.disabled = false;
      this.#problem.say(error);
    }
  }
}

function entry(name, text) {
  const value = element('dd', '', text);
  value.dir = 'auto';
  return [element('dt', '', name), value];
}

/** Two bars: how sure the model was before, and is now. */
function certainties(before, after) {
  const list = element('ul', 'certainties');
  for (const [name, nll] of /** @type {[string, number][]} */ ([[t('feedback.before'), before], [t('feedback.now'), after]])) {
    const share = Math.exp(-nll);
    const bar = element('span', 'certainty-bar');
    bar.style.inlineSize = `${100 * share}%`;
    const track = element('span', 'certainty-track');
    track.append(bar);
    const line = element('li');
    line.append(element('span', '', name), track, element('span', 'certainty-share', formatCertainty(share)));
    list.append(line);
  }
  return list;
}

/** "under 0.1%", "4.2%", "98%" */
export function formatCertainty(share) {
  if (share < LEAST) return t('feedback.lessThan', { share: formatShare(LEAST, 1) });
  return formatShare(share, share < 0.1 ? 1 : 0);
}
