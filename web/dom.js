/** Elements of the page. Text goes in as text, never as HTML. */

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

  /** @param {Error|string|null} problem an Error whose message is written for the user, or null: all is well */
  say(problem) {
    const text = problem?.message ?? problem ?? '';
    this.element.textContent = text;
    this.element.hidden = !text;
  }
}
