/**
 * One answer that grows. Text is added as it arrives and drawn at most once a frame, in small portions: a model may write
 * anything, and the page must stay usable.
 *
 * Only the last block of the Markdown can still change, so the blocks before it are drawn once ("settled") and never touched
 * again: the cost of a frame does not grow with the answer. Long lists and long code settle in parts. If much text is there at
 * once, as at the end of an answer or from the memory, it is drawn in slices, each in a task of its own. A block that is too
 * long for Markdown, or takes too long, is shown as plain text.
 */
import { lexBlocks, renderBlocks } from '../markdown/markdown.js';
import { become, becomeFirst, keepSelection } from '../markdown/live_nodes.js';
import { endOfLine, lastBlock, splitLong } from '../markdown/long_blocks.js';
import { enrich } from '../markdown/rich_blocks.js';

const FRAME_SHARE = 6; // pause this many times as long as the last drawing took
const TOO_SLOW_MS = 30; // after a drawing this slow its block is no longer drawn as Markdown
const SLICE = 6000; // characters drawn at once
const LONGEST_BLOCK = 12_000; // characters of a block that is drawn as Markdown

export class AnswerView {
  text = '';
  #settledLength = 0;
  #settled = document.createElement('div');
  #tail = document.createElement('div');
  #slice = SLICE;
  #fence = ''; // if code has settled in parts: the line that begins it
  #long = /** @type {import('../markdown/code_figure.js').CodeFigure|null} */ (null); // that code
  #figures = /** @type {import('../markdown/code_figure.js').CodeFigure[]} */ ([]); // code in the tail
  #headings = /** @type {number[]} */ ([]); // the headings above the tail, as renderBlocks takes them
  #isPlain = false; // up to the next empty line from `#plainTo` on
  #plainTo = 0;
  #tailText = '';
  #frame = 0;
  #timer = 0;
  #restUntil = 0;
  #onDraw;
  #onSettled;

  /**
   * @param {HTMLElement} parent
   * @param {{onDraw?: () => void, onSettled?: (text: string) => void}} [callbacks] called before and after each drawing, and
   *   with the plain text of settled blocks
   */
  constructor(parent, { onDraw, onSettled } = {}) {
    this.#settled.className = 'settled';
    this.#tail.className = 'tail';
    parent.append(this.#settled, this.#tail);
    this.#onDraw = onDraw;
    this.#onSettled = onSettled;
  }

  append(text) {
    this.text += text.replaceAll('\r\n', '\n');
    if (!this.#frame) this.#frame = requestAnimationFrame(this.#onFrame);
  }

  /** Show this instead of the text so far. */
  replace(text) {
    this.text = text.replaceAll('\r\n', '\n');
    this.#settledLength = 0;
    this.#slice = SLICE;
    this.#fence = '';
    this.#long = null;
    this.#figures = [];
    this.#headings = [];
    this.#isPlain = false;
    this.#plainTo = 0;
    this.#settled.replaceChildren();
    this.#tail.classList.remove('plain');
  }

  /** The text is complete: draw the rest, the first slice at once. */
  finish() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#drawToTheEnd();
  }

  #drawToTheEnd = () => {
    clearTimeout(this.#timer);
    this.#redraw(() => this.#drawOrSettle());
  };

  #drawOrSettle() {
    if (this.#draw()) this.#timer = setTimeout(this.#drawToTheEnd);
    else if (this.#isPlain) this.#settlePlain(this.#tail.textContent ?? '', this.text.length);
    else this.#settle(this.#tail.childNodes, this.text.length, this.#tailText);
  }

  #onFrame = (now) => {
    if (now < this.#restUntil) {
      this.#frame = requestAnimationFrame(this.#onFrame);
      return;
    }
    this.#frame = 0;
    const begin = performance.now();
    const isMore = this.#redraw(() => this.#draw());
    const took = performance.now() - begin;
    this.#restUntil = now + took * FRAME_SHARE;
    if (took > TOO_SLOW_MS && !isMore && this.text.length - this.#settledLength > 2000) this.#isPlain = true;
    if (isMore) this.#frame = requestAnimationFrame(this.#onFrame);
  };

  /** @template Made @param {() => Made} draw @returns {Made} */
  #redraw(draw) {
    this.#onDraw?.(); // the text above may be gone, so a reader that follows is already elsewhere
    const made = this.#tail.hasChildNodes() ? keepSelection(draw) : draw();
    this.#onDraw?.();
    return made;
  }

  /** Draw the text, up to a slice of it. @returns {boolean} true if there is more */
  #draw() {
    const rest = this.text.slice(this.#settledLength);
    if (this.#isPlain) return this.#drawPlain(rest);
    const source = this.#fence + rest;
    const isWhole = source.length <= this.#slice;
    const part = isWhole ? source : source.slice(0, endOfLine(source, this.#slice));
    let blocks;
    try {
      blocks = splitLong(lexBlocks(part));
      const done = settledCount(blocks, isWhole);
      if (!isWhole && done === 0) return this.#takeMore(part);
      const raw = blocks.slice(0, done).reduce((sum, block) => sum + block.raw, '');
      if (raw && part.startsWith(raw)) {
        this.#settleBlocks(blocks.splice(0, done), this.#settledLength + raw.length - this.#fence.length);
      } else if (!isWhole) {
        return this.#bePlain(part);
      }
      this.#drawTail(isWhole ? blocks : []);
      return !isWhole;
    } catch {
      return this.#bePlain(part); // marked gave up
    }
  }

  /**
   * Settle these blocks: they will not change any more. @param {any[]} blocks @param {number} length of the text up to there
   */
  #settleBlocks(blocks, length) {
    const { fragment, text } = this.#render(blocks, this.#headings);
    const figures = enrich(fragment, this.#figures, this.#drawn);
    this.#figures = this.#figures.filter((figure) => !figures.includes(figure));
    this.#settle(becomeFirst(this.#tail, fragment), length, text);
    const { goesOn, fence = '', raw } = blocks.at(-1);
    if (fence) {
      this.#long = figures.at(-1) ?? this.#long;
      this.#long?.close(raw.endsWith('\n') ? '\n' : '');
    } else {
      this.#long = null;
      if (goesOn) this.#settled.lastElementChild?.classList.add('goes-on');
    }
    this.#fence = fence;
    this.#slice = SLICE;
  }

  /** Draw the blocks that may still change. @param {any[]} blocks */
  #drawTail(blocks) {
    const { fragment, text } = this.#render(blocks, [...this.#headings]);
    this.#tailText = text;
    if (this.#grow(fragment)) return;
    this.#figures = enrich(fragment, this.#figures, this.#drawn);
    become(this.#tail, fragment);
  }

  /** If the tail is one block of code, it grows in place: a selection or the focus in it stays. */
  #grow(fragment) {
    const [figure] = this.#figures, block = /** @type {HTMLElement|null} */ (fragment.firstElementChild);
    const isAlone = fragment.childElementCount === 1 && this.#tail.childElementCount === 1;
    if (!figure || block?.tagName !== 'PRE' || !isAlone) return false;
    const text = block.textContent ?? '';
    const grows = figure.canBecome(block.dataset.language ?? '', text);
    if (grows) figure.set(text);
    return grows;
  }

  /**
   * Appends the continuation of long code to it; the rest becomes elements. @param {any[]} blocks @param {number[]} headings
   * @returns {{fragment: DocumentFragment, text: string}}
   */
  #render(blocks, headings) {
    const [first] = blocks;
    const isPart = this.#long !== null && this.#fence !== '' && first?.type === 'code';
    // If all of the code has settled except its closing line, there is nothing to add.
    if (isPart && first.text) this.#long?.set(first.text);
    const fragment = renderBlocks(isPart ? blocks.slice(1) : blocks, headings);
    return { fragment, text: `${isPart ? first.text : ''} ${textOf(fragment)}`.trim() };
  }

  #drawn = () => this.#onDraw?.();

  /** One block fills the slice. */
  #takeMore(part) {
    if (this.#slice >= LONGEST_BLOCK) return this.#bePlain(part);
    this.#slice *= 2;
    return true;
  }

  #bePlain(part) {
    this.#isPlain = true;
    this.#plainTo = this.#settledLength + part.length - this.#fence.length;
    this.#fence = '';
    this.#long = null;
    this.#slice = SLICE;
    return true;
  }

  #drawPlain(rest) {
    const end = rest.indexOf('\n\n', this.#plainTo - this.#settledLength - 1);
    const block = end < 0 ? rest : rest.slice(0, end + 2);
    this.#tail.classList.add('plain');
    if (block.length > SLICE || (end >= 0 && block.length < rest.length)) {
      const cut = block.length > SLICE ? endOfLine(block, SLICE) : block.length;
      this.#settlePlain(block.slice(0, cut), this.#settledLength + cut);
      if (cut < block.length) this.#settled.lastElementChild?.classList.add('goes-on');
      else this.#isPlain = false;
      return true;
    }
    become(this.#tail, asFragment(block));
    return false;
  }

  #settlePlain(text, length) {
    const block = document.createElement('p');
    block.className = 'plain';
    block.append(...this.#tail.childNodes);
    become(block, asFragment(text.trimEnd()));
    this.#tail.classList.remove('plain');
    this.#settle(block.textContent ? [block] : [], length, block.textContent?.trim() ?? '');
  }

  #settle(nodes, length, text) {
    for (const node of [...nodes]) {
      // If the browser can, keep the focus and the scroll position.
      if (node.isConnected && 'moveBefore' in this.#settled) /** @type {any} */ (this.#settled).moveBefore(node, null);
      else this.#settled.append(node);
    }
    this.#settledLength = length;
    this.#tailText = '';
    if (text) this.#onSettled?.(text);
  }
}

/** Returns the number of leading blocks that can no longer change: all before the last one, once it is surely a new block. */
function settledCount(blocks, isWhole) {
  const last = lastBlock(blocks);
  if (last <= 0) return 0;
  // "2" after a list may become "2. ..." and belong to that list; a few more characters decide.
  return !isWhole || blocks[last].raw.trim().length > 8 || blocks[last - 1].goesOn ? last : 0;
}

function asFragment(text) {
  const fragment = document.createDocumentFragment();
  if (text) fragment.append(text);
  return fragment;
}

/** The text of blocks as they are shown. */
function textOf(fragment) {
  return [...fragment.childNodes].map((node) => node.textContent).join(' ').trim();
}
