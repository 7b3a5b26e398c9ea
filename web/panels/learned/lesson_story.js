/**
 * The effect of a lesson: the answer before, the wanted answer, and the current one, side by side, with the differences marked.
 * Each of the model's two answers can be requested again.
 */
import { userError } from '../../common/user_error.js';
import { wordDiff } from '../../common/word_diff.js';
import { t } from '../../i18n/i18n.js';
import { button, element, ProblemLine } from '../../common/dom.js';
import { formatDate, formatShare } from '../../common/format.js';

/** @typedef {import('../../protocol_calls.js').Story} Story */

const LEAST_SHARED = 0.25; // of the longer text
const BEFORE_UNKNOWN = { taught: 'story.beforeTaught', corrected: 'story.beforeGone', praised: 'story.beforePraised' };

export class LessonStory {
  element = element('details', 'story');
  #id;
  /** @type {import('../../learning/client.js').Learning} */ #learning;
  /** @type {import('../../engine/engine.js').Engine} */ #engine;
  #body = element('div', 'story-body');
  #problem = new ProblemLine();

  /**
   * @param {string} id of the lesson
   * @param {{learning: import('../../learning/client.js').Learning, engine: import('../../engine/engine.js').Engine}} asks
   */
  constructor(id, { learning, engine }) {
    this.#id = id;
    this.#learning = learning;
    this.#engine = engine;
    this.element.append(element('summary', '', t('story.show')), this.#problem.element, this.#body);
    this.element.addEventListener('toggle', () => this.element.open && this.#load());
  }

  async #load() {
    this.#problem.say(null);
    if (!this.#body.hasChildNodes()) this.#body.append(element('p', 'panel-lead', t('story.loading')));
    try {
      const story = await this.#learning.lessonStory({ id: this.#id });
      this.#body.replaceChildren(...(story ? this.#shown(story) : [element('p', 'panel-lead', t('story.forgotten'))]));
    } catch (error) {
      this.#body.replaceChildren();
      this.#problem.say(error);
    }
  }

  /** @param {Story} story */
  #shown(story) {
    const { answer, before, earlier, last, nllBefore, nllAfter } = story;
    const sides = element('div', 'story-sides');
    const first = new Side(t('story.before'), answer);
    if (before) first.say(before.text, before.cut ? t('story.beforeCut') : '');
    else first.note(t(BEFORE_UNKNOWN[story.source]));
    const wanted = new Side(t('story.after'), '');
    const words = before ? wordDiff(before.text, answer) : [];
    wanted.show(areAlike(words) ? words.filter(({ kind }) => kind !== 'gone') : [{ text: answer, kind: 'same' }]);
    const now = new Side(t('story.now'), answer);
    if (last) now.say(last.text, t('story.nowLast', { when: formatDate(last.created) }), true);
    else now.note(t('story.nowNever'));
    first.add(new AskButton(t('story.askPlain'), first, t('story.beforeAsked'), () => this.#engine.conversation.tryLesson({ id: this.#id, learned: false })).element);
    now.add(new AskButton(t('story.ask'), now, t('story.nowAsked'), () => this.#engine.conversation.tryLesson({ id: this.#id, learned: true })).element);
    sides.append(first.element, wanted.element, now.element);
    const shown = /** @type {HTMLElement[]} */ ([sides]);
    if (earlier.length) shown.push(element('p', 'panel-lead', `${t('story.earlier')}: ${earlier.map(({ text }) => `“${text}”`).join(', ')}`));
    if (nllBefore !== null && nllAfter !== null) {
      const [sureBefore, sureNow] = [nllBefore, nllAfter].map((nll) => formatShare(Math.exp(-nll)));
      shown.push(element('p', 'panel-lead', t('story.certainty', { before: sureBefore, after: sureNow })));
    }
    return shown;
  }
}

/** True if two texts share enough for marking the differences. @param {import('../../common/word_diff.js').Piece[]} pieces */
function areAlike(pieces) {
  const length = (but) => pieces.reduce((sum, { text, kind }) => sum + (kind === but ? 0 : text.length), 0);
  const shared = pieces.reduce((sum, { text, kind }) => sum + (kind === 'same' ? text.length : 0), 0);
  return shared >= LEAST_SHARED * Math.max(length('new'), length('gone'), 1);
}

/** One of the three answers. */
class Side {
  element = element('article', 'story-side');
  #wanted;
  #text = element('p', 'story-text');
  #note = element('p', 'story-note');

  /**
   * @param {string} title @param {string} wanted the wanted answer, with which it is compared; '' for the wanted answer itself
   */
  constructor(title, wanted) {
    this.#wanted = wanted;
    this.#text.dir = 'auto';
    this.#note.setAttribute('role', 'status');
    this.element.append(element('h3', '', title), this.#text, this.#note);
  }

  /** A text with a note. @param {string} text @param {string} note @param {boolean} [judged] say whether it is as wanted */
  say(text, note, judged = false) {
    const pieces = wordDiff(text, this.#wanted);
    const isSame = pieces.every(({ kind }) => kind === 'same'), isAlike = areAlike(pieces);
    // Seen from this text: words that the wanted one lacks are new here.
    if (!isAlike) this.stream(text);
    else if (judged) this.show(pieces.map((piece) => ({ ...piece, kind: piece.kind === 'gone' ? 'new' : piece.kind === 'new' ? 'gone' : 'same' })));
    else this.show(pieces.filter(({ kind }) => kind !== 'new'));
    this.note([note, judged ? t(isSame ? 'story.same' : isAlike ? 'story.differs' : 'story.other') : ''].filter(Boolean).join(' · '));
  }

  /** @param {import('../../common/word_diff.js').Piece[]} pieces */
  show(pieces) {
    this.#text.replaceChildren(...pieces.map(({ text, kind }) => (kind === 'same' ? text : element(kind === 'gone' ? 'del' : 'ins', '', text))));
  }

  /** Shows the text while it streams. @param {string} text */
  stream(text) {
    this.#text.textContent = text;
  }

  /** @param {string} text */
  note(text) {
    this.#note.textContent = text;
  }

  /** @param {HTMLElement} child */
  add(child) {
    this.element.append(child);
  }
}

/** Asks, streams the answer into a side, and stops it. */
class AskButton {
  element;
  #label;
  #side;
  #said;
  #ask;
  #problem = new ProblemLine();
  #events = /** @type {AsyncIterator<any>|null} */ (null);
  #isAsking = false;

  /** @param {string} label @param {Side} side @param {string} said below the answer @param {() => Promise<AsyncIterator<any>>} ask */
  constructor(label, side, said, ask) {
    this.#label = label;
    this.#side = side;
    this.#said = said;
    this.#ask = ask;
    this.element = button(label, 'quiet', () => (this.#isAsking ? this.#stop() : this.#run()));
    side.add(this.#problem.element);
  }

  async #run() {
    this.#isAsking = true;
    this.element.textContent = t('story.stop');
    this.#problem.say(null);
    this.#side.note('');
    let text = '';
    try {
      const events = this.#events = await this.#ask();
      for (let next = await events.next(); !next.done; next = await events.next()) {
        const event = next.value;
        if (event.type === 'delta') this.#side.stream(text += event.text);
        else if (event.type === 'replacement') ({ text } = event);
        else if (event.type === 'failure') throw Object.assign(userError(event.kind, event.message), { stack: event.details ?? '' });
      }
      this.#side.say(text, this.#said, this.#said === t('story.nowAsked'));
    } catch (error) {
      this.#problem.say(error);
    }
    this.#events = null;
    this.#isAsking = false;
    this.element.textContent = this.#label;
  }

  #stop() {
    this.#events?.return?.();
  }
}
