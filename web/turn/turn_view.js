/** A question and its answer on the page: the answer's origin, its text, and the elements below it. */
import { html, render } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { AnswerFooter } from './answer_footer.js';
import { AnswerView } from './answer_view.js';
import { CanvasView } from './canvas_view.js';
import { asRead } from '../markdown/reader_copy.js';
import { ComputedChip } from './computed_chip.js';
import { LearnedNote } from './learned_note.js';
import { LessonChip } from './lesson_chip.js';
import { QuestionView } from './question_view.js';
import { ReadingLine } from './reading_line.js';
import { ThoughtView } from './thought_view.js';
import { button, element } from '../common/dom.js';
import { loadStyles } from '../common/page_files.js';
import { t } from '../i18n/i18n.js';
import { userError } from '../common/user_error.js';
import { RouteChip } from './route_chip.js';

/** @typedef {import('./question_view.js').Place} Place */

/**
 * The actions of the conversation. `goOn`: the action that continues the answer, null if it cannot be continued.
 * @typedef {{ask: (question: string) => void, again: (turn: TurnView, agent?: string) => void,
 *   edit: (turn: TurnView, text: string) => void, choose: (number: number) => void,
 *   goOn: (turn: TurnView) => (() => void)|null, contextLength: () => number|null}} Actions
 */

const CUT_OFF = new Set(['stopped', 'length']);
const NOWHERE = { number: null, after: null, siblings: [] };

export class TurnView {
  /** The places of the two turns among the stored ones. */
  places = { question: /** @type {Place} */ (NOWHERE), answer: /** @type {Place} */ (NOWHERE) };
  #answer;
  #body = element('div', 'body');
  #thought = /** @type {ThoughtView|null} */ (null);
  #waiting = element('p', 'waiting');
  #reading = new ReadingLine();
  #footer;
  #route = /** @type {RouteChip|null} */ (null);
  #files = /** @type {HTMLElement|null} */ (null); // the passages of files that it was answered from
  #calls = /** @type {Promise<import('./call_lines.js').CallLines>|null} */ (null);
  #replacement = /** @type {import('../protocol.js').Replacement|null} */ (null);
  #canvas = /** @type {CanvasView|null} */ (null); // what a model of diffusion writes now
  #isTaught = false; // a lesson gave the answer
  #isCutOff = false;
  table = /** @type {string|null} */ (null); // the attached table that the question is about: the answer is code that runs at once
  hasFailed = false;
  isQueued = false;
  #asked = performance.now();
  #firstMs = /** @type {number|null} */ (null); // ms from the question to the first words
  #view;
  #announcer;
  #follow;
  #actions;

  /**
   * @param {string} question
   * @param {{say: (text: string) => void}} announcer
   * @param {() => void} follow called after something was drawn
   * @param {Actions} actions
   */
  constructor(question, announcer, follow, actions) {
    this.#announcer = announcer;
    this.#follow = follow;
    this.#actions = actions;
    this.#view = new QuestionView(question, {
      onEdit: (text) => actions.edit(this, text), onChoose: (number) => actions.choose(number),
    });
    this.questionElement = this.#view.element;
    this.answerElement = element('article', 'message answer');
    this.answerElement.tabIndex = -1; // gets the focus if the focused element makes room for the answer
    this.answerElement.setAttribute('aria-busy', 'true');
    this.#body.dir = 'auto';
    this.#footer = this.#newFooter();
    this.#think();
    this.answerElement.append(element('h2', 'visually-hidden', 'Sonata'), this.#body, this.#waiting);
    this.#answer = new AnswerView(this.#body, { onDraw: follow, onSettled: (text) => announcer.say(text) });
  }

  get question() {
    return this.#view.text;
  }

  /** Question and answer are stored; null leaves a place as it is. @param {Place|null} question @param {Place|null} answer */
  place(question, answer) {
    if (question) this.#view.place(this.places.question = question);
    if (answer) this.#footer.place(this.places.answer = answer);
  }

  /** Focus the arrows between variants. @param {number} number of the question or of the answer */
  focusVariants(number) {
    const root = number === this.places.question.number ? this.questionElement : this.answerElement;
    const arrow = root.querySelector('.variants button:enabled');
    if (arrow instanceof HTMLElement) arrow.focus({ preventScroll: true });
  }

  /** The answer takes the focus if nothing has it any more because the pressed element left the page. */
  keepFocus() {
    if (document.activeElement === document.body) this.answerElement.focus({ preventScroll: true });
  }

  /** @returns {boolean} true if the question can be edited */
  edit() {
    if (!this.#view.canBeEdited) return false;
    this.#view.edit();
    return true;
  }

  get text() {
    return this.#answer.text;
  }

  /** The message waits. @param {string} words what it waits for @param {{label: string, run: () => void}[]} ways out */
  queue(words, ways) {
    this.isQueued = true;
    this.questionElement.classList.add('queued');
    const isNew = this.#waiting.querySelectorAll('button').length !== ways.length;
    render(html`<span>${words}</span>${repeat(ways, ({ label }) => label, ({ label, run }) => button(label, 'link', run))}`, this.#waiting);
    if (!isNew) return;
    if (ways.length > 1) this.#announcer.say(words);
    this.#follow();
  }

  /** The message that waited goes to the model. */
  begin() {
    this.isQueued = false;
    this.questionElement.classList.remove('queued');
    this.#asked = performance.now();
    this.#think();
  }

  /** Show how much of the prompt the model has read. @param {import('../protocol.js').Reading} reading */
  showReading({ done, total, secondsLeft }) {
    this.#reading.show(done, total, secondsLeft);
  }

  /**
   * Show above the answer which agent gave it.
   * @param {import('../protocol.js').Route} route
   * @param {import('../memory/client.js').Memory} memory
   */
  showRoute(route, memory) {
    this.#route = new RouteChip(route, memory, (agent) => this.#actions.again(this, agent));
    this.#body.before(this.#route.element);
    this.#follow();
  }

  /**
   * Show above the answer that a lesson gave it, and which.
   * @param {import('../protocol.js').Recall} lesson
   * @param {import('../learning/client.js').Learning} learning
   */
  showLesson(lesson, learning) {
    const chip = new LessonChip(lesson, learning, async () => {
      const { feedback } = this.#footer;
      if (!feedback) throw userError('BusyError', t('answers.notYet'));
      return feedback.say('bad');
    });
    this.#isTaught = true;
    this.#route?.element.remove(); // the lesson answers, and no agent
    this.#body.before(chip.element);
    this.#follow();
  }

  /** Show above the answer that a tool computed it, and how. @param {import('../protocol.js').Computation} computed */
  showComputed(computed) {
    this.#body.before(new ComputedChip(computed).element);
    this.#follow();
  }

  /**
   * Show below the answer which passages of attached files the model read for it.
   * @param {import('../protocol.js').Citations} consulted
   * @param {import('../protocol_calls.js').FilesCalls} files
   */
  async showFiles(consulted, files) {
    const place = this.#files = element('div');
    this.#body.after(place);
    const [{ citations }] = await Promise.all([import('./citations.js'), loadStyles('files/files.css')]);
    place.append(citations(consulted, files, this.#follow));
    this.#follow();
  }

  /**
   * The message taught something, and the lesson was not forgotten or replaced since.
   * @param {import('../protocol.js').Taught} taught
   * @param {import('../learning/client.js').Learning} learning
   */
  async showTaught(taught, learning) {
    const lesson = taught.ms === null ? await learning.lesson({ id: taught.id }).catch(() => null) : taught;
    if (lesson && !('replacedBy' in lesson && lesson.replacedBy)) this.#showLearned(taught, learning);
  }

  /** @param {any} taught an event, or what a lesson that was just taught says @param {import('../learning/client.js').Learning} learning */
  #showLearned({ id, question, answer, ...numbers }, learning) {
    const note = new LearnedNote({ lesson: { id, question, answer }, ...numbers }, {
      undo: numbers.known ? null : () => learning.undoTeaching({ id }), ask: () => this.#actions.ask(question),
    });
    this.answerElement.append(note.element);
    this.#follow();
  }

  /**
   * Show the lessons that an answer is about.
   * @param {import('../protocol.js').Card} card
   * @param {import('../learning/client.js').Learning} learning
   */
  async showCard(card, learning) {
    const { lessonCard } = await import('./lesson_card.js');
    this.answerElement.append(lessonCard(card, learning, this.#follow));
  }

  /**
   * Ask whether to remember what the message told in passing.
   * @param {import('../protocol.js').Offer} offer
   * @param {import('../learning/client.js').Learning} learning
   * @param {string} chat the stored conversation's id
   */
  async showOffer(offer, learning, chat) {
    const { offerLine } = await import('./lesson_card.js');
    this.answerElement.append(offerLine(offer, {
      remember: (question, answer) => learning.teach({ question, answer }),
      showLearned: ({ lesson, ...taught }) => this.#showLearned({ ...lesson, ...taught }, learning),
      dismiss: () => learning.offerNoMore({ chat }),
    }));
    this.#follow();
  }

  /**
   * The answer is in the memory, where it can be judged. After `finish`.
   * @param {string} request the answer's id
   * @param {import('../learning/client.js').Learning} learning
   */
  offerFeedback(request, learning) {
    if (!this.text) return;
    const said = { request, question: this.question, answer: this.text, isTaught: this.#isTaught };
    const below = this.#footer.offerFeedback(said, learning, { onAsk: this.#actions.ask, onChange: this.#follow });
    this.answerElement.append(below);
    this.#follow();
  }

  /** Show the earlier feedback on the answer. @param {string} opinion */
  showOpinion(opinion) {
    this.#footer.feedback?.show(opinion);
  }

  /** More of what the model thinks before it answers. */
  appendThought(text) {
    this.#begun();
    if (!this.#thought) {
      this.#thought = new ThoughtView();
      this.#body.before(this.#thought.element);
    }
    this.#thought.append(text);
    this.#follow();
  }

  /**
   * Show above the answer that it calls a tool.
   * @param {import('../protocol.js').ToolCalled} call
   * @param {import('../protocol_calls.js').ConversationCalls} conversation
   */
  async showCall(call, conversation) {
    this.#calls ??= this.#callLines(conversation);
    (await this.#calls).called(call);
  }

  /** @param {import('../protocol.js').ToolReturned} returned */
  async showResult(returned) {
    (await this.#calls)?.returned(returned);
  }

  async #callLines(conversation) {
    const place = element('div');
    this.#body.before(place);
    const [{ CallLines }] = await Promise.all([import('./call_lines.js'), loadStyles('turn/calls.css')]);
    const lines = new CallLines(conversation, this.#follow);
    place.append(lines.element);
    return lines;
  }

  append(text) {
    this.#begun();
    if (!this.#answer.text || this.#waiting.isConnected) {
      this.#waiting.remove();
      this.#thought?.finish();
    }
    this.#canvas?.clear();
    this.#answer.append(text);
  }

  /** Show the places behind the answer that are written now. @param {import('../protocol.js').Canvas} canvas */
  showCanvas({ places }) {
    this.#begun();
    this.#waiting.remove();
    if (!this.#canvas) {
      this.#canvas = new CanvasView();
      this.#body.after(this.#canvas.element);
    }
    this.#canvas.show(places);
    this.#follow();
  }

  /** Once the answer is over, this replaces what was shown. @param {import('../protocol.js').Replacement} replacement */
  replace(replacement) {
    this.#replacement = replacement;
  }

  /**
   * The answer is over.
   * @param {Partial<import('../protocol.js').Done> & {reason: string}} ending its reason may be 'failed', too
   */
  finish({ reason, forgottenTurns, thoughtSeconds, ...figures }) {
    this.#waiting.remove();
    if (this.#replacement) {
      this.#thought?.replace(this.#replacement.thought);
      this.#answer.replace(this.#replacement.text);
      this.#replacement = null;
    }
    this.#thought?.finish(thoughtSeconds || undefined);
    this.#calls?.then((calls) => calls.end());
    this.#canvas?.element.remove();
    this.#canvas = null;
    this.#answer.finish();
    this.answerElement.removeAttribute('aria-busy');
    this.#isCutOff = CUT_OFF.has(reason);
    this.hasFailed = reason === 'failed';
    const context = this.#actions.contextLength();
    const said = this.#footer.end({
      reason, forgotten: Boolean(forgottenTurns), figures: { ...figures, firstMs: this.#firstMs, context },
    });
    (this.#files ?? this.#body).after(this.#footer.element); // the note about what was learned goes below
    if (said) this.#announcer.say(said);
    this.#follow();
  }

  /** The finished answer continues, in place. */
  goOn() {
    const { text } = this.#answer;
    this.#footer.element.remove();
    this.#footer.feedback?.below.remove();
    this.keepFocus();
    this.#footer = this.#newFooter();
    this.#footer.place(this.places.answer);
    this.answerElement.setAttribute('aria-busy', 'true');
    this.#answer.replace(text);
    this.#answer.append('');
    this.#think();
    this.#body.after(this.#waiting);
    this.#follow();
  }

  #newFooter() {
    return new AnswerFooter({
      text: () => this.text,
      html: () => bare(this.#body).innerHTML,
      plain: () => bare(this.#body, (tex) => tex).textContent.trim(),
      onAgain: () => this.#actions.again(this),
      onContinue: () => (this.#isCutOff && !this.#calls ? this.#actions.goOn(this) : null),
      onChoose: (number) => this.#actions.choose(number),
    });
  }

  #begun() {
    this.#firstMs ??= performance.now() - this.#asked;
  }

  #think() {
    render(html`<span class="visually-hidden">${t('answers.thinking')}</span><i></i><i></i><i></i>${this.#reading.element}`, this.#waiting);
  }

  /** Take question and answer off the page, as if they had not been sent. */
  remove() {
    this.questionElement.remove();
    this.answerElement.remove();
  }
}

/** A copy of an answer as it is read or heard. @param {(tex: string) => string} [sourceOf] a formula */
function bare(body, sourceOf) {
  const copy = body.cloneNode(true);
  asRead(copy, sourceOf);
  return copy;
}
