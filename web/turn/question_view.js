/** A message of the user: its text, and below it the actions: copy, edit, and other versions. */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { button, element, part } from '../common/dom.js';
import { iconButton } from '../common/icon.js';
import { t } from '../i18n/i18n.js';
import { copyButton } from '../markdown/clipboard.js';
import { variantSwitch } from './variant_switch.js';
import { ownKeys } from '../shell/keyboard.js';

/** @typedef {{number: number|null, after: number|null, siblings: number[]}} Place of a turn among the stored ones */

export class QuestionView {
  element = element('article', 'message question');
  #text;
  #place = /** @type {Place} */ ({ number: null, after: null, siblings: [] });
  #isEdited = false;
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
    this.#draw();
  }

  get text() {
    return this.#text;
  }

  /**
   * The message is stored, and can be edited once its siblings are known.
   * @param {Place} place
   */
  place(place) {
    if (!place.siblings.length) return;
    this.#place = place;
    this.#draw();
  }

  get canBeEdited() {
    return this.#place.number !== null;
  }

  /** Edit the text in place. */
  edit() {
    if (this.#isEdited) return;
    this.#isEdited = true;
    this.#draw();
    const box = part(this.element, 'textarea', HTMLTextAreaElement);
    box.focus();
    box.setSelectionRange(box.value.length, box.value.length);
  }

  #close() {
    this.#isEdited = false;
    this.#draw();
    part(this.element, '.edit', HTMLElement).focus();
  }

  #draw() {
    const text = this.#text;
    this.element.classList.toggle('edited', this.#isEdited);
    render(html`
      <h2 class="visually-hidden">${t('answers.you')}</h2>
      <p class="body" dir="auto" ?hidden=${this.#isEdited}>${text}</p>
      <div class="question-actions" ?hidden=${this.#isEdited}>
        ${copyButton(t('answers.copyMessage'), () => text)}
        ${this.canBeEdited ? iconButton('pencil', t('answers.edit'), () => this.edit(), { look: 'edit' }) : nothing}
        ${variantSwitch(this.#place, this.#onChoose)}
      </div>
      ${this.#isEdited ? this.#form() : nothing}`, this.element);
  }

  #form() {
    const send = (event) => {
      event.preventDefault();
      const text = event.target.querySelector('textarea').value.trim();
      if (text) this.#onEdit(text);
    };
    const onKey = ownKeys((/** @type {any} */ event) => {
      if (event.key === 'Escape') {
        event.preventDefault();
        event.stopPropagation();
        this.#close();
      } else if (event.key === 'Enter' && event.target.localName === 'textarea' && !event.shiftKey) {
        event.preventDefault();
        event.currentTarget.requestSubmit();
      }
    });
    return html`
      <form class="question-form" @submit=${send} @keydown=${onKey}>
        <textarea dir="auto" rows="1" aria-label=${t('answers.edit')} .value=${this.#text}></textarea>
        <div class="edit-actions">
          ${button(t('answers.cancel'), 'quiet', () => this.#close())}<button class="primary">${t('answers.send')}</button>
        </div>
      </form>`;
  }
}
