/** The form that names the columns of a table: made sets of them, and each column with its kind. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { live } from '../vendor/lit-html/directives/live.js';
import { part } from '../common/dom.js';
import { icon } from '../common/icon.js';
import { t } from '../i18n/i18n.js';

const MOST = 12; // app/extraction/columns.py
const KINDS = ['text', 'number', 'date', 'email', 'phone', 'choice'];
const SETS = { contacts: ['text', 'email', 'phone'], invoices: ['text', 'text', 'date', 'number'], events: ['date', 'text', 'text'] };

/**
 * @typedef {{name: string, kind: string, words: string, isMade?: boolean}} Typed words: of a choice, as they were typed;
 *   isMade: of a made set, and not changed
 */

export class ColumnsForm {
  columns = setOf('contacts');
  #onChange;

  /** @param {() => void} onChange draw the form again */
  constructor(onChange) {
    this.#onChange = onChange;
  }

  /** @returns {import('../protocol_calls.js').TableColumn[]} without rows that nothing was typed into */
  get named() {
    return this.columns.filter(({ name, words }) => name.trim() || words.trim()).map(({ name, kind, words }) => (
      kind === 'choice' ? { name, kind, choices: words.split(',') } : { name, kind }
    ));
  }

  get template() {
    const chosen = Object.keys(SETS).find((set) => JSON.stringify(setOf(set)) === JSON.stringify(this.columns));
    const choose = (columns) => { this.columns = columns; this.#onChange(); };
    return html`
      <div class="table-sets" role="group" aria-label=${t('table.sets')}>${Object.keys(SETS).map((set) => html`
        <button type="button" class="table-set" aria-pressed=${String(set === chosen)} @click=${() => choose(setOf(set))}>${t(`table.set_${set}`)}</button>`)}
      </div>
      <ol class="table-columns">${repeat(this.columns, (column) => column, (column, at) => this.#row(column, at))}</ol>
      <button type="button" class="link" ?hidden=${this.columns.length >= MOST} @click=${(event) => this.#add(event)}>${t('table.addColumn')}</button>`;
  }

  /** @param {Typed} column @param {number} at */
  #row(column, at) {
    const number = at + 1;
    const typed = (name) => ({ target }) => {
      // Another name is most often another kind, too: emails are not streets.
      if (column.isMade && name === 'name') column.kind = 'text';
      column.isMade = false;
      column[name] = target.value;
      this.#onChange();
    };
    return html`<li class="table-column">
      <input class="column-name" .value=${live(column.name)} maxlength="60" dir="auto" aria-label=${t('table.columnName', { number })} placeholder=${t('table.columnHint')} @input=${typed('name')}>
      <select aria-label=${t('table.columnKind', { number })} @change=${typed('kind')}>${KINDS.map((kind) => html`<option value=${kind} .selected=${kind === column.kind}>${t(`table.kind_${kind}`)}</option>`)}</select>
      <button type="button" class="action" aria-label=${t('table.removeColumn', { number })} title=${t('table.removeColumn', { number })} ?disabled=${this.columns.length < 2} @click=${(event) => this.#remove(event, column)}>${icon('x')}</button>
      ${column.kind === 'choice' ? html`<input class="column-words" .value=${live(column.words)} dir="auto" aria-label=${t('table.columnWords', { number })} placeholder=${t('table.wordsHint')} @input=${typed('words')}>` : nothing}
    </li>`;
  }

  #add({ target }) {
    this.columns = [...this.columns, { name: '', kind: 'text', words: '' }];
    this.#onChange();
    const inputs = target.closest('form').querySelectorAll('.column-name');
    inputs[inputs.length - 1].focus();
  }

  /** @param {{target: HTMLElement}} event @param {Typed} column */
  #remove({ target }, column) {
    const list = /** @type {HTMLElement} */ (target.closest('ol'));
    this.columns = this.columns.filter((one) => one !== column);
    this.#onChange();
    part(list, 'li:last-child input', HTMLInputElement).focus();
  }
}

/** @param {string} name of a made set @returns {Typed[]} */
function setOf(name) {
  const names = t(`table.columns_${name}`).split(', ');
  return SETS[name].map((kind, at) => ({ name: names[at], kind, words: '', isMade: true }));
}
