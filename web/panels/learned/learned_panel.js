/** The lessons that the user taught: questions with their answers. Each can be edited, switched off, and forgotten. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { live } from '../../vendor/lit-html/directives/live.js';
import { t } from '../../i18n/i18n.js';
import { LearnedNote } from '../../turn/learned_note.js';
import { button, part } from '../../common/dom.js';
import { editForm, labelled, textArea } from '../../common/edit_form.js';
import { formatDate, formatShare } from '../../common/format.js';
import { RecordList } from '../record_list.js';
import { lessonStory } from './lesson_story.js';
import { facts } from '../record_row.js';

const FILTERS = { now: 'facts.current', off: 'facts.off', history: 'facts.history' };

export class LearnedPanel {
  #root;
  /** @type {import('../../learning/client.js').Learning} */ #learning;
  /** @type {import('../../engine/engine.js').Engine} */ #engine;
  #list;
  #form = /** @type {HTMLFormElement|null} */ (null); // in which a lesson is taught
  #note = /** @type {LearnedNote|null} */ (null); // of the last lesson
  #forgotten = /** @type {unknown} */ (''); // what is said of the lessons that were forgotten last

  /**
   * @param {HTMLElement} root @param {any} _memory
   * @param {{learning: import('../../learning/client.js').Learning, engine: import('../../engine/engine.js').Engine}} parts
   */
  constructor(root, _memory, { learning, engine }) {
    this.#root = root;
    this.#learning = learning;
    this.#engine = engine;
    this.#list = new RecordList({
      texts: 'facts',
      searchLabel: t('facts.search'),
      filters: FILTERS,
      filterLabel: t('records.show'),
      empty: t('facts.empty'),
      selectable: true,
      load: (/** @type {any} */ asked) => learning.lessons(asked),
      key: ({ id }) => id,
      render: (lesson, row) => this.#row(lesson, row),
      remove: (ids) => this.#forget(ids),
    });
    this.#draw();
  }

  show() {
    return this.refresh();
  }

  refresh() {
    return this.#list.refresh();
  }

  hide() {}

  #draw() {
    render(html`
      <h3>${t('facts.title')}</h3>
      <div class="learned-head">
        <p class="panel-lead">${t('facts.lead')}</p>
        <button type="button" class="primary" ?hidden=${this.#form !== null} @click=${() => this.#openForm()}>${t('facts.teachSomething')}</button>
      </div>
      <div class="learned-place">${this.#form ?? nothing}${this.#note?.element ?? nothing}</div>
      <p class="learned-forgotten" role="status">${this.#forgotten}</p>
      ${this.#list.element}`, this.#root);
  }

  /** @param {any} lesson @param {import('../record_row.js').Row} row */
  #row(lesson, row) {
    const { question, answer, source, uses, created, lastUsed, quality, on, replacedBy, similarity } = lesson;
    const used = uses ? t('records.usedLast', { count: uses, date: formatDate(lastUsed) }) : t('records.unused');
    const state = replacedBy ? t('facts.isReplaced') : on ? null : t('facts.isOff');
    return html`
      <p class="record-text lesson-question" dir="auto">${question}</p>
      <p class="record-text" dir="auto">${answer}</p>
      ${facts(
        state && html`<b class="record-agent">${state}</b>`,
        similarity === null ? null : t('records.similar', { share: formatShare(similarity) }),
        used, quality < 1 ? t('records.quality', { share: formatShare(quality) }) : null, t(`facts.source_${source}`, { date: formatDate(created) }),
      )}
      ${lessonStory(lesson, { learning: this.#learning, engine: this.#engine })}
      <div class="record-actions">
        ${replacedBy ? nothing : [this.#switch(lesson), button(t('records.edit'), 'quiet', () => this.#edit(lesson, row))]}
        ${row.deleteAction()}
      </div>`;
  }

  #switch({ id, on, question }) {
    const turn = async ({ target }) => {
      if (!await this.#list.attempt(() => this.#learning.switchLesson({ id, on: target.checked }))) this.#list.draw();
    };
    return html`
      <label class="switch"><input type="checkbox" role="switch" aria-label=${t('facts.useFor', { question })} .checked=${live(on)}
        @change=${turn}><span>${t('facts.use')}</span></label>`;
  }

  #openForm() {
    const close = () => {
      this.#form = null;
      this.#draw();
      if (this.#note) this.#note.focus();
      else part(this.#root, '.learned-head button', HTMLElement).focus();
    };
    const save = async (/** @type {Record<string, string>} */ { question, answer }) => this.#showLearned(await this.#learning.teach({ question, answer }));
    this.#note = null;
    this.#form = editForm({ fields: lessonFields('', ''), label: t('facts.teach'), save, close });
    this.#draw();
    part(this.#form, 'textarea', HTMLElement).focus();
  }

  #edit(lesson, row) {
    row.edit(lessonFields(lesson.question, lesson.answer), async (typed) => {
      const words = { question: typed.question.trim(), answer: typed.answer.trim() };
      if (words.question === lesson.question && words.answer === lesson.answer) return;
      await this.#showLearned(await this.#learning.editLesson({ id: lesson.id, ...words }));
    });
  }

  /** @param {import('../../protocol_calls.js').TaughtLesson} taught */
  async #showLearned(taught) {
    const undo = async () => {
      await this.#learning.undoTeaching({ id: taught.lesson.id });
      await this.refresh();
    };
    this.#note = new LearnedNote(taught, { undo: taught.known ? null : undo });
    this.#draw();
    await this.refresh();
  }

  async #forget(ids) {
    await this.#learning.forget({ ids });
    this.#note = null; // its Undo may refer to a lesson that is gone
    const undo = async () => {
      let replaced = 0;
      if (!await this.#list.attempt(async () => { replaced = await this.#learning.restore({ ids }); })) return;
      this.#forgotten = t('facts.remembered') + (replaced ? ` ${t('facts.stayReplaced', { count: replaced })}` : '');
      this.#draw();
      await this.refresh();
    };
    this.#forgotten = [`${t('facts.forgotten', { count: ids.length })} `, button(t('forms.undo'), 'link', undo)];
    this.#draw();
  }
}

/** Two fields: a question, and the answer to give. */
function lessonFields(question, answer) {
  return [labelled(t('facts.question'), textArea('question', question)), labelled(t('facts.answer'), textArea('answer', answer))];
}
