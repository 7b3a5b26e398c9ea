/** The conversation on the page: the welcome with its examples, the turns, and scrolling. */
import { TurnView } from '../turn/turn_view.js';
import { AutoScroll } from './auto_scroll.js';
import { copyAsRead } from '../markdown/reader_copy.js';
import { askBeforeLinks } from '../markdown/link_question.js';
import { draw } from '../turn/turn_events.js';
import { element } from '../common/dom.js';

const BATCH_MS = 20; // of drawing stored turns, before the browser may do something else

/** @type {import('../turn/turn_view.js').Actions} */
const NO_ACTIONS = {
  ask() {}, again() {}, edit() {}, choose() {}, goOn: () => null, contextLength: () => null,
};
const NO_ANSWER = /** @type {any} */ ({ type: 'done', reason: 'end' }); // for a message that has none
const SILENT = { say() {} }; // for text that was announced when it arrived

export class ChatView {
  #scroller;
  #welcome;
  #log;
  #announcer;
  #actions;
  #turns = /** @type {TurnView[]} */ ([]);
  #autoScroll;

  /**
   * @param {{scroller: HTMLElement, welcome: HTMLElement, log: HTMLElement}} elements
   * @param {import('../shell/announcer.js').Announcer} announcer
   * @param {import('../turn/turn_view.js').Actions} [actions]
   */
  constructor({ scroller, welcome, log }, announcer, actions = NO_ACTIONS) {
    this.#scroller = scroller;
    this.#welcome = welcome;
    this.#log = log;
    this.#announcer = announcer;
    this.#actions = actions;
    this.#autoScroll = new AutoScroll(scroller);
    askBeforeLinks(log);
    copyAsRead(log);
    new ResizeObserver(() => this.follow()).observe(scroller); // a banner appeared, or the message box grew
  }

  /** True if anything was answered, even in part. */
  get hasAnswers() {
    return this.#log.querySelector('.answer:not([aria-busy])') !== null;
  }

  /** True if any question was sent that does not merely wait. */
  get hasBegun() {
    return this.#turns.some(({ isQueued }) => !isQueued);
  }

  /** @param {boolean} welcome true to show the examples; false if a stored conversation is about to appear */
  clear(welcome) {
    this.#log.replaceChildren();
    this.#turns = [];
    this.#welcome.hidden = !welcome;
    this.#autoScroll.begin();
  }

  /** The number of stored turns among those on the page. */
  get storedTurns() {
    const known = this.#turns.flatMap(({ places }) => [places.question, places.answer]);
    return known.filter(({ number }) => number !== null).length;
  }

  /** @param {TurnView} turn */
  isLast(turn) {
    return this.#turns.at(-1) === turn;
  }

  /** Edit the user's last message in place. @returns {boolean} true if there is one */
  editLast() {
    return this.#turns.findLast(({ places }) => places.question.number !== null)?.edit() ?? false;
  }

  /** The turns on the page are stored: sets the place of each, with its variants. @param {StoredTurn[]} turns */
  placeStored(turns) {
    const found = new Map(turns.map((turn) => [turn.number, turn]));
    for (const view of this.#turns) {
      const [question, answer] = [view.places.question, view.places.answer].map(({ number }) => found.get(number ?? undefined));
      view.place(question ? placeOf(question) : null, answer ? placeOf(answer) : null);
    }
  }

  /**
   * Show these turns instead of those on the page that differ. Equal turns stay untouched.
   * @param {StoredTurn[]} turns
   * @param {import('../engine/engine.js').Engine} engine
   * @param {number|null} [chosen] the number of a turn that was chosen among its variants: the scroll position stays there
   */
  async showStored(turns, engine, chosen = null) {
    const pairs = pairsOf(turns);
    const other = pairs.findIndex(({ question, answer }, at) => !this.#turns[at] || !isShown(this.#turns[at], question, answer));
    const kept = other < 0 ? pairs.length : other;
    for (const turn of this.#turns.slice(kept)) if (!turn.isQueued) turn.remove();
    this.#turns = this.#turns.filter((turn, at) => at < kept || turn.isQueued);
    this.placeStored(turns);
    const { scrollTop } = this.#scroller;
    const adding = this.#addPairs(pairs.slice(kept), engine);
    if (chosen === null) return adding;
    this.#autoScroll.end();
    this.#scroller.scrollTop = scrollTop;
    this.#turns.find(({ places }) => [places.question.number, places.answer.number].includes(chosen))?.focusVariants(chosen);
    return adding;
  }

  /** Below the present turns: the newest at once, the older ones above it in tasks of their own. */
  async #addPairs(pairs, engine) {
    if (pairs.length === 0) return;
    this.#beforeTurn();
    const begin = this.#log.appendChild(document.createComment('stored')); // messages sent meanwhile go below
    let next = /** @type {ChildNode} */ (begin);
    let until = performance.now() + BATCH_MS;
    const judged = new Map(), place = this.#turns.filter(({ isQueued }) => !isQueued).length;
    for (const { question, answer } of pairs.reverse()) {
      if (!begin.parentNode) break; // another conversation is shown meanwhile
      let follows = false; // following each of them would force a layout each time
      const view = new TurnView(question.content, SILENT, () => follows && this.follow(), this.#actions);
      this.#turns.splice(place, 0, view);
      next.before(view.questionElement, view.answerElement);
      next = view.questionElement;
      for (const event of answer?.events ?? [NO_ANSWER]) {
        try {
          draw(view, event, engine);
        } catch (error) { // the rest of the chat is shown
          reportError(error);
        }
      }
      view.place(placeOf(question), answer && placeOf(answer));
      const request = answer?.events.find(({ type }) => type === 'stored')?.request;
      if (request) judged.set(request, view);
      follows = true;
      if (performance.now() < until) continue;
      this.follow();
      await new Promise((resolve) => setTimeout(resolve));
      until = performance.now() + BATCH_MS;
    }
    begin.remove();
    this.follow();
    const opinions = await engine.learning.opinions({ ids: [...judged.keys()] }).catch(() => ({}));
    for (const [request, opinion] of Object.entries(opinions)) judged.get(request).showOpinion(opinion);
  }

  /** A line across the conversation, such as "The model was loaded again". */
  addNote(text) {
    const note = element('p', 'note', text);
    this.#log.append(note);
    this.follow();
  }

  /** Show a question and room for its answer. @param {string} question */
  addTurn(question) {
    this.#beforeTurn();
    const turn = new TurnView(question, this.#announcer, () => this.follow(), this.#actions);
    this.#turns.push(turn);
    this.#log.append(turn.questionElement, turn.answerElement);
    this.follow();
    return turn;
  }

  /**
   * Show a variant of a turn: the same question again, or another one in its place. The turns below belong to the earlier
   * variant, and leave the page.
   * @param {TurnView} turn @param {string} [question] the new text
   */
  addVariant(turn, question = turn.question) {
    const { places } = turn;
    const isSame = question === turn.question;
    this.removeFrom(turn);
    const made = this.addTurn(question);
    if (isSame) made.place(places.question, null);
    made.keepFocus();
    return made;
  }

  /** Remove a turn and all below it from the page. */
  removeFrom(turn) {
    const at = this.#turns.indexOf(turn);
    for (const one of at < 0 ? [turn] : this.#turns.splice(at)) one.remove();
  }

  /** Remove one turn from the page, as if it had not been sent. @param {TurnView} turn */
  removeTurn(turn) {
    this.#turns = this.#turns.filter((one) => one !== turn);
    turn.remove();
  }

  #beforeTurn() {
    this.#welcome.hidden = true;
    this.#autoScroll.begin();
  }

  /** @param {TurnView} turn shown last from now on */
  moveToEnd(turn) {
    this.#turns = [...this.#turns.filter((one) => one !== turn), turn];
    this.#welcome.hidden = true;
    this.#log.append(turn.questionElement, turn.answerElement);
    this.follow();
  }

  /** Keep the newest line in view, unless the reader has scrolled up; the welcome is shown from its top. */
  follow() {
    if (this.#welcome.hidden) this.#autoScroll.goOn();
  }
}

/** @typedef {Partial<import('../protocol.js').StoredTurn> & Pick<import('../protocol.js').StoredTurn, 'role'|'content'|'events'>} StoredTurn */

/** Questions with their answers; an answer without a question is left out. @param {StoredTurn[]} turns */
function pairsOf(turns) {
  return turns.flatMap((turn, at) => {
    const next = turns[at + 1];
    return turn.role === 'user' ? [{ question: turn, answer: next && next.role !== 'user' ? next : null }] : [];
  });
}

/** @param {StoredTurn} turn */
const placeOf = ({ number = -1, after = null, siblings = [] }) => ({ number: number < 0 ? null : number, after, siblings });

/** @param {TurnView} view */
function isShown({ places }, question, answer) {
  const isSame = (place, turn) => place.number === (turn?.number ?? null);
  return places.question.number !== null && isSame(places.question, question) && isSame(places.answer, answer);
}
