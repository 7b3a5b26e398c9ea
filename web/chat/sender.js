/**
 * Sends a message to the model and shows its answer, one at a time; messages sent meanwhile wait in the queue.
 */
import { t } from '../i18n/i18n.js';
import { whyTooLong } from './message_length.js';
import { draw } from '../turn/turn_events.js';
import { describe, fromError } from '../shell/problems.js';
import { runAtOnce } from '../interpreter/opener.js';
import { askToPersist } from '../shell/offline.js';

/**
 * `isKept`: the question is in the memory already, and is not put back into the message box if the answer fails; `isVariant`:
 * of another message or answer
 * @typedef {{view: import('../turn/turn_view.js').TurnView, question: string, isKept: boolean, isVariant: boolean, stream: any, ended: boolean}} Turn
 */

/** Events that follow the answer. */
const AFTERWARDS = new Set(['stored', 'offer']);

/** Errors of a single message that cannot be answered; the engine answers the next one. */
const REFUSALS = new Set(['ContextFullError', 'CannotAnswerError', 'StoreError', 'AgentError']);

export class Sender {
  #parts;
  #page;
  #turn = /** @type {Turn|null} */ (null); // the running one
  #recovering = false;
  #outputs = new ResizeObserver(() => this.#parts.chat.follow()); // of code that runs below an answer

  /**
   * @param {{chat: import('./chat_view.js').ChatView, composer: import('./composer.js').Composer,
   *   banner: import('../shell/banner.js').Banner, notices: import('../shell/notices.js').Notices,
   *   announcer: import('../shell/announcer.js').Announcer, stored: import('./stored_chat.js').StoredChat,
   *   queue: import('./message_queue.js').MessageQueue, navigation: import('./navigation.js').Navigation,
   *   status: import('../shell/status_view.js').StatusView, watchdog: import('../shell/watchdog.js').Watchdog,
   *   models: import('../panels/models/models.js').Models, welcome: import('./welcome.js').Welcome,
   *   contextBar: import('./context_bar.js').ContextBar, agentChoice: import('./agent_choice.js').AgentChoice,
   *   lock: import('../sidebar/memory_lock.js').MemoryLock}} parts of the page
   * @param {{engine: () => import('../engine/engine.js').Engine, state: () => string, setState: (state: any) => void, runner:
   *   () => any, fail: (error: any) => void, follow: (engine: any) => void, tell: (promise: Promise<any>) => void, delay: () =>
   *   string|null}} page runner: the result of `Engine.start`; follow: show what another tab has added; tell: wait only for a
   *   failure; delay: that of Attachments
   */
  constructor(parts, page) {
    this.#parts = parts;
    this.#page = page;
  }

  /** The question that is being answered. @returns {string|null} */
  get question() {
    return this.#turn?.question ?? null;
  }

  /** The number of tokens that the model can read. @returns {number|null} */
  get contextLength() {
    return this.#page.runner()?.contextLength ?? null;
  }

  /** True if a message may fit; a message that surely does not is neither shown nor sent. */
  accepts(question) {
    const why = whyTooLong(question, this.#page.state() === 'loading' ? null : this.#page.runner());
    this.#parts.notices.say('length', why);
    return why === null;
  }

  /** @param {string} question @param {string|null} [table] the id of the attached table that it is about */
  send(question, table = null) {
    this.#parts.queue.add(question, table);
    this.answerNext();
  }

  /** Answer the next waiting message, unless it waits for a file. */
  answerNext() {
    const { queue, lock, notices } = this.#parts;
    if (this.#page.state() !== 'ready') return;
    const delay = this.#page.delay();
    if (delay === null) notices.say('free', null);
    if (!queue.questions.length || lock.holdsUp()) return;
    const next = queue.take(delay);
    if (next) this.#ask(next.question, next.view);
  }

  /**
   * Another answer to a message, as a variant of the existing one.
   * @param {import('../turn/turn_view.js').TurnView} view @param {string} [agent] the agent that must answer
   */
  again(view, agent) {
    const { chat } = this.#parts, { number } = view.places.question;
    const isKnown = number !== null || chat.isLast(view); // or its number will be known in a moment: it was just stored
    if (!isKnown || !this.#isRead() || !this.#isFree()) return;
    const next = chat.addVariant(view);
    next.table = agent ? null : view.table;
    if (view.hasFailed && number === null) this.#ask(view.question, next); // nothing of it was stored
    else this.#ask(view.question, next, { again: true, ...(number === null ? {} : { after: number }), ...(agent ? { agent } : {}) });
  }

  /**
   * Send a message again with another text, as a variant of it. @param {import('../turn/turn_view.js').TurnView} view @param
   * {string} text
   */
  edit(view, text) {
    if (!this.accepts(text) || !this.#isRead() || !this.#isFree()) return;
    const { after } = view.places.question;
    const next = this.#parts.chat.addVariant(view, text);
    next.table = view.table;
    this.#ask(text, next, { after });
  }

  /** Show another variant of a message or an answer. @param {number} number its own */
  async choose(number) {
    if (!this.#isFree()) return;
    const { stored, notices } = this.#parts;
    try {
      await stored.choose(number, this.#page.engine());
    } catch (error) {
      notices.say('chat', describe(fromError(error)).message);
    }
  }

  /** True if no file is still being read: otherwise nothing is answered again. */
  #isRead() {
    const isRead = this.#page.delay() === null;
    this.#parts.notices.say('free', isRead ? null : t('answers.notRead'));
    return isRead;
  }

  /** Stops a running answer to make room. Returns true if the model can answer: it cannot while it loads. */
  #isFree() {
    this.stop();
    if (this.#page.state() === 'ready' && this.#parts.lock.holdsUp()) return false;
    const isFree = this.#page.state() === 'ready';
    this.#parts.notices.say('free', isFree ? null : t('answers.notReady'));
    return isFree;
  }

  /**
   * The action that continues an unfinished answer; null if it cannot be continued.
   * @param {import('../turn/turn_view.js').TurnView} view @returns {(() => void)|null}
   */
  goOn(view) {
    if (!this.#parts.chat.isLast(view)) return null;
    return () => {
      if (!this.#parts.chat.isLast(view) || !this.#isFree()) return;
      view.goOn();
      this.#run({ view, isKept: true }, false, (engine) => engine.conversation.continueAnswer());
    };
  }

  /** @param {{again?: boolean, after?: number|null, agent?: string}} [asked] again: another answer to a message of before */
  #ask(question, view = this.#parts.chat.addTurn(question), asked = {}) {
    const { again = false, ...how } = asked;
    return this.#run({ view, isKept: again }, again || 'after' in how, ({ conversation }) => {
      const given = { ...how, ...this.#parts.agentChoice.unstored };
      return again ? conversation.retry(given) : conversation.respond({ text: question, ...given, table: view.table });
    });
  }

  /**
   * @param {{view: import('../turn/turn_view.js').TurnView, isKept: boolean}} turn
   * @param {boolean} isVariant
   * @param {(engine: import('../engine/engine.js').Engine) => Promise<any>} begin returns the events
   */
  async #run({ view, isKept }, isVariant, begin) {
    const { stored, banner, watchdog, navigation, composer } = this.#parts, { openings } = stored;
    const current = /** @type {Turn} */ ({ view, question: view.question, isKept, isVariant, stream: null, ended: false });
    const storing = stored.begin(isVariant);
    this.#turn = current;
    this.#outputs.disconnect();
    if (this.#page.state() === 'ready') banner.hide();
    this.#page.setState('answering');
    watchdog.feed();
    const engine = this.#page.engine();
    try {
      await navigation.opening;
      if (current.ended) return;
      current.stream = await begin(engine);
      for await (const event of current.stream) {
        if (engine !== this.#page.engine()) return;
        if (event.type === 'stored') {
          view.place(numbered(event.question), numbered(event.number));
          storing.stored(event);
          composer.name(openings === stored.openings ? null : openings, event.chat);
        }
        if (AFTERWARDS.has(event.type)) draw(view, event, engine); // an answer that was stopped is stored, too
        if (current.ended || AFTERWARDS.has(event.type)) continue;
        watchdog.feed();
        if (banner.isShown) banner.hide();
        this.#onEvent(current, event, engine);
      }
      if (!current.ended) throw new Error('the answer ended without a word');
    } catch (error) {
      if (!current.ended) this.#page.fail(fromError(error));
    } finally {
      storing.end();
      if (engine === this.#page.engine()) this.#page.follow(engine);
    }
  }

  #onEvent(current, event, engine) {
    const { status, models, welcome, banner } = this.#parts;
    this.#endRecovery();
    draw(current.view, event, engine);
    if (event.type === 'context') {
      this.#parts.contextBar.show(event);
    } else if (event.type === 'done') {
      window.sonata.lastAnswer = { ...event, text: current.view.text };
      status.showRate(event.decodeTokS);
      models.measure(event.newTokens, event.decodeTokS);
      welcome.showSpeed(event.newTokens, event.decodeTokS);
      this.#end(current);
      if (event.reason === 'end') this.#runAnalysis(current.view);
      this.answerNext();
      askToPersist(); // not before: a visitor who only looks around is not asked anything
    } else if (REFUSALS.has(event.kind)) {
      this.interrupt();
      banner.show(describe(event), []);
      this.answerNext();
    } else if (event.type === 'failure') {
      this.#page.fail(event);
    }
  }

  /** Run the code of an answer to a question about a table: asking it was the user's say. @param {import('../turn/turn_view.js').TurnView} view */
  #runAnalysis({ table, question, answerElement }) {
    if (table === null) return;
    this.#outputs.observe(answerElement);
    runAtOnce(answerElement, { table, question: question.split('\n\n')[0] });
  }

  /** The answer is over for the page, whatever the worker still does. */
  #end(current) {
    if (current.ended) return;
    current.ended = true;
    this.#endRecovery();
    this.#parts.watchdog.stop();
    if (this.#turn === current) this.#turn = null;
    if (this.#page.state() === 'answering') this.#page.setState('ready');
  }

  /** The running answer failed: keep its text so far, and put the question back into the message box. */
  interrupt() {
    const current = this.#turn;
    if (!current) return;
    current.stream?.return();
    current.view.finish({ reason: 'failed' });
    this.#end(current);
    if (!current.view.text) this.#parts.chat.removeTurn(current.view);
    if (!current.isKept) this.giveBack(current.question);
  }

  /** The tab that answered is gone: ask again, before the waiting messages. */
  askAgain() {
    const current = this.#turn;
    if (!current || current.isKept || current.isVariant) return this.interrupt();
    current.stream?.return();
    current.view.finish({ reason: 'failed' });
    this.#end(current);
    this.#parts.chat.removeTurn(current.view);
    this.#parts.queue.addFirst(current.question, current.view.table);
  }

  /** Put a question that has no answer back into the message box. */
  giveBack(question) {
    const { composer } = this.#parts;
    composer.text = [question, composer.text].filter(Boolean).join('\n\n');
    composer.focus();
  }

  /** @returns {boolean} true if there was an answer to stop */
  stop() {
    if (!this.#turn) return false;
    this.#parts.banner.hide();
    this.#turn.view.finish({ reason: 'stopped' });
    this.#end(this.#turn);
    this.#page.tell(this.#page.engine().conversation.stop());
    this.answerNext();
    return true;
  }

  /** The page is about to close: a question without an answer goes back into the message box. */
  keepQuestions() {
    const { queue, composer } = this.#parts;
    const questions = [...(this.#turn && !this.#turn.isKept ? [this.#turn.question] : []), ...queue.questions];
    composer.keep(questions.join('\n\n'));
  }

  /** The GPU was lost in the middle of a turn, and the engine is recovering. */
  onRecovery() {
    const { watchdog, status, announcer } = this.#parts;
    if (!this.#turn) return;
    watchdog.feed();
    if (this.#recovering) return;
    this.#recovering = true;
    const words = t('chat.recovering');
    status.show('loading', words);
    announcer.say(words);
  }

  #endRecovery() {
    if (this.#recovering) this.#parts.status.showInfo(this.#page.runner());
    this.#recovering = false;
  }
}

/** The place of a turn that was just stored: the rest is known when the page reads the memory. */
const numbered = (number) => (number === undefined ? null : { number, after: null, siblings: [] });

/** @param {() => Sender} sender @returns {import('../turn/turn_view.js').Actions} */
export function actionsOf(sender) {
  return {
    ask: (question) => sender().send(question),
    again: (turn, agent) => sender().again(turn, agent),
    edit: (turn, text) => sender().edit(turn, text),
    choose: (number) => sender().choose(number),
    goOn: (turn) => sender().goOn(turn),
    contextLength: () => sender().contextLength,
  };
}
