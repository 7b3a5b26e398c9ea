/** Elements of the page. Text goes in as text, never as HTML. */
import { html } from '../vendor/lit-html/lit-html.js';
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

/** A button of a template that does not send a form. @param {unknown} label @param {string} look @param {(event: any) => unknown} run */
export function button(label, look, run) {
  return html`<button type="button" class=${look} @click=${run}>${label}</button>`;
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
