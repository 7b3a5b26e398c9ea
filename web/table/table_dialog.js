/**
 * "Extract as table": columns are named, the model fills the rows from a text, and each cell shows where it stands there. The
 * table can be sorted, edited, copied and saved. The table of the same text is there again until the page is left.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { live } from '../vendor/lit-html/directives/live.js';
import { element, part, ProblemLine } from '../common/dom.js';
import { saveFile } from '../common/file_download.js';
import { icon, iconButton } from '../common/icon.js';
import { t } from '../i18n/i18n.js';
import { ownKeys } from '../shell/keyboard.js';
import { copyText } from '../markdown/clipboard.js';
import { ColumnsForm } from './columns_form.js';
import { asCsv, asJson, asTabs, sorted } from './table_data.js';

/** @typedef {import('./table_data.js').Cell} Cell */

const TOUCH = matchMedia('(pointer: coarse)'); // the first touch shows a cell's place, the next one opens the keyboard
const SAVED = [{ kind: 'CSV', type: 'text/csv', as: asCsv }, { kind: 'JSON', type: 'application/json', as: asJson }];

let last = /** @type {TableDialog|null} */ (null);

/** @param {() => import('../engine/engine.js').Engine} engine @param {string} name of the text @param {string} text */
export function showTable(engine, name, text) {
  if (last?.text !== text) last = new TableDialog(engine, name, text);
  last.show();
}

class TableDialog {
  text;
  #engine;
  #name;
  #root = element('dialog', 'table-dialog');
  #form = new ColumnsForm(() => this.#draw());
  #problem = new ProblemLine();
  #columns = /** @type {import('../protocol_calls.js').TableColumn[]} */ ([]); // of the rows
  #rows = /** @type {Cell[][]} */ ([]);
  #sorting = /** @type {{column: number, direction: 1|-1}|null} */ (null);
  #run = /** @type {{engine: import('../engine/engine.js').Engine, done: number}|null} */ (null); // while rows come
  #ending = ''; // a sentence about the rows
  #isSetUp = false; // the columns are folded up
  #cell = /** @type {Cell|null} */ (null); // the one whose place is shown

  constructor(engine, name, text) {
    this.#engine = engine;
    this.#name = name;
    this.text = text;
    this.#root.setAttribute('aria-labelledby', 'table-title');
    this.#root.addEventListener('close', () => {
      this.#stop();
      this.#root.remove();
    });
  }

  show() {
    document.body.append(this.#root);
    this.#draw();
    this.#root.showModal();
    part(this.#root, this.#isSetUp ? '#table-title' : '.column-name', HTMLElement).focus();
  }

  #draw() {
    const count = this.#rows.length, run = this.#run, isEmpty = !count;
    const submit = (event) => {
      event.preventDefault();
      this.#extract();
    };
    render(html`
      <div class="table-head">
        <div><h2 id="table-title" tabindex="-1">${t('table.title')}</h2><p class="table-from">${this.#name}</p></div>
        ${iconButton('x', t('table.close'), () => this.#root.close())}
      </div>
      <form class="table-setup" @submit=${submit}>
        <details ?open=${!this.#isSetUp} @toggle=${({ target }) => { this.#isSetUp = !target.open; }}>
          <summary>${t('table.columns')}${this.#isSetUp ? html`<span class="table-named">${this.#form.named.map(({ name }) => name).join(', ')}</span>` : nothing}</summary>
          ${this.#form.template}
        </details>
        <div class="table-run">
          ${run ? html`<button type="button" class="primary" @click=${() => this.#stop()}>${t('table.stop')}</button>`
            : html`<button class=${isEmpty ? 'primary' : 'quiet'}>${t(isEmpty ? 'table.make' : 'table.again')}</button>`}
          ${run ? html`<progress max="1" .value=${run.done} aria-label=${t('table.progress')}></progress><span class="table-count">${t('table.rows', { count })}</span>` : nothing}
          <p class="table-ending" role="status">${this.#ending}</p>
        </div>
        ${this.#problem.element}
      </form>
      <div class="table-views">
        ${isEmpty ? nothing : html`
        <div class="table-result">
          <div class="table-scroll" role="region" aria-label=${t('table.result')} tabindex="0">${this.#table()}</div>
          <div class="table-actions">
            <button type="button" class="quiet" @click=${({ currentTarget }) => this.#copy(currentTarget)}>${icon('copy')}<span>${t('table.copy')}</span></button>
            ${SAVED.map(({ kind, type, as }) => html`
              <button type="button" class="quiet" aria-label=${t('table.save', { kind })} title=${t('table.save', { kind })} @click=${() => this.#save(kind, type, as)}>${icon('download')}${kind}</button>`)}
          </div>
        </div>`}
        ${this.#source()}
      </div>`, this.#root);
    const mark = this.#root.querySelector('mark'), pane = this.#root.querySelector('.table-text');
    if (mark && pane) pane.scrollTop = mark.offsetTop - pane.clientHeight / 2;
  }

  #table() {
    const rows = sorted(this.#rows, this.#columns, this.#sorting);
    return html`<table>
      <caption class="visually-hidden">${t('table.result')}</caption>
      <thead><tr>${this.#columns.map((column, at) => this.#heading(column, at))}<td></td></tr></thead>
      <tbody @focusin=${({ target }) => this.#place(target)} @keydown=${ownKeys((event) => this.#onKey(event))}>${repeat(rows, (row) => row, (row, number) => html`
        <tr>${row.map((cell, at) => this.#cellOf(cell, at, number + 1))}<td>${iconButton('x', t('table.removeRow', { number: number + 1 }), () => this.#remove(row))}</td></tr>`)}
      </tbody>
    </table>`;
  }

  #heading({ name, kind }, at) {
    const sorting = this.#sorting, direction = sorting && sorting.column === at ? sorting.direction : 0;
    const sort = () => {
      this.#sorting = direction < 0 ? null : { column: at, direction: direction ? -1 : 1 };
      this.#draw();
    };
    return html`<th scope="col" data-kind=${kind} aria-sort=${direction ? (direction > 0 ? 'ascending' : 'descending') : 'none'}>
      <button type="button" title=${t('table.sort', { name })} @click=${sort}><span>${name}</span>${direction ? icon(direction > 0 ? 'arrow-up' : 'arrow-down') : nothing}</button></th>`;
  }

  /** @param {Cell} cell @param {number} at of its column @param {number} number of its row */
  #cellOf(cell, at, number) {
    const { name, kind } = this.#columns[at];
    const edit = ({ target }) => {
      Object.assign(cell, { value: target.value.trim(), start: null, end: null, isEdited: true });
      this.#draw();
    };
    const state = cell.isEdited ? 'edited' : cell.start === null ? 'free' : 'linked';
    return html`<td data-kind=${kind} data-state=${state} ?data-shown=${cell === this.#cell}><textarea rows="1" dir="auto" spellcheck="false"
      aria-label=${t('table.cell', { name, number })} aria-describedby="table-place" ?readonly=${TOUCH.matches && cell !== this.#cell} .value=${live(cell.value)} .cell=${cell} @change=${edit}></textarea></td>`;
  }

  #source() {
    const cell = this.#cell;
    const note = !cell ? (this.#rows.length ? t('table.chooseCell') : '')
      : cell.isEdited ? t('table.edited') : cell.start === null ? (cell.value ? t('table.notInText') : t('table.emptyCell'))
        : t('table.atLine', { line: this.text.slice(0, cell.start ?? 0).split('\n').length });
    const from = cell?.start ?? null, to = cell?.end ?? null;
    return html`<section class="table-source" aria-label=${t('table.text')}>
      <div class="table-text-head"><h3>${t('table.text')}</h3><p id="table-place">${note}</p></div>
      <pre class="table-text" tabindex="0" dir="auto">${from === null || to === null ? this.text
        : [this.text.slice(0, from), html`<mark>${this.text.slice(from, to)}</mark>`, this.text.slice(to)]}</pre>
    </section>`;
  }

  async #extract() {
    const columns = this.#form.named, engine = this.#engine();
    const run = this.#run = { engine, done: 0 };
    this.#problem.say(null);
    this.#rows = [];
    this.#columns = columns.map((column) => ({ ...column, name: column.name.trim().replace(/\s+/g, ' ') }));
    this.#sorting = this.#cell = null;
    this.#ending = t('table.reading');
    this.#isSetUp = true;
    this.#draw();
    this.#focusRun();
    let isStopped = false;
    try {
      for await (const { rows, done } of await engine.tables.extract({ text: this.text, columns })) {
        if (this.#run !== run) return;
        this.#rows.push(...rows);
        run.done = done;
        this.#draw();
      }
      isStopped = run.done < 1 && !this.#problem.element.textContent;
    } catch (error) {
      if (this.#run !== run) return;
      this.#problem.say(error);
      this.#isSetUp = this.#rows.length > 0;
    }
    this.#end(isStopped);
  }

  /** Rows that have come stay. */
  #stop() {
    this.#run?.engine.tables.stop().catch(() => {});
    if (this.#run) this.#end(true);
  }

  #end(isStopped) {
    const hadFocus = this.#root.contains(document.activeElement) && document.activeElement?.closest('.table-run');
    const count = this.#rows.length, hasFailed = !this.#problem.element.hidden;
    this.#run = null;
    const rows = t('table.rows', { count });
    this.#ending = isStopped ? `${t('table.stopped')} ${rows}` : hasFailed ? (count ? rows : '') : count ? rows : t('table.nothing');
    if (!count) this.#isSetUp = false;
    this.#draw();
    if (hadFocus) this.#focusRun();
  }

  #focusRun() {
    part(this.#root, '.table-run button', HTMLButtonElement).focus();
  }

  /** Show where a cell stands in the text. */
  #place(target) {
    if (!(target instanceof HTMLTextAreaElement)) return;
    this.#cell = /** @type {any} */ (target).cell;
    this.#draw();
  }

  /** Up, down and Enter move between rows; Escape takes back what was typed. @param {KeyboardEvent} event */
  #onKey(event) {
    const { target } = event;
    if (!(target instanceof HTMLTextAreaElement) || event.altKey || event.ctrlKey || event.metaKey) return;
    const { value } = /** @type {any} */ (target).cell;
    if (event.key === 'Escape' && target.value !== value) {
      event.preventDefault(); // or the dialog would close
      target.value = value;
    }
    const atEnd = target.selectionStart === target.value.length, atStart = target.selectionEnd === 0 || target.selectionStart === 0;
    const isDown = (event.key === 'Enter' && !event.shiftKey) || (event.key === 'ArrowDown' && atEnd);
    if (!isDown && !(event.key === 'ArrowUp' && atStart)) return;
    event.preventDefault();
    const [cell, row] = [/** @type {any} */ (target.parentElement), /** @type {any} */ (target.closest('tr'))];
    const next = (isDown ? row.nextElementSibling : row.previousElementSibling)?.cells[cell.cellIndex].firstElementChild;
    next?.focus();
    next?.select();
  }

  /** @param {Cell[]} row */
  #remove(row) {
    const shown = sorted(this.#rows, this.#columns, this.#sorting), at = shown.indexOf(row);
    this.#rows = this.#rows.filter((one) => one !== row);
    this.#cell = null;
    this.#ending = t('table.rows', { count: this.#rows.length });
    this.#draw();
    const buttons = this.#root.querySelectorAll('tbody .action');
    const next = buttons[Math.min(at, buttons.length - 1)];
    if (next instanceof HTMLElement) next.focus();
    else this.#focusRun();
  }

  get #ordered() {
    return sorted(this.#rows, this.#columns, this.#sorting);
  }

  #copy(target) {
    copyText(() => asTabs(this.#ordered, this.#columns), target.querySelector('span'), t('table.copy'));
  }

  /** @param {string} kind @param {string} type @param {typeof asCsv} as */
  #save(kind, type, as) {
    const name = this.#name.replace(/\.[^.]*$/, '').replace(/[^\p{L}\p{N} _-]+/gu, '').trim() || t('table.fileName');
    saveFile(new Blob([as(this.#ordered, this.#columns)], { type }), `${name}.${kind.toLowerCase()}`);
  }
}
