/** What the user taught: questions with their answers. Each can be edited, switched off, and forgotten. */
import { LearnedNote } from '../chat/learned_note.js';
import { button, element } from '../page/dom.js';
import { editForm, labelled } from '../page/edit_form.js';
import { formatCount, formatDate, formatShare } from '../page/format.js';
import { RecordList } from './record_list.js';
import { actions, facts } from './record_row.js';

const LEAD = 'Sonata gives these answers when you ask such a question again, also in other words.';
const EMPTY = 'You have taught nothing yet. Click "You should have said …" below an answer, or "Teach something" here.';
const SOURCES = { taught: 'you taught it', corrected: 'you corrected an answer', praised: 'you liked the answer' };
const FILTERS = [
  { value: 'now', label: 'Current' }, { value: 'off', label: 'Switched off' }, { value: 'history', label: 'Replaced' },
];

export class LearnedPanel {
  #learning;
  #list;
  #teach = button('Teach something', 'primary', () => this.#openForm());
  #note = /** @type {LearnedNote|null} */ (null); // of what was taught last
  #place = element('div', 'learned-place'); // of the form and the note
  #forgotten = element('p', 'learned-forgotten');

  constructor(root, _memory, { learning }) {
    this.#learning = learning;
    this.#list = new RecordList({
      nouns: ['fact', 'facts'],
      searchLabel: 'Search facts',
      filters: FILTERS,
      filterLabel: 'Show',
      empty: EMPTY,
      selectable: true,
      load: (asked) => learning.lessons(asked),
      key: ({ id }) => id,
      render: (lesson, row) => this.#render(lesson, row),
      remove: (ids) => this.#forget(ids),
      removal: 'Forget',
    });
    const head = element('div', 'learned-head');
    head.append(element('p', 'panel-lead', LEAD), this.#teach);
    this.#forgotten.setAttribute('role', 'status');
    root.append(head, this.#place, this.#forgotten, this.#list.element);
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
    const used = uses ? `used ${formatCount(uses, 'time')}, last ${formatDate(lastUsed)}` : 'not used yet';
    const asked = element('p', 'record-text lesson-question', question);
    const said = element('p', 'record-text', answer);
    asked.dir = said.dir = 'auto';
    const state = replacedBy ? 'replaced by a newer answer' : on ? null : 'switched off';
    const buttons = replacedBy ? [] : [this.#switch(lesson), row.action('Edit', () => this.#edit(lesson, row))];
    return [
      asked, said,
      facts(
        state && element('b', 'record-agent', state),
        similarity === null ? null : `${formatShare(similarity)} similar`,
        used, `quality ${formatShare(quality)}`, `${SOURCES[source] ?? source} ${formatDate(created)}`,
      ),
      actions(...buttons, row.deleteAction('Forget this?', 'Forget')),
    ];
  }

  #switch({ id, on, question }) {
    const label = element('label', 'switch');
    const box = Object.assign(element('input'), { type: 'checkbox', checked: on });
    box.setAttribute('role', 'switch');
    box.setAttribute('aria-label', `Use the answer to: ${question}`);
    box.addEventListener('change', async () => {
      if (!await this.#list.attempt(() => this.#learning.switchLesson(id, box.checked))) box.checked = on;
    });
    label.append(box, element('span', '', 'Use it'));
    return label;
  }

  #openForm() {
    const { question, answer, ...fields } = lessonFields('', '');
    const close = () => {
      form.remove();
      this.#teach.hidden = false;
      (this.#note ?? this.#teach).focus();
    };
    const save = async () => this.#showLearned(await this.#learning.teach(question.value, answer.value));
    const form = editForm({ ...fields, label: 'Teach', save, close });
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
      await this.#showLearned(await this.#learning.editLesson(lesson.id, words));
    }, controls);
  }

  /** @param {import('../learning/client.js').Taught} taught */
  async #showLearned(taught) {
    this.#note?.element.remove();
    const undo = async () => {
      await this.#learning.undoTeaching(taught.lesson.id);
      await this.refresh();
    };
    this.#note = new LearnedNote(taught, { undo: taught.known ? null : undo });
    this.#place.append(this.#note.element);
    await this.refresh();
  }

  async #forget(ids) {
    await this.#learning.forget(ids);
    this.#note?.element.remove(); // its Undo may be for what is gone
    const undo = button('Undo', 'link', async () => {
      let replaced = 0;
      if (!await this.#list.attempt(async () => { replaced = await this.#learning.restore(ids); })) return;
      const stay = replaced ? ` ${formatCount(replaced, 'fact')} under “Replaced”: you have taught a newer answer since.` : '';
      this.#forgotten.replaceChildren(`Remembered again.${stay}`);
      await this.refresh();
    });
    this.#forgotten.replaceChildren(`${formatCount(ids.length, 'fact')} forgotten. `, undo);
  }
}

/** Two fields that say what is to be answered when. */
function lessonFields(asked, said) {
  const field = (value) => Object.assign(element('textarea'), { value, required: true, dir: 'auto' });
  const question = field(asked), answer = field(said);
  return {
    question, answer, fields: [labelled('Question', question), labelled('Answer', answer)], controls: { question, answer },
  };
}
