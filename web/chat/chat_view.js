/** The conversation on the page: the welcome with its examples, what was said, and scrolling. */
import { AnswerView } from './answer_view.js';
import { Feedback } from './feedback.js';
import { LearnedNote } from './learned_note.js';
import { LessonChip } from './lesson_chip.js';
import { ThoughtView } from './thought_view.js';
import { button, element } from '../page/dom.js';
import { formatReading } from '../page/format.js';
import { userError } from '../common/user_error.js';
import { RouteChip } from '../routing/route_chip.js';

const NEAR_BOTTOM_PX = 60;
const BATCH_MS = 20; // of stored turns, before the browser may do something else

const ENDINGS = {
  stopped: 'Stopped',
  length: 'Stopped at the length limit',
  context: 'Stopped because this chat is as long as the model can read. Start a new chat to continue',
  loop: 'Stopped because the answer repeated itself',
  failed: 'Interrupted',
};

const SILENT = { say() {} }; // for what was announced when it was said

const FORGOTTEN = 'The model no longer sees the beginning of this chat: it is too long';

export class ChatView {
  #scroller;
  #welcome;
  #log;
  #announcer;
  #onAsk;
  #following = true;

  /**
   * @param {{scroller: HTMLElement, welcome: HTMLElement, log: HTMLElement}} elements
   * @param {import('../page/announcer.js').Announcer} announcer
   * @param {(question: string) => void} onAsk put a question, as if it had been typed
   */
  constructor({ scroller, welcome, log }, announcer, onAsk) {
    this.#scroller = scroller;
    this.#welcome = welcome;
    this.#log = log;
    this.#announcer = announcer;
    this.#onAsk = onAsk;
    scroller.addEventListener('scroll', () => {
      const below = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
      this.#following = below < NEAR_BOTTOM_PX;
    }, { passive: true });
    new ResizeObserver(() => this.follow()).observe(scroller); // a banner came, the message box grew
  }

  /** Whether anything was answered, be it in part. */
  get hasAnswers() {
    return this.#log.querySelector('.answer:not([aria-busy])') !== null;
  }

  /** @param {boolean} welcome whether the examples are shown; not where a stored conversation is about to come */
  clear(welcome) {
    this.#log.replaceChildren();
    this.#welcome.hidden = !welcome;
    this.#following = true;
  }

  /**
   * Show turns that the memory has, below what is there: the newest at once, the older ones above it in tasks of their own.
   * @param {{role: string, content: string, request?: string|null, route?: object|null, lesson?: object|null,
   *   reason?: string|null, tokens?: number|null, thinking?: {text: string, seconds: number}|null}[]} turns
   * @param {import('../engine/engine.js').Engine} engine
   */
  async addStored(turns, engine) {
    this.#beforeTurn();
    const begin = this.#log.appendChild(document.createComment('stored')); // what is said meanwhile comes below
    let next = /** @type {ChildNode} */ (begin);
    let until = performance.now() + BATCH_MS;
    const judged = new Map();
    for (let at = turns.length - 1; at >= 0 && begin.parentNode; at -= 1) {
      const answer = turns[at].role === 'user' ? null : turns[at];
      if (answer && turns[at - 1]?.role !== 'user') continue; // nothing was asked
      if (answer) at -= 1;
      let isShown = false; // to follow each of them would have the page laid out each time
      const view = new TurnView(turns[at].content, SILENT, () => isShown && this.follow(), this.#onAsk);
      next.before(view.questionElement, view.answerElement);
      next = view.questionElement;
      if (answer) showStored(view, answer, engine);
      else view.finish({ reason: 'end' });
      if (answer?.request) judged.set(answer.request, view);
      isShown = true;
      if (performance.now() < until) continue;
      this.follow();
      await new Promise((resolve) => setTimeout(resolve));
      until = performance.now() + BATCH_MS;
    }
    begin.remove();
    this.follow();
    const opinions = await engine.learning.opinions([...judged.keys()]).catch(() => ({}));
    for (const [request, opinion] of Object.entries(opinions)) judged.get(request).showOpinion(opinion);
  }

  /** A line across the conversation, such as "The model was loaded again". */
  addNote(text) {
    const note = element('p', 'note', text);
    this.#log.append(note);
    this.follow();
  }

  /** Show a question and the place of its answer. */
  addTurn(question) {
    this.#beforeTurn();
    const turn = new TurnView(question, this.#announcer, () => this.follow(), this.#onAsk);
    this.#log.append(turn.questionElement, turn.answerElement);
    this.follow();
    return turn;
  }

  #beforeTurn() {
    for (const button of this.#log.querySelectorAll('.again')) button.remove(); // only the last answer can be replaced
    this.#welcome.hidden = true;
    this.#following = true;
  }

  /** @param {TurnView} turn shown last from now on */
  moveToEnd(turn) {
    this.#log.append(turn.questionElement, turn.answerElement);
    this.follow();
  }

  /** Keep the newest line in view, unless the reader has scrolled up. */
  follow() {
    if (this.#following) this.#scroller.scrollTop = this.#scroller.scrollHeight;
  }
}

/** @param {TurnView} view @param {any} answer a turn, as `addStored` takes it */
function showStored(view, { content, request, route, lesson, taught, reason, tokens, thinking }, { memory, learning }) {
  if (route) view.showRoute(route, memory);
  if (lesson) view.showLesson(lesson, learning);
  if (thinking) view.appendThought(thinking.text);
  view.append(content);
  view.finish({ reason: reason ?? 'end', newTokens: tokens ?? 0, thoughtSeconds: thinking?.seconds });
  if (request) view.offerFeedback(request, learning);
  if (taught) showTaught(view, taught, learning);
}

/** What a message taught, if that was not forgotten or replaced since. */
async function showTaught(view, taught, learning) {
  const lesson = await learning.lesson(taught.id).catch(() => null);
  if (lesson && !lesson.replacedBy) view.showLearned({ ...taught, ms: null }, learning);
}

/** A question and its answer. */
export class TurnView {
  #answer;
  #body = element('div', 'body');
  #thought = /** @type {ThoughtView|null} */ (null);
  #waiting = element('p', 'waiting');
  #reading = element('span', 'reading');
  #footer = element('footer', 'answer-footer');
  #route = /** @type {RouteChip|null} */ (null);
  #feedback = /** @type {Feedback|null} */ (null);
  #isTaught = false; // a lesson gave the answer
  #question;
  #announcer;
  #follow;
  #onAsk;

  constructor(question, announcer, follow, onAsk) {
    this.#question = question;
    this.#announcer = announcer;
    this.#follow = follow;
    this.#onAsk = onAsk;
    this.questionElement = element('article', 'message question');
    const said = element('p', 'body', question);
    said.dir = this.#body.dir = 'auto'; // Arabic or Hebrew reads from the right
    this.questionElement.append(element('h2', 'visually-hidden', 'You'), said);

    this.answerElement = element('article', 'message answer');
    this.answerElement.setAttribute('aria-busy', 'true');
    this.#think();
    this.answerElement.append(element('h2', 'visually-hidden', 'Sonata'), this.#body, this.#waiting);
    this.#answer = new AnswerView(this.#body, { onDraw: follow, onSettled: (text) => announcer.say(text) });
  }

  get text() {
    return this.#answer.text;
  }

  /** The message waits until the model is loaded. @param {() => void} onCancel */
  queue(onCancel) {
    this.questionElement.classList.add('queued');
    const words = element('span', '', 'Waiting for the model');
    this.#waiting.replaceChildren(words, button('Cancel', 'link', onCancel));
  }

  /** The message that waited goes to the model. */
  begin() {
    this.questionElement.classList.remove('queued');
    this.#think();
  }

  /** How much of the prompt the model has read. */
  showReading(done, total) {
    this.#reading.textContent = done < total ? formatReading(done, total) : '';
  }

  /**
   * Say above the answer which agent it comes from.
   * @param {any} route the event
   * @param {import('../memory/client.js').Memory} memory
   */
  showRoute(route, memory) {
    this.#route = new RouteChip(route, memory);
    this.#body.before(this.#route.element);
    this.#follow();
  }

  /**
   * Say above the answer that it comes from a lesson, and which.
   * @param {any} lesson the event
   * @param {import('../learning/client.js').Learning} learning
   */
  showLesson(lesson, learning) {
    const chip = new LessonChip(lesson, learning, async () => {
      if (!this.#feedback) throw userError('BusyError', 'Wait until the answer is complete.');
      return this.#feedback.say('bad');
    });
    this.#isTaught = true;
    this.#route?.element.remove(); // the lesson answers, and no agent
    this.#body.before(chip.element);
    this.#follow();
  }

  /**
   * The message asked to remember something, and that was learned.
   * @param {any} learned the event; `ms` is null where it was not just now
   * @param {import('../learning/client.js').Learning} learning
   */
  showLearned({ id, question, answer, ...numbers }, learning) {
    const note = new LearnedNote({ lesson: { id, question, answer }, ...numbers }, {
      undo: numbers.known ? null : () => learning.undoTeaching(id), ask: () => this.#onAsk(question),
    });
    this.answerElement.append(note.element);
    this.#follow();
  }

  /**
   * The answer is in the memory, where it can be judged. After `finish`.
   * @param {string} request the answer's id
   * @param {import('../learning/client.js').Learning} learning
   */
  offerFeedback(request, learning) {
    if (!this.text) return;
    const said = { request, question: this.#question, answer: this.text, isTaught: this.#isTaught };
    this.#feedback = new Feedback(said, learning, { onAsk: this.#onAsk, onChange: this.#follow });
    this.#footer.firstElementChild?.after(this.#feedback.element);
    this.answerElement.append(this.#feedback.below);
    this.#follow();
  }

  /** What was said of the answer before. @param {string} opinion */
  showOpinion(opinion) {
    this.#feedback?.show(opinion);
  }

  /** More of what the model thinks before it answers. */
  appendThought(text) {
    if (!this.#thought) {
      this.#thought = new ThoughtView();
      this.#body.before(this.#thought.element);
    }
    this.#thought.append(text);
    this.#follow();
  }

  append(text) {
    if (!this.#answer.text) {
      this.#waiting.remove();
      this.#thought?.finish();
    }
    this.#answer.append(text);
  }

  /**
   * The answer is over.
   * @param {{reason: string, newTokens?: number, forgottenTurns?: number, thoughtSeconds?: number, text?: string,
   *   thought?: string}} ending reason as in a done event, or 'failed'; `text` and `thought` in place of what was shown
   * @param {(() => void)|null} [onAgain] ask the same once more; offered where the answer repeated itself
   */
  finish({ reason, newTokens, forgottenTurns, thoughtSeconds, text, thought }, onAgain = null) {
    this.#waiting.remove();
    if (thought !== undefined) this.#thought?.replace(thought);
    this.#thought?.finish(thoughtSeconds || undefined);
    if (text !== undefined) this.#answer.replace(text);
    this.#answer.finish();
    this.answerElement.removeAttribute('aria-busy');
    const footer = this.#footer;
    if (this.text) footer.append(copyButton(() => this.text));
    if (ENDINGS[reason]) footer.append(element('span', 'ending', ENDINGS[reason]));
    if (reason === 'loop' && onAgain) {
      const again = button('Try again', 'quiet copy again', () => {
        again.remove();
        onAgain();
      });
      footer.append(again);
    }
    if (forgottenTurns) footer.append(element('span', 'forgotten', FORGOTTEN));
    if (newTokens) footer.append(element('span', 'tokens', `${newTokens} ${newTokens === 1 ? 'token' : 'tokens'}`));
    if (footer.childElementCount) this.#body.after(footer); // what was learned comes below
    if (ENDINGS[reason]) this.#announcer.say(ENDINGS[reason]);
    this.#follow();
  }

  #think() {
    const dots = [element('i'), element('i'), element('i')];
    this.#waiting.replaceChildren(element('span', 'visually-hidden', 'Thinking'), ...dots, this.#reading);
  }

  /** Take question and answer off the page, as if they had not been said. */
  remove() {
    this.questionElement.remove();
    this.answerElement.remove();
  }
}

function copyButton(text) {
  const copy = button('Copy', 'quiet copy', async () => {
    const copied = await navigator.clipboard?.writeText(text()).then(() => true, () => false);
    copy.textContent = copied ? 'Copied' : 'Could not copy';
    setTimeout(() => (copy.textContent = 'Copy'), 1500);
  });
  copy.setAttribute('aria-label', 'Copy the answer');
  return copy;
}
