/**
 * The effect of a lesson: the answer before, the wanted answer, and the current one, side by side, with the differences marked.
 * Each of the model's two answers can be requested again.
 */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { directive, Directive } from '../../vendor/lit-html/directive.js';
import { userError } from '../../common/user_error.js';
import { wordDiff } from '../../common/word_diff.js';
import { t } from '../../i18n/i18n.js';
import { button, element, ProblemLine } from '../../common/dom.js';
import { formatDate, formatShare } from '../../common/format.js';

/**
 * @typedef {import('../../protocol_calls.js').Story} Story
 * @typedef {import('../../common/word_diff.js').Piece} Piece
 * @typedef {{learning: import('../../learning/client.js').Learning, engine: import('../../engine/engine.js').Engine}} Asks
 */

const LEAST_SHARED = 0.25; // of the longer text
const BEFORE_UNKNOWN = { taught: 'story.beforeTaught', corrected: 'story.beforeGone', praised: 'story.beforePraised' };

class StoryOfRow extends Directive {
  #lesson = ''; // as JSON
  #story = /** @type {LessonStory|null} */ (null);

  /** @param {{id: string}} lesson a story of a lesson that has changed is told again @param {Asks} asks */
  render(lesson, asks) {
    const now = JSON.stringify(lesson);
    if (!this.#story || now !== this.#lesson) this.#story = new LessonStory(lesson.id, asks);
    this.#lesson = now;
    return this.#story.element;
  }
}

/** In a template of a lesson, its story, which is folded up at first. */
export const lessonStory = directive(StoryOfRow);

class LessonStory {
  element = element('details', 'story');
  #id;
  #asks;
  #sides = /** @type {Side[]} */ ([]);
  #below = /** @type {string[]} */ ([]); // sentences below the sides
  #problem = new ProblemLine();

  /** @param {string} id of the lesson @param {Asks} asks */
  constructor(id, asks) {
    this.#id = id;
    this.#asks = asks;
    this.element.addEventListener('toggle', () => this.element.open && this.#load());
    this.#draw();
  }

  #draw() {
    render(html`
      <summary>${t('story.show')}</summary>
      ${this.#problem.element}
      <div class="story-body">
        ${this.#sides.length ? html`<div class="story-sides">${this.#sides.map((side) => side.template)}</div>` : nothing}
        ${this.#below.map((sentence) => html`<p class="panel-lead">${sentence}</p>`)}
      </div>`, this.element);
  }

  async #load() {
    this.#problem.say(null);
    if (!this.#sides.length && !this.#below.length) this.#show([], [t('story.loading')]);
    try {
      const story = await this.#asks.learning.lessonStory({ id: this.#id });
      if (story) this.#tell(story);
      else this.#show([], [t('story.forgotten')]);
    } catch (error) {
      this.#show([], []);
      this.#problem.say(error);
    }
  }

  /** @param {Side[]} sides @param {string[]} below */
  #show(sides, below) {
    this.#sides = sides;
    this.#below = below;
    this.#draw();
  }

  /** @param {Story} story */
  #tell(story) {
    const { answer, before, earlier, last, nllBefore, nllAfter } = story;
    const first = this.#side('before', answer, { learned: false, label: t('story.askPlain'), said: t('story.beforeAsked') });
    if (before) first.say(before.text, before.cut ? t('story.beforeCut') : '');
    else first.note = t(BEFORE_UNKNOWN[story.source]);
    const wanted = this.#side('after', '');
    const words = before ? wordDiff(before.text, answer) : [];
    wanted.pieces = areAlike(words) ? words.filter(({ kind }) => kind !== 'gone') : [{ text: answer, kind: 'same' }];
    const now = this.#side('now', answer, { learned: true, label: t('story.ask'), said: t('story.nowAsked') });
    if (last) now.say(last.text, t('story.nowLast', { when: formatDate(last.created) }), true);
    else now.note = t('story.nowNever');
    const below = [];
    if (earlier.length) below.push(`${t('story.earlier')}: ${earlier.map(({ text }) => `“${text}”`).join(', ')}`);
    if (nllBefore !== null && nllAfter !== null) {
      const [sureBefore, sureNow] = [nllBefore, nllAfter].map((nll) => formatShare(Math.exp(-nll)));
      below.push(t('story.certainty', { before: sureBefore, after: sureNow }));
    }
    this.#show([first, wanted, now], below);
  }

  /** @param {'before'|'after'|'now'} name @param {string} wanted @param {{learned: boolean, label: string, said: string}|null} [question] */
  #side(name, wanted, question = null) {
    const ask = question && (() => this.#asks.engine.conversation.tryLesson({ id: this.#id, learned: question.learned }));
    return new Side(t(`story.${name}`), wanted, () => this.#draw(), question && { ...question, ask });
  }
}

/** True if two texts share enough for marking the differences. @param {Piece[]} pieces */
function areAlike(pieces) {
  const length = (but) => pieces.reduce((sum, { text, kind }) => sum + (kind === but ? 0 : text.length), 0);
  const shared = pieces.reduce((sum, { text, kind }) => sum + (kind === 'same' ? text.length : 0), 0);
  return shared >= LEAST_SHARED * Math.max(length('new'), length('gone'), 1);
}

/** One of the three answers. Two have a button that asks again, streams the answer, and stops it. */
class Side {
  pieces = /** @type {Piece[]} */ ([]); // the text
  note = '';
  #title;
  #wanted;
  #onChange;
  #question;
  #problem = new ProblemLine();
  #events = /** @type {AsyncIterator<any>|null} */ (null);
  #isAsking = false;

  /**
   * @param {string} title @param {string} wanted the wanted answer, with which it is compared; '' for the wanted answer itself
   * @param {() => void} onChange
   * @param {{label: string, said: string, learned: boolean, ask: (() => Promise<AsyncIterator<any>>)|null}|null} question `said`:
   *   below the answer; `learned`: say whether it is as wanted
   */
  constructor(title, wanted, onChange, question) {
    this.#title = title;
    this.#wanted = wanted;
    this.#onChange = onChange;
    this.#question = question;
  }

  get template() {
    const marked = ({ text, kind }) => (kind === 'same' ? text : kind === 'gone' ? html`<del>${text}</del>` : html`<ins>${text}</ins>`);
    const words = this.#isAsking ? t('story.stop') : this.#question?.label;
    return html`
      <article class="story-side"><h3>${this.#title}</h3><p class="story-text" dir="auto">${this.pieces.map(marked)}</p><p class="story-note"
        role="status">${this.note}</p>${this.#question ? [this.#problem.element, button(words, 'quiet', () => (this.#isAsking ? this.#events?.return?.() : this.#ask()))] : nothing}</article>`;
  }

  /** A text with a note. @param {string} text @param {string} note @param {boolean} [judged] say whether it is as wanted */
  say(text, note, judged = false) {
    const pieces = wordDiff(text, this.#wanted);
    const isSame = pieces.every(({ kind }) => kind === 'same'), isAlike = areAlike(pieces);
    // Seen from this text: words that the wanted one lacks are new here.
    if (!isAlike) this.pieces = [{ text, kind: 'same' }];
    else if (judged) this.pieces = pieces.map((piece) => ({ ...piece, kind: piece.kind === 'gone' ? 'new' : piece.kind === 'new' ? 'gone' : 'same' }));
    else this.pieces = pieces.filter(({ kind }) => kind !== 'new');
    this.note = [note, judged ? t(isSame ? 'story.same' : isAlike ? 'story.differs' : 'story.other') : ''].filter(Boolean).join(' · ');
  }

  async #ask() {
    const { ask, said, learned } = /** @type {any} */ (this.#question);
    this.#isAsking = true;
    this.#problem.say(null);
    this.note = '';
    this.#onChange();
    let text = '';
    try {
      const events = this.#events = /** @type {AsyncIterator<any>} */ (await ask());
      for (let next = await events.next(); !next.done; next = await events.next()) {
        const event = next.value;
        if (event.type === 'delta') {
          this.pieces = [{ text: text += event.text, kind: 'same' }];
          this.#onChange();
        } else if (event.type === 'replacement') ({ text } = event);
        else if (event.type === 'failure') throw Object.assign(userError(event.kind, event.message), { stack: event.details ?? '' });
      }
      this.say(text, said, learned);
    } catch (error) {
      this.#problem.say(error);
    }
    this.#events = null;
    this.#isAsking = false;
    this.#onChange();
  }
}
