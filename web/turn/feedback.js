/**
 * The user's feedback on an answer: good, bad, or a better answer. Pressing the same button again takes it back. A better
 * answer is learned at once, and so is a good one if the user wants that; a note shows what changed.
 */
import { button, element, ProblemLine } from '../common/dom.js';
import { t } from '../i18n/i18n.js';
import { editForm, labelled } from '../common/edit_form.js';
import { LearnedNote } from './learned_note.js';
import { iconButton } from './variant_switch.js';

export class Feedback {
  /** The buttons, for the footer of the answer. */
  element = element('span', 'feedback');
  /** The elements below the footer: the form, and the note about what was learned. */
  below = element('div', 'feedback-below');
  #request;
  #question;
  #answer;
  /** @type {import('../learning/client.js').Learning} */ #learning;
  #onAsk;
  #onChange;
  #opinion = /** @type {'good'|'bad'|null} */ (null);
  #good = iconButton('thumbs-up', t('answers.good'), () => this.judge('good'));
  #bad = iconButton('thumbs-down', t('answers.bad'), () => this.judge('bad'));
  #remember = button(t('feedback.remember'), 'link', () => this.#rememberIt());
  #better = iconButton('pencil', t('answers.better'), () => this.#toggleForm());
  #isTaught;
  #said = element('p', 'feedback-outcome');
  #outcome = element('span');
  #problem = new ProblemLine();
  #form = /** @type {HTMLFormElement|null} */ (null);
  #note = /** @type {LearnedNote|null} */ (null); // of the lesson that was taught here

  /**
   * @param {{request: string, question: string, answer: string, isTaught?: boolean}} said request: the answer's id;
   *   isTaught: a lesson gave it
   * @param {import('../learning/client.js').Learning} learning
   * @param {{onAsk?: ((question: string) => void)|null, onChange?: () => void}} [callbacks] onAsk: asks a question again;
   *   onChange: called after something was drawn
   */
  constructor({ request, question, answer, isTaught = false }, learning, { onAsk = null, onChange = () => {} } = {}) {
    this.#request = request;
    this.#question = question;
    this.#answer = answer;
    this.#isTaught = isTaught;
    this.#learning = learning;
    this.#onAsk = onAsk;
    this.#onChange = onChange;
    this.element.setAttribute('role', 'group');
    this.element.setAttribute('aria-label', t('feedback.group'));
    this.#better.classList.add('better');
    this.#better.append(element('span', '', t('answers.better')));
    this.#better.setAttribute('aria-expanded', 'false');
    this.#outcome.setAttribute('role', 'status');
    this.element.append(this.#good, this.#bad, this.#better);
    this.#remember.title = t('feedback.rememberTitle');
    this.#said.append(this.#outcome, this.#remember);
    this.below.append(this.#problem.element, this.#said);
    this.#showOpinion();
  }

  /** Shows the feedback that was given earlier. @param {string} opinion */
  show(opinion) {
    if (opinion === 'good' || opinion === 'bad') this.#opinion = opinion;
    this.#showOpinion();
  }

  /** Give or take back the feedback. @param {'good'|'bad'} opinion @returns {Promise<boolean>} true if that worked */
  judge(opinion) {
    const isBack = opinion === this.#opinion;
    return this.#try(async () => {
      const given = { id: this.#request };
      const told = await (isBack ? this.#learning.takeBack(given) : this.#learning[opinion](given));
      this.#opinion = isBack ? null : opinion;
      this.#outcome.textContent = t(`feedback.${isBack ? 'takenBack' : told?.off ? 'off' : opinion}`);
      this.#forgetNote(); // a correction is taken back, too
    });
  }

  /** The same, but earlier feedback stays. @param {'good'|'bad'} opinion @returns {Promise<boolean>} */
  async say(opinion) {
    return opinion === this.#opinion || this.judge(opinion);
  }

  #showOpinion() {
    this.#good.setAttribute('aria-pressed', String(this.#opinion === 'good'));
    this.#bad.setAttribute('aria-pressed', String(this.#opinion === 'bad'));
    this.#remember.hidden = this.#opinion !== 'good' || this.#isTaught || this.#note !== null;
  }

  /** Remember question and answer as they are. */
  async #rememberIt() {
    const isKept = await this.#try(async () => {
      const taught = await this.#learning.rememberAnswer({ id: this.#request, question: this.#question, answer: this.#answer });
      this.#outcome.textContent = '';
      this.#showNote(taught, async () => {
        await this.#learning.takeBack({ id: this.#request });
        await this.#learning.good({ id: this.#request }); // that stays
      });
    });
    if (isKept) this.#note?.focus();
  }

  /** Opens the form for a better answer; pressed again, closes it. */
  #toggleForm() {
    if (this.#form) return this.#closeForm(this.#better);
    const question = textarea(this.#question);
    const answer = textarea('');
    answer.placeholder = t('feedback.short');
    this.#outcome.textContent = '';
    this.#forgetNote();
    this.#form = editForm({
      fields: [labelled(t('feedback.whenAsked'), question), labelled(t('feedback.youSay'), answer)],
      label: t('feedback.teach'),
      controls: { question, answer },
      save: () => this.#teach(question.value, answer.value),
      close: () => this.#closeForm(this.#note ?? this.#better),
    });
    this.#form.classList.add('feedback-form');
    this.#form.setAttribute('aria-label', t('feedback.form'));
    this.#better.setAttribute('aria-expanded', 'true');
    this.below.prepend(this.#form);
    answer.focus();
    this.#onChange();
  }

  #closeForm(focused) {
    this.#form?.remove();
    this.#form = null;
    this.#better.setAttribute('aria-expanded', 'false');
    focused.focus({ preventScroll: true });
    this.#onChange();
  }

  async #teach(question, answer) {
    const taught = await this.#learning.shouldHaveSaid({ id: this.#request, question, answer });
    this.#opinion = null;
    this.#showNote(taught, () => this.#learning.takeBack({ id: this.#request }), this.#answer);
    this.#showOpinion();
  }

  /**
   * @param {import('../protocol_calls.js').TaughtLesson} taught
   * @param {() => Promise<unknown>} undo
   * @param {string} [before] the earlier answer, if it was wrong
   */
  #showNote(taught, undo, before) {
    this.#forgetNote();
    this.#note = new LearnedNote(taught, { before, undo, ask: this.#onAsk && (() => this.#onAsk?.(taught.lesson.question)) });
    this.below.append(this.#note.element);
  }

  #forgetNote() {
    this.#note?.element.remove();
    this.#note = null;
  }

  /** Runs one action at a time; a failure is shown, and the action can be tried again. */
  async #try(action) {
    const pressed = /** @type {HTMLElement} */ (document.activeElement);
    this.#problem.say(null);
    this.element.inert = true; // which loses the focus
    let isDone = true;
    try {
      await action();
    } catch (error) {
      isDone = false;
      this.#problem.say(error);
    }
    this.element.inert = false;
    this.#showOpinion();
    if (this.element.contains(pressed)) pressed.focus({ preventScroll: true });
    this.#onChange();
    return isDone;
  }
}

function textarea(value) {
  return Object.assign(element('textarea'), { value, rows: 2, required: true, dir: 'auto' });
}
