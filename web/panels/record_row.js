/** An entry in a list: its state, and what the template of its content needs of it. */
import { html } from '../vendor/lit-html/lit-html.js';
import { t } from '../i18n/i18n.js';
import { askingButton } from '../common/confirmation.js';
import { editForm } from '../common/edit_form.js';

export class Row {
  item = /** @type {any} */ (null);
  isSelected = false;
  form = /** @type {HTMLFormElement|null} */ (null); // in which it is edited
  #list;
  #key;

  /** @param {import('./record_list.js').RecordList} list @param {string} key */
  constructor(list, key) {
    this.#list = list;
    this.#key = key;
  }

  /**
   * Turn into a form. @param {unknown} fields a template @param {(typed: Record<string, string>) => unknown} save gets what was
   * typed, by the names of the controls; its rejection is shown in the form
   */
  edit(fields, save) {
    const close = async () => {
      this.form = null;
      this.#list.draw();
      this.#list.focus(this.#key);
      await this.#list.refresh();
    };
    this.form = editForm({ fields, save, close });
    this.#list.draw();
    /** @type {HTMLElement|null} */ (this.form.querySelector('input, textarea, select'))?.focus();
  }

  /** A button that deletes the entry, after asking once. */
  deleteAction(question = t(`${this.#list.texts}.sure`), label = t(`${this.#list.texts}.verb`)) {
    return askingButton({ label, question, yes: label, run: () => this.#list.remove([this.#key]) });
  }
}

/** A line of small facts; null is left out. @param {...unknown} facts strings and templates */
export function facts(...facts) {
  return html`<p class="record-facts">${facts.filter((fact) => fact !== null && fact !== '').map((fact) => html`<span>${fact}</span>`)}</p>`;
}
