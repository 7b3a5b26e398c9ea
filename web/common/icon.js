/** The page's icons, from one file of the site that the build makes (app/building/site/icons.txt names them). */
const SVG = 'http://www.w3.org/2000/svg';
const SPRITE = new URL('../icons.svg', import.meta.url).pathname;

/**
 * @param {string} name of app/building/site/icons.txt @returns {SVGSVGElement} hidden from screen readers: label the
 *   button that it is in
 */
export function icon(name) {
  const made = document.createElementNS(SVG, 'svg');
  made.setAttribute('class', 'icon');
  made.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS(SVG, 'use');
  use.setAttribute('href', iconAddress(name));
  made.append(use);
  return made;
}

/** For a template that is rendered again and again, where `icon` would be another element each time. @param {string} name */
export function iconAddress(name) {
  return `${SPRITE}#${name}`;
}
