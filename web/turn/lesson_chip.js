/**
 * The chip of an answer that a lesson gave: the lesson, and how sure Sonata is that the question asked for it. Opened, it shows
 * the lesson, which can be forgotten there. If Sonata was not sure, the model read a few lessons and gave the answer of this
 * one; the chip then says so, and lists them.
 */
import { wholeEnd } from '../common/cut.js';
import { t } from '../i18n/i18n.js';
import { floatPanel } from '../common/card.js';
import { button, element, ProblemLine } from '../common/dom.js';
import { formatShare } from '../common/format.js';

const LONGEST_QUESTION = 80; // characters of the lesson that the chip shows

export class LessonChip {
  element = element('div', 'lesson');
  #lesson;
  /** @type {import('../learning/client.js').Learning} */ #learning;
  #onWrong;
  #details = element('details', 'lesson-details');
  #chip = element('summary', 'lesson-chip');
  #panel = element('div', 'lesson-panel');
  #outcome = element('p', 'lesson-outcome');
  #problem = new ProblemLine();

  /**
   * @param {import('../protocol.js').Recall} lesson
   * @param {import('../learning/client.js').Learning} learning
   * @param {() => Promise<boolean>} onWrong the user rates the answer as bad; returns true if that was noted
   */
  constructor(lesson, learning, onWrong) {
    this.#lesson = lesson;
    this.#learning = learning;
    this.#onWrong = onWrong;
    this.#outcome.setAttribute('role', 'status');
    this.#chip.textContent = this.#title;
    this.#chip.title = t('taught.tooltip');
    this.#details.append(this.#chip, this.#panel);
    this.#details.addEventListener('toggle', () => this.#details.open && this.#explain());
    floatPanel(this.#details, this.#panel);
    this.element.append(this.#details, this.#outcome, this.#problem.element);
  }

  get #words() {
    const { read, question } = this.#lesson;
    const short = question.length > LONGEST_QUESTION ? `${question.slice(0, wholeEnd(question, LONGEST_QUESTION))}…` : question;
    return read?.length ? t('taught.read', { question: short }) : t('taught.youTaught');
  }

  get #title() {
    return `${this.#words} · ${formatShare(this.#lesson.confidence)}`;
  }

  async #explain() {
    const { id, question, confidence } = this.#lesson;
    this.#problem.say(null);
    let lesson = /** @type {import('../protocol_calls.js').LessonView|null} */ (null);
    try {
      lesson = await this.#learning.lesson({ id });
    } catch (error) {
      this.#problem.say(error);
    }
    const said = element('dl', 'learned-said');
    for (const [name, text] of [[t('taught.ask'), lesson?.question ?? question], [t('taught.says'), lesson?.answer]]) {
      if (text) said.append(element('dt', '', name), Object.assign(element('dd', '', text), { dir: 'auto' }));
    }
    const { read } = this.#lesson;
    const sure = read?.length ? notSure(read, confidence) : t('taught.likely', { share: formatShare(confidence) });
    const actions = element('div', 'lesson-actions');
    if (lesson) actions.append(button(t('taught.forget'), 'quiet', () => this.#forget()), button(t('taught.wrong'), 'quiet', () => this.#wrong()));
    else actions.append(element('p', 'lesson-lead', t('taught.gone')));
    this.#panel.replaceChildren(element('h3', '', t('taught.title')), said, element('p', 'lesson-lead', sure), actions);
  }

  async #forget() {
    await this.#try(async () => {
      await this.#learning.forget({ ids: [this.#lesson.id] });
      this.#chip.textContent = `${this.#words} · ${t('taught.forgotten')}`;
      this.#outcome.replaceChildren(button(t('taught.undo'), 'link', () => this.#undo()));
    });
  }

  async #undo() {
    await this.#try(async () => {
      const replaced = await this.#learning.restore({ ids: [this.#lesson.id] });
      this.#chip.textContent = this.#title;
      this.#outcome.replaceChildren(t(replaced ? 'taught.history' : 'taught.remembered'));
    });
  }

  async #wrong() {
    await this.#try(async () => {
      if (await this.#onWrong()) this.#outcome.replaceChildren(t('taught.noted'));
    });
  }

  /** Runs one action at a time; a failure is shown, and the action can be tried again. */
  async #try(action) {
    this.#problem.say(null);
    this.element.inert = true; // which loses the focus
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

/** Says why the model read lessons, and which. */
function notSure(read, confidence) {
  const questions = read.map(({ question }) => t('taught.quoted', { question })).join(', ');
  const which = read.length === 1 ? t('taught.it') : t('taught.which', { questions });
  return t('taught.notSure', { which, share: formatShare(confidence) });
}
