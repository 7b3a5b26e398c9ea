/**
 * Lessons below an answer about them: forgotten ones, possible matches, or everything that was taught. Each can be forgotten,
 * and restored as long as the page is open.
 */
import { t } from '../i18n/i18n.js';
import { button, element, ProblemLine } from '../common/dom.js';

/**
 * @param {import('../protocol.js').Card} shown
 * @param {import('../learning/client.js').Learning} learning
 * @param {() => void} onChange called when its height may have changed
 */
export function lessonCard({ kind, lessons, new: isNew }, learning, onChange) {
  const card = element('section', 'learned lesson-card');
  card.setAttribute('aria-label', t(kind === 'forgotten' ? 'lessonCard.forgotten' : 'lessonCard.taught'));
  const rows = lessons.map(({ id, question }) => new LessonRow(id, question, learning, isNew && kind === 'forgotten', onChange));
  const list = element('ul', 'lesson-rows');
  list.append(...rows.map((row) => row.element));
  card.append(list);
  if (rows.length > 1 && kind !== 'forgotten') {
    const every = button(t('lessonCard.forgetAll'), 'quiet', async () => {
      every.disabled = true;
      for (const row of rows) await row.forget();
      every.remove();
    });
    card.append(every);
  }
  return card;
}

class LessonRow {
  element = element('li', 'lesson-row');
  #id;
  /** @type {import('../learning/client.js').Learning} */ #learning;
  #onChange;
  #answer = element('span', 'lesson-row-answer');
  #action = element('span');
  #problem = new ProblemLine();

  /** @param {string} id @param {string} question @param {import('../learning/client.js').Learning} learning */
  constructor(id, question, learning, isForgotten, onChange) {
    this.#id = id;
    this.#onChange = onChange;
    this.#learning = learning;
    const asked = Object.assign(element('span', 'lesson-row-question', question), { dir: 'auto' });
    this.#answer.dir = 'auto';
    this.#answer.setAttribute('role', 'status');
    this.element.append(asked, this.#answer, this.#action, this.#problem.element);
    this.#show(isForgotten);
  }

  /** @param {boolean} canComeBack true if it was forgotten on this page */
  async #show(canComeBack = false) {
    const lesson = await this.#learning.lesson({ id: this.#id }).catch(() => null);
    this.element.classList.toggle('forgotten', !lesson);
    this.#answer.textContent = lesson ? lesson.answer : t('lessonCard.gone');
    const action = lesson ? button(t('lessonCard.forget'), 'quiet', () => this.forget())
      : canComeBack ? button(t('lessonCard.undo'), 'quiet', () => this.#undo()) : null;
    this.#action.replaceChildren(...(action ? [action] : []));
    this.#onChange();
  }

  forget() {
    return this.#try(() => this.#learning.forget({ ids: [this.#id] }), true);
  }

  #undo() {
    return this.#try(() => this.#learning.restore({ ids: [this.#id] }), false);
  }

  async #try(act, canComeBack) {
    if (this.element.classList.contains('forgotten') === canComeBack) return; // forgotten already
    this.#problem.say(null);
    const hadFocus = this.#action.contains(document.activeElement);
    try {
      await act();
    } catch (error) {
      this.#problem.say(error);
    }
    await this.#show(canComeBack);
    if (hadFocus) this.#action.querySelector('button')?.focus({ preventScroll: true });
  }
}

/**
 * "Remember this?" below the answer to a message in which the user mentioned something about themselves.
 * @param {import('../protocol.js').Offer} offer
 * @param {{remember: (question: string, answer: string) => Promise<import('../protocol_calls.js').TaughtLesson>,
 *   showLearned: (taught: import('../protocol_calls.js').TaughtLesson) => void, dismiss: () => Promise<unknown>}} actions
 */
export function offerLine({ lessons }, { remember, showLearned, dismiss }) {
  const line = element('div', 'lesson-offer');
  const problem = new ProblemLine();
  const said = element('span', '', t('lessonCard.offer', { facts: lessons.map(({ answer }) => t('lessonCard.quoted', { fact: answer })).join(' ') }));
  said.dir = 'auto';
  const act = (work) => async () => {
    problem.say(null);
    line.inert = true;
    try {
      await work();
      line.remove();
    } catch (error) {
      problem.say(error);
    }
    line.inert = false;
  };
  const yes = button(t('lessonCard.remember'), 'quiet', act(async () => {
    while (lessons.length) { // a failed attempt to remember can be tried again
      const [{ question, answer }] = lessons;
      showLearned(await remember(question, answer));
      lessons.shift();
    }
  }));
  const no = button(t('lessonCard.dismiss'), 'quiet', act(dismiss));
  line.append(said, yes, no, problem.element);
  return line;
}
