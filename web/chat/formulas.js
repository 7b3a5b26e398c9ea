/**
 * Formulas as KaTeX sets them. It is loaded with the first one; until then, and if a formula cannot be read or would take
 * too long, its source stands in the text. Formulas are set in several tasks, so that many of them do not hold the page up.
 */
import { loadScript, loadStyles } from '../page/load_file.js';
import { texOf } from './formula_syntax.js';

const BATCH_MS = 8;
const MOST_KEPT = 200; // formulas that are kept as they were set: the end of an answer is drawn again and again
// What comes out of these takes half a second at most. A formula that defines commands has no such bound: maxExpand counts
// its expansions, not their length.
const LONGEST = 2000; // characters
const MOST_CELLS = 200;
const DEFINITION = /\\(?:[egx]?def|let|futurelet|newcommand|renewcommand|providecommand)(?![a-z@])/i;
const OPTIONS = { throwOnError: true, strict: 'ignore', trust: false, maxSize: 20, maxExpand: 200 };

/** @type {Map<string, HTMLElement|null>} */
const kept = new Map(); // null: KaTeX cannot read it
/** @type {{place: HTMLElement, source: string, onDraw: () => void}[]} */
let waiting = [];
let loading = /** @type {Promise<unknown>|null} */ (null);
let timer = 0;

/**
 * @param {HTMLElement} place an element with the source, as `formulaSyntax` has it in data-formula
 * @param {() => void} onDraw its size has changed
 */
export function showFormula(place, onDraw) {
  const source = place.textContent ?? '';
  const known = kept.get(keyOf(place, source));
  if (known) fill(place, known);
  if (known !== undefined) return;
  waiting.push({ place, source, onDraw });
  timer ||= setTimeout(setSome);
}

async function setSome() {
  try {
    await (loading ??= load());
  } catch {
    loading = null; // the next formula tries again
    waiting = [];
    timer = 0;
    return;
  }
  const until = performance.now() + BATCH_MS;
  while (waiting.length && performance.now() < until) setOne(/** @type {any} */ (waiting.shift()));
  timer = waiting.length ? setTimeout(setSome) : 0;
}

async function load() {
  await Promise.all([loadScript('vendor/katex/katex.min.js'), loadStyles('vendor/katex/katex.min.css')]);
  // All of its fonts at once: a formula that comes when there is no network may need another one.
  for (const face of document.fonts) if (face.family.includes('KaTeX')) face.load().catch(() => {});
}

function setOne({ place, source, onDraw }) {
  const key = keyOf(place, source);
  if (!kept.has(key)) {
    if (kept.size >= MOST_KEPT) kept.delete(/** @type {string} */ (kept.keys().next().value));
    kept.set(key, typeset(texOf(source), isBlock(place)));
  }
  const set = kept.get(key);
  if (!set || !place.isConnected) return; // drawn anew in the meantime
  fill(place, set);
  onDraw();
}

/** Whether KaTeX is done with it soon. @param {string} tex */
function isModest(tex) {
  return tex.length <= LONGEST && tex.split('&').length <= MOST_CELLS && !DEFINITION.test(tex);
}

/** @returns {HTMLElement|null} */
function typeset(tex, displayMode) {
  if (!isModest(tex)) return null;
  try {
    const tree = katex.__renderToDomTree(tex, { ...OPTIONS, displayMode });
    withoutStyleAttributes(tree);
    return tree.toNode();
  } catch {
    return null;
  }
}

/** The page's policy allows no style attribute; what stands in one is set through the element's style. */
function withoutStyleAttributes(node) {
  const style = node.attributes?.style;
  if (style) {
    delete node.attributes.style;
    const { toNode } = node;
    node.toNode = () => {
      const made = toNode.call(node);
      made.style.cssText = style;
      return made;
    };
  }
  for (const child of node.children ?? []) withoutStyleAttributes(child);
}

function fill(place, set) {
  place.classList.add('set');
  place.dir = 'ltr';
  place.replaceChildren(set.cloneNode(true));
}

const isBlock = (place) => place.dataset.formula === 'block';
const keyOf = (place, source) => `${place.dataset.formula} ${source}`;
