/**
 * What Sonata learns from its user, as the page sees it: `engine.learning`. app/consolidation/api.py answers.
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
 * @typedef {{lesson: {id: string, question: string, answer: string}, ms: number|null, nllBefore: number|null, nllAfter: number|null,
 *   replaced?: Lesson|null, known?: boolean}} Taught `replaced`: what was taught before for the same question; `known`: the
 *   very same was taught before; nllBefore, nllAfter: null if the model learns it later, in a pause
 */
import { said } from '../i18n/engine_texts.js';
export class Learning {
  #call;

  /** @param {(call: string, given: any[]) => Promise<any>} call what the worker answers */
  constructor(call) {
    this.#call = call;
  }

  // ---- an answer, by the id of its `stored` event ----

  /** The answer was good. */
  good(request) { return this.#ask('good', request); }

  /** The answer was bad. @returns {Promise<{off: boolean}>} whether the lesson that gave it was switched off by this */
  bad(request) { return this.#ask('bad', request); }

  /** Undo whatever was said of this answer. */
  takeBack(request) { return this.#ask('take_back', request); }

  /** To such questions, this is the answer. @returns {Promise<Taught>} */
  shouldHaveSaid(request, question, answer) { return this.#ask('should_have_said', request, question, answer); }

  /** The answer was good, and is to be given again. @returns {Promise<Taught>} */
  rememberAnswer(request, question, answer) { return this.#ask('remember_answer', request, question, answer); }

  /** What was said of these answers. @returns {Promise<Record<string, 'good'|'bad'|'corrected'>>} by request */
  opinions(requests) { return this.#ask('opinions', requests); }

  // ---- lessons ----

  /** @returns {Promise<Taught>} */
  teach(question, answer) { return this.#ask('teach', question, answer); }

  /** Offer no more in a conversation to remember what is told in passing. @param {string} chat its id */
  offerNoMore(chat) { return this.#ask('offer_no_more', chat); }

  /** Forget a lesson that was taught just now; one that it replaced counts again. */
  undoTeaching(id) { return this.#ask('undo_teaching', id); }

  /**
   * @param {{filter?: 'now'|'off'|'history', search?: string, offset?: number, limit?: number}} [wanted] history: those that
   *   newer ones replaced
   * @returns {Promise<{total: number, items: Lesson[]}>}
   */
  lessons({ filter = 'now', search = '', offset = 0, limit = 50 } = {}) { return this.#ask('lessons', filter, search, offset, limit); }

  /** @returns {Promise<Lesson|null>} */
  lesson(id) { return this.#ask('lesson', id); }

  /** @returns {Promise<Story|null>} null: it was forgotten. `engine.tryLesson` asks its question again */
  lessonStory(id) { return this.#ask('lesson_story', id); }

  /** What it said before becomes history; `undoTeaching` of the new one brings that back. @returns {Promise<Taught>} */
  editLesson(id, { question, answer }) { return this.#ask('edit_lesson', id, question, answer); }

  /** Whether a lesson may answer. */
  switchLesson(id, on) { return this.#ask('switch_lesson', id, on); }

  forget(ids) { return this.#ask('forget', ids); }

  /**
   * Undo `forget`, while this page is open.
   * @returns {Promise<number>} how many came back as history only: newer answers to the same questions were taught meanwhile
   */
  restore(ids) { return this.#ask('restore', ids); }

  // ---- the loops ----

  /**
   * @returns {Promise<{problem: string|null, idle: IdleStatus|null,
   *   loops: {name: string, on: boolean, words: string, runs: boolean}[],
   *   trainings: Training[],
   *   lessons: {question: string, nllBefore: number, nllAfter: number}[],
   *   answers: Period[], events: LearningEvent[]}>} the latest
   *   lessons that this model has learned, the answers and what the loops did, the oldest first;
   *   `problem`: why nothing can be learned now
   */
  async overview() {
    const overview = await this.#ask('overview');
    if (overview.problem) overview.problem = said(overview.problem);
    if (overview.idle) overview.idle.sentence = said(overview.idle.sentence);
    for (const loop of overview.loops) loop.words = loop.words.map(said).join(' ');
    for (const training of overview.trainings) training.why = said(training.why);
    return overview;
  }

  /** @returns {Promise<AdapterView[]>} what answers come with besides the model's weights */
  adapters() { return this.#ask('adapters'); }

  /** Answer with what a training learned, or not. @param {string} id of the adapter @param {boolean} on */
  switchAdapter(id, on) { return this.#ask('switch_adapter', id, on); }

  /** Switch a loop on or off. */
  setLoop(name, on) { return this.#ask('set_loop', name, on); }

  /** Run a loop once, however little there is to learn. */
  learnNow(name) { return this.#ask('learn_now', name); }

  /** What learns while nothing else happens stands still until `resume`. */
  pause() { return this.#ask('pause'); }

  resume() { return this.#ask('resume'); }

  #ask(call, ...given) {
    return this.#call(call, given);
  }
}
