/**
 * Formulas, set by KaTeX. It is loaded with the first formula; until then, and if a formula cannot be parsed or would take too
 * long, its source is shown. Formulas are set in several tasks, so that many of them do not block the page.
 */
import { loadScript, loadStyles } from '../common/page_files.js';
import { texOf } from './formula_syntax.js';

const BATCH_MS = 8;
const MOST_KEPT = 200; // cached formulas: the end of an answer is drawn again and again
// Within these limits a formula takes half a second at most. A formula that defines commands has no such bound: maxExpand
// counts its expansions, not their length.
const LONGEST = 2000; // characters
const MOST_CELLS = 200;
// Limits of the output. A browser lays out nested elements recursively: Chromium kills the page at some thousand levels.
const MOST_LEVELS = 300;
const MOST_NODES = 10_000;
const MOST_HEIGHT = 300; // em
const MOST_SHOWN = 300_000; // nodes of all formulas of the page together; beyond that, sources stay
const DEFINITION = /\\(?:[egx]?def|let|futurelet|newcommand|renewcommand|providecommand)(?![a-z@])/i;
const OPTIONS = { throwOnError: true, strict: 'ignore', trust: false, maxSize: 20, maxExpand: 200 };

/** @typedef {{element: HTMLElement, nodes: number}} Formula as it was set by KaTeX */

/** @type {Map<string, Formula|null>} */
const kept = new Map(); // null: KaTeX cannot parse it
/** @type {{place: HTMLElement, nodes: number}[]} */
let shown = [];
let room = MOST_SHOWN;
/** @type {{place: HTMLElement, source: string, onDraw: () => void}[]} */
let waiting = [];
let loading = /** @type {Promise<unknown>|null} */ (null);
let timer = 0;

/**
 * @param {HTMLElement} place an element with the source in data-formula, as `formulaSyntax` writes it
 * @param {() => void} onDraw called after its size has changed
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
  const began = performance.now();
  while (waiting.length && performance.now() < began + BATCH_MS) setOne(/** @type {any} */ (waiting.shift()));
  timer = waiting.length ? setTimeout(setSome, performance.now() - began) : 0; // the page gets half of the time
}

async function load() {
  await Promise.all([loadScript('vendor/katex/katex.min.js'), loadStyles('vendor/katex/katex.min.css')]);
  // All of its fonts at once: a later formula may need another font when there is no network.
  for (const face of document.fonts) if (face.family.includes('KaTeX')) face.load().catch(() => {});
}

function setOne({ place, source, onDraw }) {
  const key = keyOf(place, source);
  if (!kept.has(key)) {
    kept.set(key, typeset(texOf(source), isBlock(place)));
    const [oldest] = kept.keys();
    if (kept.size > MOST_KEPT || total([...kept.values()]) > MOST_SHOWN) kept.delete(oldest);
  }
  const set = kept.get(key);
  if (!set || !place.isConnected) return; // drawn again in the meantime
  fill(place, set);
  onDraw();
}

/** True if KaTeX will be done with it soon. @param {string} tex */
function isModest(tex) {
  return tex.length <= LONGEST && tex.split('&').length <= MOST_CELLS && !DEFINITION.test(tex);
}

/** @returns {Formula|null} */
function typeset(tex, displayMode) {
  if (!isModest(tex)) return null;
  try {
    const tree = katex.__renderToDomTree(tex, { ...OPTIONS, displayMode });
    const nodes = nodesOf(tree);
    if (nodes > MOST_NODES || tree.height + tree.depth > MOST_HEIGHT) return null;
    withoutStyleAttributes(tree);
    return { element: tree.toNode(), nodes };
  } catch {
    return null;
  }
}

/** The number of nodes, itself included; Infinity if they nest too deeply. @returns {number} */
function nodesOf(node, level = 1) {
  if (level > MOST_LEVELS) return Infinity;
  return (node.children ?? []).reduce((sum, child) => sum + nodesOf(child, level + 1), 1);
}

const total = (formulas) => formulas.reduce((sum, one) => sum + (one?.nodes ?? 0), 0);

/** The page's policy allows no style attribute; its declarations are set through the element's style. */
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

/** @param {HTMLElement} place @param {Formula} set */
function fill(place, { element, nodes }) {
  if (nodes > room) {
    shown = shown.filter((one) => one.place.isConnected);
    room = MOST_SHOWN - total(shown);
    if (nodes > room) return;
  }
  shown.push({ place, nodes });
  room -= nodes;
  place.classList.add('set');
  place.dir = 'ltr';
  place.replaceChildren(element.cloneNode(true));
}

const isBlock = (place) => place.dataset.formula === 'block';
const keyOf = (place, source) => `${place.dataset.formula} ${source}`;
