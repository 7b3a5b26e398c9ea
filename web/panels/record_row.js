/** An entry in a list: a box to select it, its content, and its buttons; or the form in which it is edited. */
import { t } from '../i18n/i18n.js';
import { button, element } from '../common/dom.js';
import { askingButton } from '../common/confirmation.js';
import { editForm } from '../common/edit_form.js';

export class Row {
  element = element('li', 'record');
  isEdited = false;
  #options;
  #key;
  #list;
  #item = /** @type {any} */ (null);
  #shown = ''; // the shown item, as JSON
  #box = /** @type {HTMLInputElement|null} */ (null);
  #body = element('div', 'record-body');

  /** `options` are those of RecordList. */
  constructor(options, key, { list, onSelect }) {
    this.#options = options;
    this.#key = key;
    this.#list = list;
    if (options.selectable) {
      const box = element('input', 'record-box');
      box.type = 'checkbox';
      box.setAttribute('aria-label', t(`${options.texts}.select`));
      box.addEventListener('change', onSelect);
      this.element.append(box);
      this.#box = box;
    }
    this.element.append(this.#body);
  }

  get selected() {
    return this.#box?.checked ?? false;
  }

  set selected(selected) {
    if (this.#box) this.#box.checked = selected;
  }

  focus() {
    this.element.querySelector('button')?.focus();
  }

  update(item) {
    this.#item = item;
    if (!this.isEdited && JSON.stringify(item) !== this.#shown) this.#show();
  }

  /**
   * Turn into a form. @param {HTMLElement[]} fields @param {() => Promise<void>} save its rejection is shown in the form
   * @param {object} [controls] see editForm
   */
  edit(fields, save, controls = {}) {
    this.isEdited = true;
    const close = async () => {
      this.isEdited = false;
      this.#show();
      this.focus();
      await this.#list.refresh();
    };
    this.#body.replaceChildren(editForm({ fields, save, close, controls }));
    /** @type {HTMLElement|null} */ (this.#body.querySelector('input, textarea, select'))?.focus();
  }

  /** Adds a button to the row. */
  action(label, run) {
    return button(label, 'quiet', run);
  }

  /** Adds a button that deletes the entry, after asking once. */
  deleteAction(question = t(`${this.#options.texts}.sure`), label = t(`${this.#options.texts}.verb`)) {
    return askingButton(label, () => question, label, () => this.#list.remove([this.#key]));
  }

  #show() {
    const focused = this.#body.contains(document.activeElement) ? document.activeElement?.textContent : null;
    this.#shown = JSON.stringify(this.#item);
    this.#body.replaceChildren(...this.#options.render(this.#item, this));
    if (focused == null) return;
    const buttons = [...this.#body.querySelectorAll('button')];
    (buttons.find((one) => one.textContent === focused) ?? buttons[0])?.focus();
  }
}

/** A line of small facts; null is left out. @param {...(string|Node|null)} facts */
export function facts(...facts) {
  const line = element('p', 'record-facts');
  for (const fact of facts) {
    if (fact === null || fact === '') continue;
    const part = element('span');
    part.append(fact);
    line.append(part);
  }
  return line;
}

/** The row's buttons. */
export function actions(...buttons) {
  const line = element('div', 'record-actions');
  line.append(...buttons);
  return line;
}
