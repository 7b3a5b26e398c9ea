/** Elements of the page. Text goes in as text, never as HTML. */
import { describe, fromError } from '../shell/problems.js';

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 */
export function element(tag, className = '', text = '') {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

/**
 * An element of the page that always exists.
 * @template {Element} T
 * @param {ParentNode} root
 * @param {string} selector
 * @param {{new (): T}} Kind its class
 * @returns {T}
 */
export function part(root, selector, Kind) {
  const found = root.querySelector(selector);
  if (!(found instanceof Kind)) throw new Error(`the page has no ${Kind.name} at ${selector}`);
  return found;
}

/**
 * @template {HTMLElement} T
 * @param {string} id
 * @param {{new (): T}} Kind
 */
export function byId(id, Kind) {
  return part(document, `#${id}`, Kind);
}

/** A button that does not send a form. */
export function button(label, className, run) {
  const made = element('button', className, label);
  made.type = 'button';
  made.addEventListener('click', run);
  return made;
}

/** Shows an error beside the control that failed: hidden until `say`, then announced at once. */
export class ProblemLine {
  element = element('p', 'problem-line');

  constructor() {
    this.element.setAttribute('role', 'alert');
    this.element.hidden = true;
  }

  /** @param {{name: string, message: string, stack?: string}|null} error null: all is well */
  say(error) {
    this.element.textContent = error ? describe(fromError(error)).message : '';
    this.element.hidden = !error;
  }
}
