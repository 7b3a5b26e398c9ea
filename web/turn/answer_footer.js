/**
 * Shown below an answer: how it ended, if that was unusual, with a way to continue; and a row of actions: other answers, copy,
 * try again, good, bad, a better one, and a menu.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { button, element } from '../common/dom.js';
import { iconButton } from '../common/icon.js';
import { t } from '../i18n/i18n.js';
import { answerMenu } from './answer_menu.js';
import { Feedback } from './feedback.js';
import { copyButton } from '../markdown/clipboard.js';
import { variantSwitch } from './variant_switch.js';

/** For each ending of an answer: its text, and the action that is offered. */
const ENDINGS = {
  stopped: { words: 'answers.stopped', offers: ['continue', 'again'] },
  length: { words: 'answers.cutOff', offers: ['continue'] },
  context: { words: 'answers.contextFull', offers: [] },
  loop: { words: 'answers.looped', offers: ['again'] },
  calls: { words: 'answers.calledOften', offers: ['again'] },
  failed: { words: 'answers.interrupted', offers: ['again'] },
};
const NOTHING_SAID = { words: 'answers.nothingSaid', offers: ['again'] };

/**
 * @typedef {{text: () => string, html: () => string, plain: () => string, onAgain: () => void, onContinue: () => (() =>
 *   void)|null, onChoose: (number: number) => void}} Answer what the footer needs of it
 */

export class AnswerFooter {
  element = element('footer', 'answer-footer');
  #answer;
  #place = /** @type {import('./question_view.js').Place} */ ({ number: null, after: null, siblings: [] });
  #ending = /** @type {{words: string|null, offers: string[], said: string}|null} */ (null); // null: the answer is not over
  #feedback = /** @type {Feedback|null} */ (null);
  #figures = /** @type {import('./answer_menu.js').Figures} */ ({});

  /** @param {Answer} answer */
  constructor(answer) {
    this.#answer = answer;
  }

  get feedback() {
    return this.#feedback;
  }

  /**
   * The answer is over.
   * @param {{reason: string, forgotten: boolean, figures: import('./answer_menu.js').Figures}} ending
   * @returns {string} the sentence about the end, "" if there is none
   */
  end({ reason, forgotten, figures }) {
    this.#figures = figures;
    const usual = this.#answer.text() ? { words: null, offers: [] } : NOTHING_SAID;
    const { words, offers } = ENDINGS[reason] ?? usual;
    const said = [words ? t(words) : '', forgotten ? t('answers.forgotten') : ''].filter(Boolean).join(' ');
    this.#ending = { words, offers, said };
    this.#draw();
    return said;
  }

  /** The answer is stored, among these variants. @param {import('./question_view.js').Place} place */
  place(place) {
    if (place.siblings.length) this.#place = place;
    this.#draw();
  }

  /**
   * @param {ConstructorParameters<typeof Feedback>} given
   * @returns {HTMLElement} the element to show below
   */
  offerFeedback(...given) {
    this.#feedback = new Feedback(...given);
    this.#draw();
    return this.#feedback.below;
  }

  #draw() {
    render(html`
      <p class="answer-ending" ?hidden=${!this.#ending?.said}>${this.#sentence()}</p>
      <div class="answer-actions">${variantSwitch(this.#place, this.#answer.onChoose)}${this.#actions()}</div>`, this.element);
  }

  #sentence() {
    if (!this.#ending?.said) return nothing;
    const { words, offers, said } = this.#ending;
    // Only the last answer can be continued: actions.css hides the button of the others.
    return html`
      <span class=${words ? 'ending' : 'forgotten'}>${said}</span>
      ${offers.includes('continue') ? button(t('answers.continue'), 'link go-on', () => this.#answer.onContinue()?.()) : nothing}
      ${offers.includes('again') ? button(t('answers.again'), 'link', () => this.#answer.onAgain()) : nothing}`;
  }

  #actions() {
    if (!this.#ending) return nothing;
    const { text, html: asHtml, plain, onAgain, onContinue } = this.#answer;
    const again = iconButton('refresh-cw', t('answers.again'), () => onAgain());
    if (!text()) return again;
    return [
      copyButton(t('answers.copyAnswer'), text, asHtml), again, this.#feedback?.element ?? nothing,
      answerMenu({ markdown: text, plain, figures: () => this.#figures, onContinue }),
    ];
  }
}
