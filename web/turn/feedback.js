/**
 * The user's feedback on an answer: good, bad, or a better answer. Pressing the same button again takes it back. A better
 * answer is learned at once, and so is a good one if the user wants that; a note shows what changed.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { element, part, ProblemLine } from '../common/dom.js';
import { icon, iconButton } from '../common/icon.js';
import { t } from '../i18n/i18n.js';
import { editForm, labelled, textArea } from '../common/edit_form.js';
import { LearnedNote } from './learned_note.js';

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
  #isTaught;
  #outcome = '';
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
    this.#draw();
  }

  #draw() {
    const judging = (icon, opinion) => iconButton(icon, t(`answers.${opinion}`), () => this.judge(opinion), { isPressed: this.#opinion === opinion });
    render(html`${judging('thumbs-up', 'good')}${judging('thumbs-down', 'bad')}<button class="action better" type="button"
      title=${t('answers.better')} aria-label=${t('answers.better')} aria-expanded=${String(this.#form !== null)}
      @click=${() => this.#toggleForm()}>${icon('pencil')}<span>${t('answers.better')}</span></button>`, this.element);
    const canBeRemembered = this.#opinion === 'good' && !this.#isTaught && this.#note === null;
    render(html`
      ${this.#form ?? nothing}
      ${this.#problem.element}
      <p class="feedback-outcome"><span role="status">${this.#outcome}</span><button type="button" class="link" title=${t('feedback.rememberTitle')}
        ?hidden=${!canBeRemembered} @click=${() => this.#rememberIt()}>${t('feedback.remember')}</button></p>
      ${this.#note?.element ?? nothing}`, this.below);
  }

  /** Shows the feedback that was given earlier. @param {string} opinion */
  show(opinion) {
    if (opinion === 'good' || opinion === 'bad') this.#opinion = opinion;
    this.#draw();
  }

  /** Give or take back the feedback. @param {'good'|'bad'} opinion @returns {Promise<boolean>} true if that worked */
  judge(opinion) {
    const isBack = opinion === this.#opinion;
    return this.#try(async () => {
      const given = { id: this.#request };
      const told = await (isBack ? this.#learning.takeBack(given) : this.#learning[opinion](given));
      this.#opinion = isBack ? null : opinion;
      this.#outcome = t(`feedback.${isBack ? 'takenBack' : told?.off ? 'off' : opinion}`);
      this.#note = null; // a correction is taken back, too
    });
  }

  /** The same, but earlier feedback stays. @param {'good'|'bad'} opinion @returns {Promise<boolean>} */
  async say(opinion) {
    return opinion === this.#opinion || this.judge(opinion);
  }

  /** Remember question and answer as they are. */
  async #rememberIt() {
    const isKept = await this.#try(async () => {
      const taught = await this.#learning.rememberAnswer({ id: this.#request, question: this.#question, answer: this.#answer });
      this.#outcome = '';
      this.#showNote(taught, async () => {
        await this.#learning.takeBack({ id: this.#request });
        await this.#learning.good({ id: this.#request }); // that stays
      });
    });
    if (isKept) this.#note?.focus();
  }

  get #better() {
    return part(this.element, '.better', HTMLElement);
  }

  /** Opens the form for a better answer; pressed again, closes it. */
  #toggleForm() {
    if (this.#form) return this.#closeForm(this.#better);
    this.#outcome = '';
    this.#note = null;
    const form = this.#form = editForm({
      fields: [
        labelled(t('feedback.whenAsked'), textArea('question', this.#question, { rows: 2 })),
        labelled(t('feedback.youSay'), textArea('answer', '', { rows: 2, placeholder: t('feedback.short') })),
      ],
      label: t('feedback.teach'),
      save: ({ question, answer }) => this.#teach(question, answer),
      close: () => this.#closeForm(this.#note ?? this.#better),
    });
    form.classList.add('feedback-form');
    form.setAttribute('aria-label', t('feedback.form'));
    this.#draw();
    part(form, '[name=answer]', HTMLElement).focus();
    this.#onChange();
  }

  #closeForm(focused) {
    this.#form = null;
    this.#draw();
    focused.focus({ preventScroll: true });
    this.#onChange();
  }

  async #teach(question, answer) {
    const taught = await this.#learning.shouldHaveSaid({ id: this.#request, question, answer });
    this.#opinion = null;
    this.#showNote(taught, () => this.#learning.takeBack({ id: this.#request }), this.#answer);
  }

  /**
   * @param {import('../protocol_calls.js').TaughtLesson} taught
   * @param {() => Promise<unknown>} undo
   * @param {string} [before] the earlier answer, if it was wrong
   */
  #showNote(taught, undo, before) {
    this.#note = new LearnedNote(taught, { before, undo, ask: this.#onAsk && (() => this.#onAsk?.(taught.lesson.question)) });
    this.#draw();
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
    this.#draw();
    if (this.element.contains(pressed)) pressed.focus({ preventScroll: true });
    this.#onChange();
    return isDone;
  }
}
