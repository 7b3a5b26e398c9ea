/** Opens "Extract as table" for a text: of a file, an answer or a selection. The dialog is loaded when it is first opened. */
import { loadStyles } from '../common/page_files.js';
import { element } from '../common/dom.js';
import { icon } from '../common/icon.js';
import { t } from '../i18n/i18n.js';
import { html, render } from '../vendor/lit-html/lit-html.js';

const LEAST_SELECTED = 20; // characters
const SETTLED_MS = 250; // after the last change of a selection
const GAP_PX = 8;

let engine = /** @type {() => import('../engine/engine.js').Engine} */ (() => { throw new Error('no engine yet'); });
let say = /** @type {(sentence: string|null) => void} */ (() => {});

/**
 * @param {() => import('../engine/engine.js').Engine} engineNow
 * @param {(sentence: string|null) => void} sayProblem shows what went wrong, until it is called with null
 * @param {HTMLElement} log whose selected text can be made a table
 */
export function offerTables(engineNow, sayProblem, log) {
  engine = engineNow;
  say = sayProblem;
  new SelectionButton(log);
}

/** @param {string} name of where the text comes from @param {string|Promise<string>} text */
export async function openTable(name, text) {
  say(null);
  try {
    const [{ showTable }, source] = await Promise.all([import('./table_dialog.js'), text, loadStyles('table/table.css')]);
    showTable(engine, name, source);
  } catch (error) {
    say(error.stack ? t('table.notLoaded') : error.message);
  }
}

/** A button beside a selected text. It takes neither the focus nor the selection. */
class SelectionButton {
  #log;
  #root = element('button', 'quiet select-table');
  #text = '';
  #timer = 0;

  /** @param {HTMLElement} log */
  constructor(log) {
    this.#log = log;
    this.#root.type = 'button';
    this.#root.hidden = true;
    this.#root.addEventListener('pointerdown', (event) => event.preventDefault());
    this.#root.addEventListener('click', () => {
      this.#root.hidden = true;
      openTable(t('table.selection'), this.#text);
    });
    document.addEventListener('selectionchange', () => {
      clearTimeout(this.#timer);
      this.#root.hidden = true;
      this.#timer = setTimeout(() => this.#show(), SETTLED_MS);
    });
    document.addEventListener('scroll', () => { this.#root.hidden = true; }, true);
  }

  async #show() {
    const selection = getSelection();
    const range = selection?.rangeCount ? selection.getRangeAt(0) : null;
    if (!range || !this.#log.contains(range.commonAncestorContainer)) return;
    const text = this.#text = String(selection);
    if (text.trim().length < LEAST_SELECTED) return;
    await loadStyles('table/table.css').catch(() => {}); // openTable says what is missing
    if (String(getSelection()) !== text) return;
    render(html`${icon('table')}<span>${t('table.title')}</span>`, this.#root);
    if (!this.#root.isConnected) this.#log.after(this.#root); // it comes next by keyboard
    this.#root.hidden = false;
    const { left, bottom, top } = range.getBoundingClientRect();
    const { width, height } = this.#root.getBoundingClientRect();
    const below = Math.min(bottom, innerHeight) + GAP_PX + height < innerHeight ? bottom + GAP_PX : top - height - GAP_PX;
    this.#root.style.left = `${Math.max(GAP_PX, Math.min(left, innerWidth - width - GAP_PX))}px`;
    this.#root.style.top = `${Math.max(GAP_PX, Math.min(below, innerHeight - height - GAP_PX))}px`;
  }
}
