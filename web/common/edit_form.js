/** The form in which an entry is edited in place: the typed text stays until it is saved or given up. */
import { t } from '../i18n/i18n.js';
import { button, element, ProblemLine } from './dom.js';
import { ownKeys } from '../shell/keyboard.js';

/**
 * @param {{fields: HTMLElement[], save: () => Promise<void>, close: () => void, label?: string, controls?: object}} form
 *   `close` is called when it is saved or given up; `save`'s rejection is shown, and the form stays: beside one of the
 *   `controls` if the error names it as its `field`; `label` is what the button says
 * @returns {HTMLFormElement} its first field wants the focus once it is in the page
 */
export function editForm({ fields, save, close, label = t('forms.save'), controls = {} }) {
  const form = element('form', 'edit-form');
  const problem = new ProblemLine();
  const fieldProblem = new FieldProblem(controls);
  const submit = element('button', 'primary', label);
  const actions = element('div', 'edit-actions');
  actions.append(submit, button(t('forms.cancel'), 'quiet', close));
  form.append(...fields, problem.element, actions);
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    problem.say(null);
    fieldProblem.clear();
    submit.disabled = true;
    try {
      await save();
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

/** Says what is wrong with a field, directly below it. */
class FieldProblem {
  #controls;
  #control = /** @type {HTMLElement|null} */ (null); // the wrong field
  #described = /** @type {string|null} */ (null); // its description before
  #line = new ProblemLine();

  constructor(controls) {
    this.#controls = controls;
    this.#line.element.id = 'field-problem';
  }

  /** @returns {boolean} true if the error names a field of this form */
  say(error) {
    const control = this.#controls[error.field];
    if (!control) return false;
    this.#control = control;
    this.#described = control.getAttribute('aria-describedby');
    control.setAttribute('aria-invalid', 'true');
    control.setAttribute('aria-describedby', [this.#line.element.id, this.#described ?? ''].join(' ').trim());
    control.closest('.field').after(this.#line.element);
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

/** A control with its name above it. */
export function labelled(name, control) {
  const label = element('label', 'field');
  label.append(element('span', '', name), control);
  return label;
}

/** @param {'current-password'|'new-password'|'off'} autocomplete */
export function passphraseInput(autocomplete) {
  return Object.assign(element('input'), { type: 'password', autocomplete, required: true });
}

/** @param {{id: string, title: string}[]} agents @param {string} chosen may be an agent that no longer exists */
export function agentSelect(agents, chosen) {
  const select = element('select');
  const known = agents.some(({ id }) => id === chosen);
  for (const { id, title } of known ? agents : [{ id: chosen, title: chosen }, ...agents]) {
    select.append(new Option(title, id, false, id === chosen));
  }
  return select;
}
