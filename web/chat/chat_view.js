/** The conversation on the page: the welcome with its examples, what was said, and scrolling. */
import { AnswerView } from './answer_view.js';
import { element } from '../page/dom.js';
import { formatReading } from '../page/format.js';
import { RouteChip } from '../routing/route_chip.js';

const NEAR_BOTTOM_PX = 60;

const ENDINGS = {
  stopped: 'Stopped',
  length: 'Ended at the longest length an answer may have',
  context: 'Ended because the conversation fills the model’s memory; start a new chat to go on',
  failed: 'Interrupted',
};

const FORGOTTEN = 'The beginning of this chat no longer fits the model’s memory';

export class ChatView {
  #scroller;
  #welcome;
  #log;
  #announcer;
  #following = true;

  /** @param {{scroller: HTMLElement, welcome: HTMLElement, log: HTMLElement}} elements */
  constructor({ scroller, welcome, log }, announcer) {
    this.#scroller = scroller;
    this.#welcome = welcome;
    this.#log = log;
    this.#announcer = announcer;
    scroller.addEventListener('scroll', () => {
      const below = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
      this.#following = below < NEAR_BOTTOM_PX;
    }, { passive: true });
    new ResizeObserver(() => this.follow()).observe(scroller); // a banner came, the message box grew
  }

  get isEmpty() {
    return this.#log.childElementCount === 0;
  }

  clear() {
    this.#log.replaceChildren();
    this.#welcome.hidden = false;
    this.#following = true;
  }

  /** A line across the conversation, such as "The model was loaded again". */
  addNote(text) {
    const note = element('p', 'note', text);
    this.#log.append(note);
    this.follow();
  }

  /** Show a question and the place of its answer. */
  addTurn(question) {
    this.#welcome.hidden = true;
    this.#following = true;
    const turn = new TurnView(question, this.#announcer, () => this.follow());
    this.#log.append(turn.questionElement, turn.answerElement);
    this.follow();
    return turn;
  }

  /** Keep the newest line in view, unless the reader has scrolled up. */
  follow() {
    if (this.#following) this.#scroller.scrollTop = this.#scroller.scrollHeight;
  }
}

class TurnView {
  #answer;
  #body = element('div', 'body');
  #waiting = element('p', 'waiting');
  #reading = element('span', 'reading');
  #announcer;
  #follow;

  constructor(question, announcer, follow) {
    this.#announcer = announcer;
    this.#follow = follow;
    this.questionElement = element('article', 'message question');
    this.questionElement.append(element('h2', 'visually-hidden', 'You'), element('p', 'body', question));

    this.answerElement = element('article', 'message answer');
    this.answerElement.setAttribute('aria-busy', 'true');
    this.#waiting.append(element('span', 'visually-hidden', 'Thinking'), element('i'), element('i'), element('i'), this.#reading);
    this.answerElement.append(element('h2', 'visually-hidden', 'Sonata'), this.#body, this.#waiting);
    this.#answer = new AnswerView(this.#body, { onDraw: follow, onSettled: (text) => announcer.say(text) });
  }

  get text() {
    return this.#answer.text;
  }

  /** How much of the prompt the model has read. */
  showReading(done, total) {
    this.#reading.textContent = done < total ? formatReading(done, total) : '';
  }

  /** Say above the answer which agent it comes from. @param {object} route the event @param {object} memory engine.memory */
  showRoute(route, memory) {
    this.#body.before(new RouteChip(route, memory).element);
    this.#follow();
  }

  append(text) {
    if (!this.#answer.text) this.#waiting.remove();
    this.#answer.append(text);
  }

  /**
   * The answer is over.
   * @param {{reason: string, newTokens?: number, forgottenTurns?: number}} ending reason as in a done event, or 'failed'
   */
  finish({ reason, newTokens, forgottenTurns }) {
    this.#waiting.remove();
    this.#answer.finish();
    this.answerElement.removeAttribute('aria-busy');
    const footer = element('footer', 'answer-footer');
    if (this.text) footer.append(copyButton(() => this.text));
    if (ENDINGS[reason]) footer.append(element('span', 'ending', ENDINGS[reason]));
    if (forgottenTurns) footer.append(element('span', 'forgotten', FORGOTTEN));
    if (newTokens) footer.append(element('span', 'tokens', `${newTokens} ${newTokens === 1 ? 'token' : 'tokens'}`));
    if (footer.childElementCount) this.answerElement.append(footer);
    if (ENDINGS[reason]) this.#announcer.say(ENDINGS[reason]);
    this.#follow();
  }

  /** Take question and answer off the page, as if they had not been said. */
  remove() {
    this.questionElement.remove();
    this.answerElement.remove();
  }
}

function copyButton(text) {
  const button = element('button', 'quiet copy', 'Copy');
  button.type = 'button';
  button.setAttribute('aria-label', 'Copy the answer');
  button.addEventListener('click', async () => {
    const copied = await navigator.clipboard?.writeText(text()).then(() => true, () => false);
    button.textContent = copied ? 'Copied' : 'Could not copy';
    setTimeout(() => (button.textContent = 'Copy'), 1500);
  });
  return button;
}
