/**
 * The chip of an answer that a lesson gave: the lesson, and how sure Sonata is that the question asked for it. Opened, it shows
 * the lesson, which can be forgotten there. If Sonata was not sure, the model read a few lessons and gave the answer of this
 * one; the chip then says so, and lists them.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { wholeEnd } from '../common/cut.js';
import { t } from '../i18n/i18n.js';
import { floatPanel } from '../common/card.js';
import { button, element, part, ProblemLine } from '../common/dom.js';
import { formatShare } from '../common/format.js';

const LONGEST_QUESTION = 80; // characters of the lesson that the chip shows

export class LessonChip {
  element = element('div', 'lesson');
  #lesson;
  /** @type {import('../learning/client.js').Learning} */ #learning;
  #onWrong;
  #known = /** @type {import('../protocol_calls.js').LessonView|null|undefined} */ (undefined); // undefined: not asked yet; null: it is gone
  #isForgotten = false; // here
  #outcome = /** @type {unknown} */ (''); // a sentence or a template
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
    this.#draw();
    floatPanel(this.#details, part(this.element, '.lesson-panel', HTMLElement));
  }

  get #details() {
    return part(this.element, 'details', HTMLDetailsElement);
  }

  #draw() {
    const said = this.#isForgotten ? t('taught.forgotten') : formatShare(this.#lesson.confidence);
    render(html`
      <details class="lesson-details" @toggle=${(event) => event.target.open && this.#explain()}>
        <summary class="lesson-chip" title=${t('taught.tooltip')}>${`${this.#words} · ${said}`}</summary>
        <div class="lesson-panel">${this.#known === undefined ? nothing : this.#explanation(this.#known)}</div>
      </details>
      <p class="lesson-outcome" role="status">${this.#outcome}</p>
      ${this.#problem.element}`, this.element);
  }

  get #words() {
    const { read, question } = this.#lesson;
    const short = question.length > LONGEST_QUESTION ? `${question.slice(0, wholeEnd(question, LONGEST_QUESTION))}…` : question;
    return read?.length ? t('taught.read', { question: short }) : t('taught.youTaught');
  }

  async #explain() {
    this.#problem.say(null);
    try {
      this.#known = await this.#learning.lesson({ id: this.#lesson.id });
    } catch (error) {
      this.#known = null;
      this.#problem.say(error);
    }
    this.#draw();
  }

  /** @param {import('../protocol_calls.js').LessonView|null} lesson */
  #explanation(lesson) {
    const { question, confidence, read } = this.#lesson;
    const entry = (name, text) => (text ? html`<dt>${name}</dt><dd dir="auto">${text}</dd>` : nothing);
    return html`
      <h3>${t('taught.title')}</h3>
      <dl class="learned-said">${entry(t('taught.ask'), lesson?.question ?? question)}${entry(t('taught.says'), lesson?.answer)}</dl>
      <p class="lesson-lead">${read?.length ? notSure(read, confidence) : t('taught.likely', { share: formatShare(confidence) })}</p>
      <div class="lesson-actions">
        ${lesson ? [button(t('taught.forget'), 'quiet', () => this.#forget()), button(t('taught.wrong'), 'quiet', () => this.#wrong())]
          : html`<p class="lesson-lead">${t('taught.gone')}</p>`}
      </div>`;
  }

  #forget() {
    return this.#try(async () => {
      await this.#learning.forget({ ids: [this.#lesson.id] });
      this.#isForgotten = true;
      this.#outcome = button(t('taught.undo'), 'link', () => this.#undo());
    });
  }

  #undo() {
    return this.#try(async () => {
      const replaced = await this.#learning.restore({ ids: [this.#lesson.id] });
      this.#isForgotten = false;
      this.#outcome = t(replaced ? 'taught.history' : 'taught.remembered');
    });
  }

  #wrong() {
    return this.#try(async () => {
      if (await this.#onWrong()) this.#outcome = t('taught.noted');
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
    this.#draw();
    part(this.element, 'summary', HTMLElement).focus({ preventScroll: true });
  }
}

/** Says why the model read lessons, and which. */
function notSure(read, confidence) {
  const questions = read.map(({ question }) => t('taught.quoted', { question })).join(', ');
  const which = read.length === 1 ? t('taught.it') : t('taught.which', { questions });
  return t('taught.notSure', { which, share: formatShare(confidence) });
}
