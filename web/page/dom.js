/** Elements of the page. Text goes in as text, never as HTML. */
import { describe, fromError } from './problems.js';

export function element(tag, className = '', text = '') {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

/** A button that does not send a form. */
export function button(label, className, run) {
  const made = element('button', className, label);
  made.type = 'button';
  made.addEventListener('click', run);
  return made;
}

/** Says what went wrong, where it was tried: silent until `say`, announced at once. */
export class ProblemLine {
  element = element('p', 'problem-line');

  constructor() {
    this.element.setAttribute('role', 'alert');
    this.element.hidden = true;
  }

  /** @param {Error|null} error null: all is well */
  say(error) {
    this.element.textContent = error ? describe(fromError(error)).message : '';
    this.element.hidden = !error;
  }
}
