/** The form in which an entry is edited in place: the typed text stays until it is saved or given up. */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { t } from '../i18n/i18n.js';
import { element, ProblemLine } from './dom.js';
import { ownKeys } from '../shell/keyboard.js';

/**
 * @param {{fields: unknown, save: (typed: Record<string, string>) => unknown, close: () => void, label?: string}} form
 *   `fields`: a template; `save` gets what was typed, by the names of the controls. Its rejection is shown, and the form stays:
 *   beside the control that the error names as its `field`, if there is one. `close` is called when it is saved or given up;
 *   `label` is what the button says
 * @returns {HTMLFormElement} its first field wants the focus once it is in the page
 */
export function editForm({ fields, save, close, label = t('forms.save') }) {
  const form = element('form', 'edit-form');
  const problem = new ProblemLine();
  const fieldProblem = new FieldProblem(form);
  render(html`${fields}${problem.element}
    <div class="edit-actions">
      <button class="primary">${label}</button>
      <button type="button" class="quiet" @click=${close}>${t('forms.cancel')}</button>
    </div>`, form);
  const submit = /** @type {HTMLButtonElement} */ (form.querySelector('.edit-actions .primary'));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    problem.say(null);
    fieldProblem.clear();
    submit.disabled = true;
    try {
      await save(typedIn(form));
      close();
    } catch (error) {
      if (!fieldProblem.say(error)) problem.say(error);
    } finally {
      submit.disabled = false;
    }
  });
  form.addEventListener('keydown', ownKeys((event) => {
    if (event.key === 'Escape') {
      event.preventDefault(); // or the whole dialog would close
      close();
    } else if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    }
  }));
  return form;
}

/** The values of the controls of a form, by their names. @param {HTMLFormElement} form @returns {Record<string, string>} */
export function typedIn(form) {
  const controls = /** @type {HTMLInputElement[]} */ ([...form.elements]);
  return Object.fromEntries(controls.filter(({ name }) => name).map(({ name, value }) => [name, value]));
}

/** Says what is wrong with a field, directly below it. */
class FieldProblem {
  #form;
  #control = /** @type {Element|null} */ (null); // the wrong field
  #described = /** @type {string|null} */ (null); // its description before
  #line = new ProblemLine();

  /** @param {HTMLFormElement} form */
  constructor(form) {
    this.#form = form;
    this.#line.element.id = 'field-problem';
  }

  /** @returns {boolean} true if the error names a field of this form */
  say(error) {
    const control = this.#form.elements.namedItem(error.field ?? '');
    if (!(control instanceof HTMLElement)) return false;
    this.#control = control;
    this.#described = control.getAttribute('aria-describedby');
    control.setAttribute('aria-invalid', 'true');
    control.setAttribute('aria-describedby', [this.#line.element.id, this.#described ?? ''].join(' ').trim());
    control.closest('.field')?.after(this.#line.element);
    const details = control.closest('details');
    if (details) details.open = true;
    this.#line.say(error);
    control.focus();
    return true;
  }

  clear() {
    this.#control?.removeAttribute('aria-invalid');
    if (this.#described) this.#control?.setAttribute('aria-describedby', this.#described);
    else this.#control?.removeAttribute('aria-describedby');
    this.#control = this.#described = null;
    this.#line.say(null);
    this.#line.element.remove();
  }
}

/** A control with its name above it. @param {string} name @param {unknown} control a template */
export function labelled(name, control) {
  return html`<label class="field"><span>${name}</span>${control}</label>`;
}

/** @param {'current-password'|'new-password'|'off'} autocomplete @param {string} [name] of the control */
export function passphraseInput(autocomplete, name = 'passphrase') {
  return html`<input type="password" name=${name} autocomplete=${autocomplete} required>`;
}

/**
 * A text of several lines, in any direction of writing.
 * @param {string} name @param {string} value @param {{rows?: number, placeholder?: string}} [look]
 */
export function textArea(name, value, { rows, placeholder } = {}) {
  return html`<textarea name=${name} dir="auto" required rows=${rows ?? nothing} placeholder=${placeholder ?? nothing} .value=${value}></textarea>`;
}
