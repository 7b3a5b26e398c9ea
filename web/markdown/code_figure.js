/**
 * A block of code: its language, a copy button, and the code, in colours once a worker has sent them. Growing code keeps its
 * elements, so that a selection, the focus and the scroll position stay. Long code has several parts; a closed part is never
 * touched again except for its colours.
 */
import { iconNode } from '../common/icon.js';
import { element } from '../common/dom.js';
import { t } from '../i18n/i18n.js';
import { languageOf } from './code_languages.js';
import { copyText } from './clipboard.js';
import { highlight } from './highlighter.js';
import { runButton } from '../interpreter/opener.js';
import { unselected } from './live_nodes.js';

const LONGEST = 60_000; // characters of code that is highlighted
const PAUSE_MS = 250; // between two highlightings of growing code

const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) if (isIntersecting) figures.get(target)?.beSeen();
}, { rootMargin: '800px' }); // in a long chat, only code near the view is highlighted
/** @type {WeakMap<Element, CodeFigure>} */
const figures = new WeakMap();

/**
 * @typedef {{code: HTMLElement, text: string, end: string, from: number, runs: import('./highlighter.js').Run[], rest: Text,
 *   asked: string|null}} Part `end`: the text between it and the next part
 */

export class CodeFigure {
  element = element('figure', 'code-block');
  #written;
  #language;
  #pre = element('pre');
  #parts = /** @type {Part[]} */ ([]);
  #isOpen = false; // the last part may still grow
  #isSeen = false;
  #isAsking = false;

  /** @param {string} written behind the fence, or "" */
  constructor(written) {
    this.#written = written;
    const { name, label } = languageOf(written);
    this.#language = name;
    const head = element('figcaption', 'code-head');
    head.append(element('span', 'code-language', label || t('answers.code')));
    if (name === 'python') head.append(runButton(this));
    head.append(this.#copyButton());
    this.#pre.tabIndex = 0; // an element that scrolls sideways must be reachable by keyboard
    this.#pre.dir = 'ltr';
    this.element.append(head, this.#pre);
    if (name) {
      figures.set(this.element, this);
      seen.observe(this.element);
    }
  }

  get text() {
    return textOf(this.#parts);
  }

  /** True if this figure shows the beginning of such a block. */
  canBecome(written, text) {
    return written === this.#written && this.#parts.length < 2 && text.startsWith(this.text);
  }

  /** @param {string} text of the open part, from its beginning */
  set(text) {
    if (!this.#isOpen) this.#begin();
    const part = this.#parts[this.#parts.length - 1];
    if (part.text === text) return;
    if (!text.startsWith(part.text)) forgetAll(part);
    part.rest.appendData(text.slice(part.text.length)); // keeps the selection
    part.text = text;
    this.#ask();
  }

  /** The open part is complete; `set` begins another. @param {string} end the text between them */
  close(end) {
    if (this.#isOpen) this.#parts[this.#parts.length - 1].end = end;
    this.#isOpen = false;
  }

  beSeen() {
    seen.unobserve(this.element);
    this.#isSeen = true;
    this.#ask();
  }

  #begin() {
    this.#isOpen = true;
    const code = element('code'), rest = document.createTextNode('');
    code.append(rest);
    this.#parts.push({ code, text: '', end: '', from: this.text.length, runs: [], rest, asked: null });
    this.#pre.append(code);
  }

  /** Request colours for parts that have none yet: one part at a time, and growing code not too often. */
  async #ask() {
    if (this.#isAsking || !this.#isSeen || !this.#language) return;
    const at = this.#parts.findIndex(({ asked, text }) => asked !== text);
    const part = this.#parts[at];
    if (!part || part.from + part.text.length > LONGEST) return;
    this.#isAsking = true;
    const asked = (part.asked = part.text);
    const runs = await highlight(this.#language, textOf(this.#parts.slice(0, at)) + asked, part.from);
    if (runs) await unselected(part.code);
    if (runs && part.text.startsWith(asked)) paint(part, runs);
    if (this.#isOpen && at === this.#parts.length - 1) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    this.#isAsking = false;
    this.#ask();
  }

  #copyButton() {
    const made = element('button', 'code-copy');
    made.type = 'button';
    const words = element('span', '', t('answers.copy'));
    made.append(iconNode('copy'), words);
    made.setAttribute('aria-label', t('answers.copyCode'));
    made.addEventListener('click', () => copyText(() => this.text, words, t('answers.copy')));
    return made;
  }
}

const textOf = (parts) => parts.map(({ text, end }) => text + end).join('');

function forgetAll(part) {
  part.text = '';
  part.rest.data = '';
  part.runs = [];
  part.asked = null;
  part.code.replaceChildren(part.rest);
}

/**
 * Update the elements of a part to these runs; unchanged elements stay. @param {Part} part @param
 * {import('./highlighter.js').Run[]} runs
 */
function paint(part, runs) {
  let same = 0, at = 0;
  while (same < runs.length && same < part.runs.length && isSame(runs[same], part.runs[same])) {
    at += runs[same][1];
    same += 1;
  }
  for (const old of [...part.code.childNodes].slice(same)) if (old !== part.rest) old.remove();
  const made = runs.slice(same).map(([colour, length]) => {
    const text = part.text.slice(at, at += length);
    return colour ? element('span', `code-${colour}`, text) : document.createTextNode(text);
  });
  part.rest.before(...made);
  part.rest.data = part.text.slice(at);
  part.runs = runs;
}

const isSame = ([colour, length], [other, otherLength]) => colour === other && length === otherLength;
