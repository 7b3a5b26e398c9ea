/**
 * Lessons below an answer about them: forgotten ones, possible matches, or everything that was taught. Each can be forgotten,
 * and restored as long as the page is open.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
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
  const forgetAll = async ({ currentTarget: pressed }) => {
    pressed.disabled = true;
    for (const row of rows) await row.forget();
    draw(false);
  };
  const draw = (canForgetAll) => render(html`
    <ul class="lesson-rows">${rows.map((row) => row.element)}</ul>
    ${canForgetAll ? button(t('lessonCard.forgetAll'), 'quiet', forgetAll) : nothing}`, card);
  draw(rows.length > 1 && kind !== 'forgotten');
  return card;
}

class LessonRow {
  element = element('li', 'lesson-row');
  #id;
  #question;
  #lesson = /** @type {import('../protocol_calls.js').LessonView|null|undefined} */ (undefined); // null: it is forgotten
  #canComeBack = false; // it was forgotten on this page
  /** @type {import('../learning/client.js').Learning} */ #learning;
  #onChange;
  #problem = new ProblemLine();

  /** @param {string} id @param {string} question @param {import('../learning/client.js').Learning} learning */
  constructor(id, question, learning, isForgotten, onChange) {
    this.#id = id;
    this.#question = question;
    this.#onChange = onChange;
    this.#learning = learning;
    this.#draw();
    this.#show(isForgotten);
  }

  #draw() {
    const lesson = this.#lesson, isForgotten = lesson === null;
    const action = lesson ? button(t('lessonCard.forget'), 'quiet', () => this.forget())
      : isForgotten && this.#canComeBack ? button(t('lessonCard.undo'), 'quiet', () => this.#undo()) : nothing;
    this.element.classList.toggle('forgotten', isForgotten);
    render(html`
      <span class="lesson-row-question" dir="auto">${this.#question}</span>
      <span class="lesson-row-answer" dir="auto" role="status">${isForgotten ? t('lessonCard.gone') : lesson?.answer ?? ''}</span>
      <span>${action}</span>
      ${this.#problem.element}`, this.element);
  }

  /** @param {boolean} canComeBack */
  async #show(canComeBack) {
    this.#lesson = await this.#learning.lesson({ id: this.#id }).catch(() => null);
    this.#canComeBack = canComeBack;
    this.#draw();
    this.#onChange();
  }

  forget() {
    return this.#try(() => this.#learning.forget({ ids: [this.#id] }), true);
  }

  #undo() {
    return this.#try(() => this.#learning.restore({ ids: [this.#id] }), false);
  }

  async #try(act, canComeBack) {
    if ((this.#lesson === null) === canComeBack) return; // forgotten already
    this.#problem.say(null);
    const hadFocus = this.element.contains(document.activeElement);
    try {
      await act();
    } catch (error) {
      this.#problem.say(error);
    }
    await this.#show(canComeBack);
    if (hadFocus) this.element.querySelector('button')?.focus({ preventScroll: true });
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
  const yes = act(async () => {
    while (lessons.length) { // a failed attempt to remember can be tried again
      const [{ question, answer }] = lessons;
      showLearned(await remember(question, answer));
      lessons.shift();
    }
  });
  const facts = lessons.map(({ answer }) => t('lessonCard.quoted', { fact: answer })).join(' ');
  render(html`
    <span dir="auto">${t('lessonCard.offer', { facts })}</span>
    ${button(t('lessonCard.remember'), 'quiet', yes)}${button(t('lessonCard.dismiss'), 'quiet', act(dismiss))}
    ${problem.element}`, line);
  return line;
}
