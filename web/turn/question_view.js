/** A message of the user: its text, and below it the actions: copy, edit, and other versions. */
import { element } from '../common/dom.js';
import { t } from '../i18n/i18n.js';
import { copyWithIcon } from '../markdown/clipboard.js';
import { iconButton, showVariants } from './variant_switch.js';
import { ownKeys } from '../shell/keyboard.js';

/** @typedef {{number: number|null, after: number|null, siblings: number[]}} Place of a turn among the stored ones */

export class QuestionView {
  element = element('article', 'message question');
  #text;
  #body = element('p', 'body');
  #actions = element('div', 'question-actions');
  #edit;
  #form = /** @type {HTMLFormElement|null} */ (null);
  #onEdit;
  #onChoose;

  /**
   * @param {string} text
   * @param {{onEdit: (text: string) => void, onChoose: (number: number) => void}} callbacks the edited text goes to the model;
   *   another version was chosen, by its number
   */
  constructor(text, { onEdit, onChoose }) {
    this.#text = text;
    this.#onEdit = onEdit;
    this.#onChoose = onChoose;
    this.#body.textContent = text;
    this.#body.dir = 'auto'; // Arabic or Hebrew reads from the right
    this.#edit = iconButton('pencil', t('answers.edit'), () => this.edit());
    const copy = iconButton('copy', t('answers.copyMessage'), () => copyWithIcon(copy, () => text));
    this.#actions.append(copy);
    this.element.append(element('h2', 'visually-hidden', t('answers.you')), this.#body, this.#actions);
  }

  get text() {
    return this.#text;
  }

  /**
   * The message is stored, and can be edited once its siblings are known.
   * @param {Place} place
   */
  place(place) {
    if (place.number !== null && place.siblings.length && !this.#edit.isConnected) this.#actions.append(this.#edit);
    showVariants(this.#actions, place, this.#onChoose, 'last');
  }

  get canBeEdited() {
    return this.#edit.isConnected;
  }

  /** Edit the text in place. */
  edit() {
    if (this.#form) return;
    const box = Object.assign(element('textarea'), { value: this.#text, dir: 'auto', rows: 1 });
    box.setAttribute('aria-label', t('answers.edit'));
    const send = element('button', 'primary', t('answers.send'));
    const cancel = element('button', 'quiet', t('answers.cancel'));
    cancel.type = 'button';
    const buttons = element('div', 'edit-actions');
    buttons.append(cancel, send);
    const form = (this.#form = element('form', 'question-form'));
    form.append(box, buttons);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      const text = box.value.trim();
      if (text) this.#onEdit(text);
    });
    cancel.addEventListener('click', () => this.#close());
    form.addEventListener('keydown', ownKeys((event) => {
      if (event.key === 'Escape') {
        event.preventDefault();
        event.stopPropagation();
        this.#close();
      } else if (event.key === 'Enter' && event.target === box && !event.shiftKey) {
        event.preventDefault();
        form.requestSubmit();
      }
    }));
    this.#body.hidden = this.#actions.hidden = true;
    this.element.classList.add('edited');
    this.element.append(form);
    box.focus();
    box.setSelectionRange(box.value.length, box.value.length);
  }

  #close() {
    this.#form?.remove();
    this.#form = null;
    this.#body.hidden = this.#actions.hidden = false;
    this.element.classList.remove('edited');
    this.#edit.focus();
  }
}
