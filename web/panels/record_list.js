/**
 * A list of the memory's entries, a page at a time: search, a filter, selection, deletion, rows that are edited in place. When
 * the memory changes, `refresh` updates it and leaves alone rows that have not changed or are being edited.
 */
import { t } from '../i18n/i18n.js';
import { button, element, ProblemLine } from '../common/dom.js';
import { askingButton } from '../common/confirmation.js';
import { ownKeys } from '../shell/keyboard.js';
import { Row } from './record_row.js';

const PAGE = 25;
const SEARCH_PAUSE_MS = 250;

export class RecordList {
  element = element('div', 'records');
  #options;
  #offset = 0;
  #total = 0;
  #run = 0; // number of the latest load
  #rows = new Map(); // key -> Row, for those on the page
  #timer = 0;
  #search = /** @type {HTMLInputElement|null} */ (null);
  #filter = /** @type {HTMLSelectElement|null} */ (null);
  #list = element('ul', 'record-list');
  #count = element('span', 'records-count');
  #empty = element('p', 'records-empty');
  #problem = new ProblemLine();
  #tools = element('div', 'records-tools');
  #bar = element('div', 'records-bar');
  #bulk = element('div', 'records-bulk');
  #all = element('input');
  #pages = element('nav', 'records-pages');

  /**
   * @param {object} options
   * @param {string} options.texts section of the texts of these entries: count, list, none, sure, verb, and so on
   * @param {(asked: {search: string, filter: string, offset: number, limit: number}) => Promise<{total: number, items: any[]}>} options.load
   * @param {(item: any) => string} options.key
   * @param {(item: any, row: Row) => Node[]} options.render returns the content of a row; see Row for its actions
   * @param {string} options.empty the sentence if there is nothing at all
   * @param {string} [options.searchLabel] label of the search field, if there is one
   * @param {Record<string, string>} [options.filters] value -> key of its text; the first one applies until another is chosen
   * @param {string} [options.filterLabel]
   * @param {(keys: string[]) => Promise<void>} [options.remove] deletes entries, if they can be deleted
   * @param {boolean} [options.selectable] true if several can be selected
   */
  constructor(options) {
    this.#options = options;
    this.#list.setAttribute('aria-label', t(`${options.texts}.list`));
    this.#count.setAttribute('role', 'status');
    this.#pages.setAttribute('aria-label', t('records.pagesOf', { list: t(`${options.texts}.list`) })); // a panel may have two lists
    if (options.selectable) this.#bar.append(this.#selectAll());
    this.#bar.append(this.#count, this.#bulk);
    if (options.searchLabel) this.#tools.append(this.#searchField());
    if (options.filters) this.#tools.append(this.#filterMenu());
    this.#tools.hidden = this.#bar.hidden = this.#pages.hidden = true;
    this.element.append(this.#tools, this.#problem.element, this.#bar, this.#list, this.#empty, this.#pages);
  }

  /** Load the shown page again. */
  async refresh() {
    const run = (this.#run += 1);
    const asked = { search: this.#search?.value.trim() ?? '', filter: this.#filter?.value ?? '', offset: this.#offset, limit: PAGE };
    try {
      const { total, items } = await this.#options.load(asked);
      if (run !== this.#run) return;
      if (items.length === 0 && total > 0 && this.#offset > 0) { // the last page is gone
        this.#offset = Math.floor((total - 1) / PAGE) * PAGE;
        return void (await this.refresh());
      }
      this.#problem.say(null);
      this.#total = total;
      this.#show(items);
      this.#showCounts(asked);
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

  /** Delete entries. */
  async remove(keys) {
    const begin = [...this.#rows.keys()].indexOf(keys[0]);
    if (!await this.attempt(() => this.#options.remove(keys))) return;
    for (const key of keys) this.#drop(key);
    await this.refresh();
    const next = [...this.#rows.values()][Math.min(begin, this.#rows.size - 1)];
    (next ?? this.#search)?.focus();
  }

  #searchField() {
    const label = this.#options.searchLabel;
    const field = Object.assign(element('input'), { type: 'search', placeholder: label, autocomplete: 'off', spellcheck: false });
    field.setAttribute('aria-label', label);
    field.addEventListener('input', () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#turnTo(0), SEARCH_PAUSE_MS);
    });
    field.addEventListener('keydown', ownKeys((event) => {
      if (event.key !== 'Escape' || !field.value) return;
      event.preventDefault(); // empties the field, and does not close the dialog
      field.value = '';
      this.#turnTo(0);
    }));
    return (this.#search = field);
  }

  #filterMenu() {
    const menu = element('select');
    menu.setAttribute('aria-label', this.#options.filterLabel);
    for (const [value, key] of Object.entries(this.#options.filters)) menu.append(new Option(t(key), value));
    menu.addEventListener('change', () => this.#turnTo(0));
    return (this.#filter = menu);
  }

  #selectAll() {
    this.#all.type = 'checkbox';
    this.#all.addEventListener('change', () => {
      for (const row of this.#rows.values()) row.selected = this.#all.checked;
      this.#onSelect();
    });
    const label = element('label', 'records-all');
    label.append(this.#all, element('span', 'visually-hidden', t('records.all')));
    return label;
  }

  #turnTo(offset) {
    clearTimeout(this.#timer);
    this.#offset = Math.max(offset, 0);
    for (const row of this.#rows.values()) row.selected = false;
    return this.refresh();
  }

  /** Update the rows to `items`: a row that has not changed, or is being edited, is not touched. */
  #show(items) {
    const before = this.#rows;
    this.#rows = new Map();
    for (const item of items) {
      const key = this.#options.key(item);
      const row = before.get(key) ?? new Row(this.#options, key, { list: this, onSelect: () => this.#onSelect() });
      before.delete(key);
      row.update(item);
      this.#rows.set(key, row);
    }
    for (const [key, row] of before) {
      if (row.isEdited) this.#rows.set(key, row); // until it is saved or given up
      else row.element.remove();
    }
    let place = this.#list.firstElementChild;
    for (const row of this.#rows.values()) { // a row that is in its place is not moved: it may have the focus
      if (row.element === place) place = place?.nextElementSibling ?? null;
      else this.#list.insertBefore(row.element, place);
    }
    this.#onSelect();
  }

  #showCounts({ search, filter }) {
    const { texts, filters } = this.#options;
    const narrowed = search || (filter && filter !== Object.keys(filters)[0]);
    this.#count.textContent = t(`${texts}.count`, { count: this.#total });
    this.#empty.textContent = narrowed ? t(`${texts}.none`) : this.#options.empty;
    this.#empty.hidden = this.#rows.size > 0;
    const nothing = this.#rows.size === 0 && !narrowed;
    this.#tools.hidden = nothing || !this.#tools.hasChildNodes();
    this.#bar.hidden = nothing || (!this.#options.selectable && !this.#search); // a few entries need no counting
    this.#list.hidden = !this.#empty.hidden;
    const last = Math.min(this.#offset + PAGE, this.#total);
    const turn = (label, offset, enabled) => {
      const made = button(label, 'quiet', async () => {
        await this.#turnTo(offset);
        this.element.scrollIntoView({ block: 'start' });
        const again = [...this.#pages.querySelectorAll('button')].find((one) => one.textContent === label);
        (again?.disabled ? /** @type {HTMLElement|null} */ (this.#pages.querySelector('button:enabled')) : again)?.focus({ preventScroll: true });
      });
      made.disabled = !enabled;
      return made;
    };
    this.#pages.hidden = this.#total <= PAGE;
    this.#pages.replaceChildren(
      turn(t('records.previous'), this.#offset - PAGE, this.#offset > 0),
      element('span', '', t('records.range', { first: this.#offset + 1, last })),
      turn(t('records.next'), this.#offset + PAGE, last < this.#total),
    );
  }

  #onSelect() {
    if (!this.#options.selectable) return;
    const keys = [...this.#rows].filter(([, row]) => row.selected).map(([key]) => key);
    this.#all.checked = keys.length > 0 && keys.length === this.#rows.size;
    this.#all.indeterminate = keys.length > 0 && !this.#all.checked;
    this.#all.disabled = this.#rows.size === 0;
    if (this.#bulk.dataset.keys === keys.join(' ')) return;
    this.#bulk.dataset.keys = keys.join(' ');
    const { texts } = this.#options;
    const several = (name) => t(`${texts}.${name}`, { count: keys.length });
    const buttons = keys.length
      ? [askingButton(several('verbSeveral'), () => several('sureSeveral'), t(`${texts}.verb`), () => this.remove(keys))] : [];
    this.#bulk.replaceChildren(...buttons);
  }

  #drop(key) {
    this.#rows.get(key)?.element.remove();
    this.#rows.delete(key);
  }
}
