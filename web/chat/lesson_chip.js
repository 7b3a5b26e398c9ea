/**
 * The chip of an answer that a lesson gave: what the user had taught, and how sure Sonata is that it was asked for. Opened,
 * it shows the lesson, which can be forgotten there. Where Sonata was not sure, the model read a few lessons and gave the
 * answer of this one; then the chip says so, and which they were.
 */
import { floatPanel } from '../page/card.js';
import { button, element, ProblemLine } from '../page/dom.js';
import { formatShare } from '../page/format.js';

const LONGEST_QUESTION = 80; // characters that the chip shows of it

export class LessonChip {
  element = element('div', 'lesson');
  #lesson;
  #learning;
  #onWrong;
  #details = element('details', 'lesson-details');
  #chip = element('summary', 'lesson-chip');
  #panel = element('div', 'lesson-panel');
  #outcome = element('p', 'lesson-outcome');
  #problem = new ProblemLine();

  /**
   * @param {{id: string, question: string, answer?: string, confidence: number, read?: {id: string, question: string}[]}} lesson
   *   as the event says
   * @param {import('../learning/client.js').Learning} learning
   * @param {() => Promise<boolean>} onWrong the user finds the answer bad; whether that was noted
   */
  constructor(lesson, learning, onWrong) {
    this.#lesson = lesson;
    this.#learning = learning;
    this.#onWrong = onWrong;
    this.#outcome.setAttribute('role', 'status');
    this.#chip.textContent = this.#title;
    this.#chip.title = 'What you taught, and how to forget it';
    this.#details.append(this.#chip, this.#panel);
    this.#details.addEventListener('toggle', () => this.#details.open && this.#explain());
    floatPanel(this.#details, this.#panel);
    this.element.append(this.#details, this.#outcome, this.#problem.element);
  }

  get #words() {
    const { read, question } = this.#lesson;
    const short = question.length > LONGEST_QUESTION ? `${question.slice(0, LONGEST_QUESTION)}…` : question;
    return read?.length ? `Read from what you taught: ${short}` : 'You taught this';
  }

  get #title() {
    return `${this.#words} · ${formatShare(this.#lesson.confidence)}`;
  }

  async #explain() {
    const { id, question, confidence } = this.#lesson;
    this.#problem.say(null);
    let lesson = /** @type {import('../learning/client.js').Lesson|null} */ (null);
    try {
      lesson = await this.#learning.lesson(id);
    } catch (error) {
      this.#problem.say(error);
    }
    const said = element('dl', 'learned-said');
    for (const [name, text] of [['When you ask', lesson?.question ?? question], ['it says', lesson?.answer]]) {
      if (text) said.append(element('dt', '', name), Object.assign(element('dd', '', text), { dir: 'auto' }));
    }
    const { read } = this.#lesson;
    const sure = read?.length ? notSure(read, confidence) : `Your message asks for this with a likelihood of ${formatShare(confidence)}, as far as Sonata can tell.`;
    const actions = element('div', 'lesson-actions');
    if (lesson) actions.append(button('Forget', 'quiet', () => this.#forget()), button('This was wrong', 'quiet', () => this.#wrong()));
    else actions.append(element('p', 'lesson-lead', 'It was forgotten since.'));
    this.#panel.replaceChildren(element('h3', '', 'What you taught'), said, element('p', 'lesson-lead', sure), actions);
  }

  async #forget() {
    await this.#try(async () => {
      await this.#learning.forget([this.#lesson.id]);
      this.#chip.textContent = `${this.#words} · forgotten`;
      this.#outcome.replaceChildren(button('Undo', 'link', () => this.#undo()));
    });
  }

  async #undo() {
    await this.#try(async () => {
      const replaced = await this.#learning.restore([this.#lesson.id]);
      this.#chip.textContent = this.#title;
      this.#outcome.replaceChildren(replaced ? 'It is kept as history: you have taught a newer answer since.' : 'It is remembered again.');
    });
  }

  async #wrong() {
    await this.#try(async () => {
      if (await this.#onWrong()) this.#outcome.replaceChildren('Noted. Messages like this one lead to it less easily.');
    });
  }

  /** One action at a time; what fails is said, and can be tried again. */
  async #try(action) {
    this.#problem.say(null);
    this.element.inert = true; // which takes the focus away
    try {
      await action();
      this.#details.open = false;
    } catch (error) {
      this.#problem.say(error);
    }
    this.element.inert = false;
    this.#chip.focus({ preventScroll: true });
  }
}

/** Why the model read lessons, and which. */
function notSure(read, confidence) {
  const which = read.length === 1 ? 'it' : `what you taught for ${read.map(({ question }) => `“${question}”`).join(', ')}`;
  return `Sonata was not sure that your message asks for this (${formatShare(confidence)}), so the model read ${which} and answered `
    + 'from this.';
}
