/**
 * Shown below an answer: how it ended, if that was unusual, with a way to continue; and a row of actions: other answers, copy,
 * try again, good, bad, a better one, and a menu.
 */
import { button, element } from '../common/dom.js';
import { t } from '../i18n/i18n.js';
import { answerMenu } from './answer_menu.js';
import { Feedback } from './feedback.js';
import { copyWithIcon } from '../markdown/clipboard.js';
import { iconButton, showVariants } from './variant_switch.js';

/** For each ending of an answer: its text, and the action that is offered. */
const ENDINGS = {
  stopped: { words: 'answers.stopped', offers: ['continue', 'again'] },
  length: { words: 'answers.cutOff', offers: ['continue'] },
  context: { words: 'answers.contextFull', offers: [] },
  loop: { words: 'answers.looped', offers: ['again'] },
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
  #actions = element('div', 'answer-actions');
  #ending = element('p', 'answer-ending');
  #again;
  #feedback = /** @type {Feedback|null} */ (null);
  #figures = /** @type {import('./answer_menu.js').Figures} */ ({});

  /** @param {Answer} answer */
  constructor(answer) {
    this.#answer = answer;
    this.#again = iconButton('refresh-cw', t('answers.again'), () => answer.onAgain());
    this.#ending.hidden = true;
    this.element.append(this.#ending, this.#actions);
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
    const { text, html, plain, onContinue } = this.#answer;
    if (text()) {
      const copy = iconButton('copy', t('answers.copyAnswer'), () => copyWithIcon(copy, text, html));
      const menu = answerMenu({ markdown: text, plain, figures: () => this.#figures, onContinue });
      this.#actions.append(copy, this.#again, menu);
    } else {
      this.#actions.append(this.#again);
    }
    const usual = text() ? { words: null, offers: [] } : NOTHING_SAID;
    const { words, offers } = ENDINGS[reason] ?? usual;
    const said = [words ? t(words) : '', forgotten ? t('answers.forgotten') : ''].filter(Boolean).join(' ');
    if (!said) return '';
    this.#ending.hidden = false;
    this.#ending.append(element('span', words ? 'ending' : 'forgotten', said));
    // Only the last answer can be continued: actions.css hides the button of the others.
    if (offers.includes('continue')) this.#ending.append(button(t('answers.continue'), 'link go-on', () => onContinue()?.()));
    if (offers.includes('again')) this.#ending.append(button(t('answers.again'), 'link', () => this.#answer.onAgain()));
    return said;
  }

  /** The answer is stored, among these variants. @param {import('./question_view.js').Place} place */
  place(place) {
    showVariants(this.#actions, place, (wanted) => this.#answer.onChoose(wanted), 'first');
  }

  /**
   * @param {ConstructorParameters<typeof Feedback>} given
   * @returns {HTMLElement} the element to show below
   */
  offerFeedback(...given) {
    this.#feedback = new Feedback(...given);
    this.#again.after(this.#feedback.element);
    return this.#feedback.below;
  }
}
