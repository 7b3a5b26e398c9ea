/**
 * The page's view of what Sonata learns from its user: `engine.learning`. app/consolidation/api.py answers.
 *
 * Errors are as memory/client.js says. Times are seconds since 1970. An nll is the mean negative log-probability of the
 * answer's tokens, in nats.
 *
 * @typedef {{id: string, question: string, answer: string, source: 'taught'|'corrected'|'praised', on: boolean,
 *   replacedBy: string, quality: number, uses: number, created: number, lastUsed: number, similarity: number|null}} Lesson
 *   replacedBy: the id of a newer lesson for the same question, "" for none
 * @typedef {{state: string, sentence: string, done: number, total: number}} IdleStatus done, total: tokens
 * @typedef {{created: number, verdict: 'accepted'|'scaled'|'refused', why: string, losses: number[], probe: Record<string, number>,
 *   recall: Record<string, number>, norm: number, tokens: number, seconds: number}} Training
 * @typedef {{question: string, answer: string, source: Lesson['source'], created: number, before: {text: string, cut: boolean}|null,
 *   earlier: {text: string, created: number}[], last: {text: string, created: number}|null, nllBefore: number|null,
 *   nllAfter: number|null}} Story what a lesson changed: app/lessons/story.py
 * @typedef {{created: number, days: number, count: number, good: number, bad: number, corrected: number, helped: number,
 *   quality: number|null}} Period answers of a day or a week: app/consolidation/history.py
 * @typedef {{created: number, loop: 'instant'|'background'|'deep'|'style', kind: string, count: number, text: string}} LearningEvent
 *   something that a loop did: app/consolidation/history.py
 * @typedef {{kind: 'learned'|'style'|'reader'|'chosen', id: string, on: boolean, older: boolean, created: number|null, bytes: number|null, rank: number|null,
 *   norms: [number, number][], norm: number|null, facts: string[], count: number, tests: [string, number|null, number][]}} AdapterView
 *   app/models/adapter_views.py
 * @typedef {{lesson: {id: string, question: string, answer: string}, ms: number|null, nllBefore: number|null, nllAfter:
 *   number|null, replaced?: Lesson|null, known?: boolean}} Taught `replaced`: what was taught before for the same question;
 *   `known`: exactly this was taught before; nllBefore, nllAfter: null if the model learns it later, in a pause
 */
import { said } from '../i18n/engine_texts.js';
export class Learning {
  #call;

  /** @param {(call: string, given: any[]) => Promise<any>} call calls the worker */
  constructor(call) {
    this.#call = call;
  }

  // ---- an answer, by the id of its `stored` event ----

  /** The answer was good. */
  good(request) { return this.#ask('good', request); }

  /** The answer was bad. @returns {Promise<{off: boolean}>} true if this switched off the lesson that gave it */
  bad(request) { return this.#ask('bad', request); }

  /** Undo all feedback on this answer. */
  takeBack(request) { return this.#ask('take_back', request); }

  /** Teach that this is the answer to such questions. @returns {Promise<Taught>} */
  shouldHaveSaid(request, question, answer) { return this.#ask('should_have_said', request, question, answer); }

  /** The answer was good, and should be given again. @returns {Promise<Taught>} */
  rememberAnswer(request, question, answer) { return this.#ask('remember_answer', request, question, answer); }

  /** The feedback on these answers. @returns {Promise<Record<string, 'good'|'bad'|'corrected'>>} by request */
  opinions(requests) { return this.#ask('opinions', requests); }

  // ---- lessons ----

  /** @returns {Promise<Taught>} */
  teach(question, answer) { return this.#ask('teach', question, answer); }

  /** Stop offering in a conversation to remember facts that are mentioned in passing. @param {string} chat its id */
  offerNoMore(chat) { return this.#ask('offer_no_more', chat); }

  /** Forget a lesson that was just taught; a lesson that it replaced counts again. */
  undoTeaching(id) { return this.#ask('undo_teaching', id); }

  /**
   * @param {{filter?: 'now'|'off'|'history', search?: string, offset?: number, limit?: number}} [wanted] history: lessons that
   *   newer ones replaced
   * @returns {Promise<{total: number, items: Lesson[]}>}
   */
  lessons({ filter = 'now', search = '', offset = 0, limit = 50 } = {}) { return this.#ask('lessons', filter, search, offset, limit); }

  /** @returns {Promise<Lesson|null>} */
  lesson(id) { return this.#ask('lesson', id); }

  /** @returns {Promise<Story|null>} null: it was forgotten. `engine.tryLesson` asks its question again */
  lessonStory(id) { return this.#ask('lesson_story', id); }

  /** The earlier answer becomes history; `undoTeaching` of the new lesson restores it. @returns {Promise<Taught>} */
  editLesson(id, { question, answer }) { return this.#ask('edit_lesson', id, question, answer); }

  /** Sets whether a lesson may answer. */
  switchLesson(id, on) { return this.#ask('switch_lesson', id, on); }

  forget(ids) { return this.#ask('forget', ids); }

  /**
   * Undo `forget`, while this page is open.
   * @returns {Promise<number>} the number that came back as history only, because newer answers to the same questions were
   *   taught meanwhile
   */
  restore(ids) { return this.#ask('restore', ids); }

  // ---- the loops ----

  /**
   * @returns {Promise<{problem: string|null, idle: IdleStatus|null, loops: {name: string, on: boolean, words: string, runs:
   *   boolean}[], trainings: Training[], lessons: {question: string, nllBefore: number, nllAfter: number}[], answers: Period[],
   *   events: LearningEvent[]}>} the latest lessons that this model has learned, the answers and the events of the loops, the
   *   oldest first; `problem`: why nothing can be learned now
   */
  async overview() {
    const overview = await this.#ask('overview');
    if (overview.problem) overview.problem = said(overview.problem);
    if (overview.idle) overview.idle.sentence = said(overview.idle.sentence);
    for (const loop of overview.loops) loop.words = loop.words.map(said).join(' ');
    for (const training of overview.trainings) training.why = said(training.why);
    return overview;
  }

  /** @returns {Promise<AdapterView[]>} the adapters that answers use besides the model's weights */
  adapters() { return this.#ask('adapters'); }

  /** Use what a training learned in answers, or not. @param {string} id of the adapter @param {boolean} on */
  switchAdapter(id, on) { return this.#ask('switch_adapter', id, on); }

  /** Switch a loop on or off. */
  setLoop(name, on) { return this.#ask('set_loop', name, on); }

  /** Run a loop once, however little there is to learn. */
  learnNow(name) { return this.#ask('learn_now', name); }

  /** Pause learning in idle time until `resume`. */
  pause() { return this.#ask('pause'); }

  resume() { return this.#ask('resume'); }

  #ask(call, ...given) {
    return this.#call(call, given);
  }
}
