/** The lessons that the user taught: questions with their answers. Each can be edited, switched off, and forgotten. */
import { t } from '../../i18n/i18n.js';
import { LearnedNote } from '../../turn/learned_note.js';
import { button, element } from '../../common/dom.js';
import { editForm, labelled } from '../../common/edit_form.js';
import { formatDate, formatShare } from '../../common/format.js';
import { RecordList } from '../record_list.js';
import { LessonStory } from './lesson_story.js';
import { actions, facts } from '../record_row.js';

const FILTERS = { now: 'facts.current', off: 'facts.off', history: 'facts.history' };

export class LearnedPanel {
  /** @type {import('../../learning/client.js').Learning} */ #learning;
  /** @type {import('../../engine/engine.js').Engine} */ #engine;
  #list;
  #teach = button(t('facts.teachSomething'), 'primary', () => this.#openForm());
  #note = /** @type {LearnedNote|null} */ (null); // of the last lesson
  #place = element('div', 'learned-place'); // of the form and the note
  #forgotten = element('p', 'learned-forgotten');

  /**
   * @param {HTMLElement} root @param {any} _memory
   * @param {{learning: import('../../learning/client.js').Learning, engine: import('../../engine/engine.js').Engine}} parts
   */
  constructor(root, _memory, { learning, engine }) {
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
      render: (lesson, row) => this.#render(lesson, row),
      remove: (ids) => this.#forget(ids),
    });
    const head = element('div', 'learned-head');
    head.append(element('p', 'panel-lead', t('facts.lead')), this.#teach);
    this.#forgotten.setAttribute('role', 'status');
    root.append(element('h3', '', t('facts.title')), head, this.#place, this.#forgotten, this.#list.element);
  }

  show() {
    return this.refresh();
  }

  refresh() {
    return this.#list.refresh();
  }

  hide() {}

  #render(lesson, row) {
    const { question, answer, source, uses, created, lastUsed, quality, on, replacedBy, similarity } = lesson;
    const used = uses ? t('records.usedLast', { count: uses, date: formatDate(lastUsed) }) : t('records.unused');
    const asked = element('p', 'record-text lesson-question', question);
    const said = element('p', 'record-text', answer);
    asked.dir = said.dir = 'auto';
    const state = replacedBy ? t('facts.isReplaced') : on ? null : t('facts.isOff');
    const buttons = replacedBy ? [] : [this.#switch(lesson), row.action(t('records.edit'), () => this.#edit(lesson, row))];
    return [
      asked, said,
      facts(
        state && element('b', 'record-agent', state),
        similarity === null ? null : t('records.similar', { share: formatShare(similarity) }),
        used, quality < 1 ? t('records.quality', { share: formatShare(quality) }) : null, t(`facts.source_${source}`, { date: formatDate(created) }),
      ),
      new LessonStory(lesson.id, { learning: this.#learning, engine: this.#engine }).element,
      actions(...buttons, row.deleteAction()),
    ];
  }

  #switch({ id, on, question }) {
    const label = element('label', 'switch');
    const box = Object.assign(element('input'), { type: 'checkbox', checked: on });
    box.setAttribute('role', 'switch');
    box.setAttribute('aria-label', t('facts.useFor', { question }));
    box.addEventListener('change', async () => {
      if (!await this.#list.attempt(() => this.#learning.switchLesson({ id, on: box.checked }))) box.checked = on;
    });
    label.append(box, element('span', '', t('facts.use')));
    return label;
  }

  #openForm() {
    const { question, answer, ...fields } = lessonFields('', '');
    const close = () => {
      form.remove();
      this.#teach.hidden = false;
      (this.#note ?? this.#teach).focus();
    };
    const save = async () => this.#showLearned(await this.#learning.teach({ question: question.value, answer: answer.value }));
    const form = editForm({ ...fields, label: t('facts.teach'), save, close });
    this.#note = null;
    this.#teach.hidden = true;
    this.#place.replaceChildren(form);
    question.focus();
  }

  #edit(lesson, row) {
    const { question, answer, fields, controls } = lessonFields(lesson.question, lesson.answer);
    row.edit(fields, async () => {
      const words = { question: question.value.trim(), answer: answer.value.trim() };
      if (words.question === lesson.question && words.answer === lesson.answer) return;
      await this.#showLearned(await this.#learning.editLesson({ id: lesson.id, ...words }));
    }, controls);
  }

  /** @param {import('../../protocol_calls.js').TaughtLesson} taught */
  async #showLearned(taught) {
    this.#note?.element.remove();
    const undo = async () => {
      await this.#learning.undoTeaching({ id: taught.lesson.id });
      await this.refresh();
    };
    this.#note = new LearnedNote(taught, { undo: taught.known ? null : undo });
    this.#place.append(this.#note.element);
    await this.refresh();
  }

  async #forget(ids) {
    await this.#learning.forget({ ids });
    this.#note?.element.remove(); // its Undo may refer to a lesson that is gone
    const undo = button(t('forms.undo'), 'link', async () => {
      let replaced = 0;
      if (!await this.#list.attempt(async () => { replaced = await this.#learning.restore({ ids }); })) return;
      const stay = replaced ? ` ${t('facts.stayReplaced', { count: replaced })}` : '';
      this.#forgotten.replaceChildren(t('facts.remembered') + stay);
      await this.refresh();
    });
    this.#forgotten.replaceChildren(`${t('facts.forgotten', { count: ids.length })} `, undo);
  }
}

/** Two fields: a question, and the answer to give. */
function lessonFields(asked, said) {
  const field = (value) => Object.assign(element('textarea'), { value, required: true, dir: 'auto' });
  const question = field(asked), answer = field(said);
  return {
    question, answer, fields: [labelled(t('facts.question'), question), labelled(t('facts.answer'), answer)], controls: { question, answer },
  };
}
