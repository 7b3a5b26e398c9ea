/** The places that a model of diffusion writes now, behind the answer: masks are soft boxes until they become text. */
import { element } from '../common/dom.js';
import { loadStyles } from '../common/page_files.js';

export class CanvasView {
  element = element('p', 'canvas');

  constructor() {
    this.element.dir = 'auto';
    this.element.setAttribute('aria-hidden', 'true'); // it is read once it is written
    void loadStyles('turn/canvas.css');
  }

  /** @param {(string|null)[]} places a text, or null for a mask */
  show(places) {
    const shown = this.element.children;
    while (shown.length > places.length) this.element.lastChild?.remove();
    for (const [number, text] of places.entries()) {
      const place = shown[number] ?? this.element.appendChild(element('span', 'mask'));
      if (text === null || place.className !== 'mask') continue;
      place.className = 'known';
      place.textContent = text;
    }
  }

  clear() {
    this.element.replaceChildren();
  }
}
