/**
 * A list of the memory's entries, a page at a time: search, a filter, selection, deletion, rows that are edited in place. When
 * the memory changes, `refresh` updates it and leaves alone rows that are being edited.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { live } from '../vendor/lit-html/directives/live.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { t } from '../i18n/i18n.js';
import { element, ProblemLine } from '../common/dom.js';
import { askingButton } from '../common/confirmation.js';
import { ownKeys } from '../shell/keyboard.js';
import { Row } from './record_row.js';

const PAGE = 25;
const SEARCH_PAUSE_MS = 250;

export class RecordList {
  element = element('div', 'records');
  #options;
  #search = '';
  #filter = '';
  #isNarrowed = false; // the shown rows are those of a search or a filter
  #offset = 0;
  #total = 0;
  #isThere = false; // true once anything was loaded
  #run = 0; // number of the latest load
  #rows = /** @type {Map<string, Row>} */ (new Map()); // by key, those on the page
  #timer = 0;
  #problem = new ProblemLine();

  /**
   * @param {object} options
   * @param {string} options.texts section of the texts of these entries: count, list, none, sure, verb, and so on
   * @param {(asked: {search: string, filter: string, offset: number, limit: number}) => Promise<{total: number, items: any[]}>} options.load
   * @param {(item: any) => string} options.key
   * @param {(item: any, row: Row) => unknown} options.render returns a template of a row's content
   * @param {string} options.empty the sentence if there is nothing at all
   * @param {string} [options.searchLabel] label of the search field, if there is one
   * @param {Record<string, string>} [options.filters] value -> key of its text; the first one applies until another is chosen
   * @param {string} [options.filterLabel]
   * @param {(keys: string[]) => Promise<void>} [options.remove] deletes entries, if they can be deleted
   * @param {boolean} [options.selectable] true if several can be selected
   */
  constructor(options) {
    this.#options = options;
    this.#filter = this.#usualFilter;
    this.draw();
  }

  get texts() {
    return this.#options.texts;
  }

  get #usualFilter() {
    return Object.keys(this.#options.filters ?? {})[0] ?? '';
  }

  /** Load the shown page again. */
  async refresh() {
    const run = (this.#run += 1);
    const asked = { search: this.#search.trim(), filter: this.#filter, offset: this.#offset, limit: PAGE };
    try {
      const { total, items } = await this.#options.load(asked);
      if (run !== this.#run) return;
      if (items.length === 0 && total > 0 && this.#offset > 0) { // the last page is gone
        this.#offset = Math.floor((total - 1) / PAGE) * PAGE;
        return void (await this.refresh());
      }
      this.#problem.say(null);
      this.#total = total;
      this.#isThere = true;
      this.#isNarrowed = asked.search !== '' || asked.filter !== this.#usualFilter;
      this.#show(items);
    } catch (error) {
      if (run === this.#run) this.#problem.say(error);
    }
  }

  /** Do something with entries, and show a failure. @param {() => Promise<unknown>} run @returns {Promise<boolean>} */
  async attempt(run) {
    try {
      await run();
      this.#problem.say(null);
      return true;
    } catch (error) {
      this.#problem.say(error);
      return false;
    }
  }

  /** Delete entries. @param {string[]} keys */
  async remove(keys) {
    const begin = [...this.#rows.keys()].indexOf(keys[0]);
    if (!await this.attempt(async () => this.#options.remove?.(keys))) return;
    for (const key of keys) this.#rows.delete(key);
    this.draw();
    await this.refresh();
    const left = [...this.#rows.keys()];
    if (left.length) this.focus(left[Math.min(begin, left.length - 1)]);
    else /** @type {HTMLElement|null} */ (this.element.querySelector('input[type=search]'))?.focus();
  }

  /** Focus the first button of a row. @param {string} key */
  focus(key) {
    const at = [...this.#rows.keys()].indexOf(key);
    this.element.querySelectorAll('.record')[at]?.querySelector('button')?.focus();
  }

  #turnTo(offset) {
    clearTimeout(this.#timer);
    this.#offset = Math.max(offset, 0);
    for (const row of this.#rows.values()) row.isSelected = false;
    return this.refresh();
  }

  /** Update the rows to `items`: one that is being edited stays until it is saved or given up. */
  #show(items) {
    const before = this.#rows;
    this.#rows = new Map();
    for (const item of items) {
      const key = this.#options.key(item);
      const row = before.get(key) ?? new Row(this, key);
      before.delete(key);
      row.item = item;
      this.#rows.set(key, row);
    }
    for (const [key, row] of before) if (row.form) this.#rows.set(key, row);
    this.draw();
  }

  draw() {
    const { texts, selectable, searchLabel, filters, empty } = this.#options;
    const isEmpty = this.#rows.size === 0, hasNothing = isEmpty && !this.#isNarrowed;
    render(html`
      <div class="records-tools" ?hidden=${hasNothing || !(searchLabel || filters)}>
        ${searchLabel ? this.#searchField(searchLabel) : nothing}${filters ? this.#filterMenu(filters) : nothing}
      </div>
      ${this.#problem.element}
      <div class="records-bar" ?hidden=${hasNothing || !(selectable || searchLabel)}>
        ${selectable ? this.#selectAll() : nothing}
        <span class="records-count" role="status">${this.#isThere ? t(`${texts}.count`, { count: this.#total }) : ''}</span>
        <div class="records-bulk">${this.#bulk()}</div>
      </div>
      <ul class="record-list" aria-label=${t(`${texts}.list`)} ?hidden=${isEmpty}>
        ${repeat(this.#rows, ([key]) => key, ([, row]) => this.#row(row))}
      </ul>
      <p class="records-empty" ?hidden=${!isEmpty || !this.#isThere}>${this.#isNarrowed ? t(`${texts}.none`) : empty}</p>
      <nav class="records-pages" aria-label=${t('records.pagesOf', { list: t(`${texts}.list`) })} ?hidden=${this.#total <= PAGE}>
        ${this.#turn(t('records.previous'), this.#offset - PAGE, this.#offset > 0)}
        <span>${t('records.range', { first: this.#offset + 1, last: Math.min(this.#offset + PAGE, this.#total) })}</span>
        ${this.#turn(t('records.next'), this.#offset + PAGE, this.#offset + PAGE < this.#total)}
      </nav>`, this.element);
  }

  /** @param {Row} row */
  #row(row) {
    const { texts, selectable, render: content } = this.#options;
    const select = (event) => {
      row.isSelected = event.target.checked;
      this.draw();
    };
    return html`
      <li class="record">
        ${selectable ? html`<input class="record-box" type="checkbox" aria-label=${t(`${texts}.select`)}
          .checked=${live(row.isSelected)} @change=${select}>` : nothing}
        <div class="record-body">${row.form ?? content(row.item, row)}</div>
      </li>`;
  }

  /** @param {string} label */
  #searchField(label) {
    const onInput = (event) => {
      this.#search = event.target.value;
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#turnTo(0), SEARCH_PAUSE_MS);
    };
    const onKey = ownKeys((event) => {
      if (event.key !== 'Escape' || !this.#search) return;
      event.preventDefault(); // empties the field, and does not close the dialog
      this.#search = '';
      this.draw();
      this.#turnTo(0);
    });
    return html`<input type="search" placeholder=${label} aria-label=${label} autocomplete="off" spellcheck="false"
      .value=${live(this.#search)} @input=${onInput} @keydown=${onKey}>`;
  }

  /** @param {Record<string, string>} filters */
  #filterMenu(filters) {
    const choose = (event) => {
      this.#filter = event.target.value;
      this.#turnTo(0);
    };
    return html`<select aria-label=${this.#options.filterLabel ?? nothing} @change=${choose}>
      ${Object.entries(filters).map(([value, key]) => html`<option value=${value}>${t(key)}</option>`)}</select>`;
  }

  get #selected() {
    return [...this.#rows].flatMap(([key, row]) => (row.isSelected ? [key] : []));
  }

  #selectAll() {
    const count = this.#selected.length;
    const select = (event) => {
      for (const row of this.#rows.values()) row.isSelected = event.target.checked;
      this.draw();
    };
    return html`
      <label class="records-all">
        <input type="checkbox" .checked=${live(count > 0 && count === this.#rows.size)} .indeterminate=${live(count > 0 && count < this.#rows.size)}
          ?disabled=${this.#rows.size === 0} @change=${select}><span class="visually-hidden">${t('records.all')}</span>
      </label>`;
  }

  #bulk() {
    const keys = this.#selected;
    if (!keys.length) return nothing;
    const several = (name) => t(`${this.texts}.${name}`, { count: keys.length });
    return askingButton({
      label: several('verbSeveral'), question: several('sureSeveral'), yes: t(`${this.texts}.verb`), run: () => this.remove(keys),
    });
  }

  /** @param {string} label @param {number} offset @param {boolean} isPossible */
  #turn(label, offset, isPossible) {
    const turn = async ({ currentTarget: pressed }) => {
      await this.#turnTo(offset);
      this.element.scrollIntoView({ block: 'start' });
      const next = pressed.disabled ? pressed.parentElement.querySelector('button:enabled') : pressed;
      next?.focus({ preventScroll: true });
    };
    return html`<button type="button" class="quiet" ?disabled=${!isPossible} @click=${turn}>${label}</button>`;
  }
}
