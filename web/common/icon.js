/** The page's icons, from one file of the site that the build makes (app/building/site/icons.txt names them). */
import { html, nothing } from '../vendor/lit-html/lit-html.js';

const SVG = 'http://www.w3.org/2000/svg';
const SPRITE = new URL('../icons.svg', import.meta.url).pathname;

/** @param {string} name of app/building/site/icons.txt; hidden from screen readers: label the button that it is in */
export function icon(name) {
  return html`<svg class="icon" aria-hidden="true"><use href=${iconAddress(name)}></use></svg>`;
}

/**
 * A button with only an icon.
 * @param {string} name of the icon @param {string} label @param {(event: any) => unknown} run
 * @param {{look?: string, isPressed?: boolean, isDisabled?: boolean, opens?: 'dialog'}} [state] `look`: a class
 */
export function iconButton(name, label, run, { look = '', isPressed, isDisabled = false, opens } = {}) {
  return html`<button class=${look ? `action ${look}` : 'action'} type="button" title=${label} aria-label=${label} ?disabled=${isDisabled}
    aria-pressed=${isPressed === undefined ? nothing : String(isPressed)} aria-haspopup=${opens ?? nothing} @click=${run}>${icon(name)}</button>`;
}

/** An icon for Markdown, whose elements are no templates. @param {string} name @returns {SVGSVGElement} */
export function iconNode(name) {
  const made = document.createElementNS(SVG, 'svg');
  made.setAttribute('class', 'icon');
  made.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS(SVG, 'use');
  use.setAttribute('href', iconAddress(name));
  made.append(use);
  return made;
}

/** @param {string} name */
export function iconAddress(name) {
  return `${SPRITE}#${name}`;
}
