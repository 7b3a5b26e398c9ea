/**
 * One answer that grows. Text is added as it arrives and drawn at most once a frame, and never much of it at a time: a
 * model may say anything, and the page stays usable meanwhile.
 *
 * Only the last block of the Markdown can still change, so the blocks before it are drawn once ("settled") and never
 * touched again: the cost of a frame does not grow with the answer. Long lists and long code settle in parts. Where much
 * text is there at once, as at the end of an answer or from the memory, it is drawn in slices, each in a task of its own. A
 * block that is too long for Markdown, or takes too long, is plain text.
 */
import { lexBlocks, renderBlocks } from './markdown.js';
import { endOfLine, lastBlock, splitLong } from './long_blocks.js';

const FRAME_SHARE = 6; // rest this many times as long as the last drawing took
const TOO_SLOW_MS = 30; // a drawing this slow is the last one of its block as Markdown
const SLICE = 6000; // characters that are drawn at once
const LONGEST_BLOCK = 12_000; // characters of a block that is drawn as Markdown

export class AnswerView {
  text = '';
  #settledLength = 0;
  #settled = document.createElement('div');
  #tail = document.createElement('div');
  #slice = SLICE;
  #fence = ''; // where code has settled in parts: the line that begins it
  #isPlain = false; // up to the next empty line from `#plainTo` on
  #plainTo = 0;
  #frame = 0;
  #timer = 0;
  #restUntil = 0;
  #onDraw;
  #onSettled;

  /**
   * @param {HTMLElement} parent
   * @param {{onDraw?: () => void, onSettled?: (text: string) => void}} [callbacks] after each drawing; with the plain
   *   text of blocks that will not change any more
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

  /** Show this in place of the text so far. */
  replace(text) {
    this.text = text.replaceAll('\r\n', '\n');
    this.#settledLength = 0;
    this.#slice = SLICE;
    this.#fence = '';
    this.#isPlain = false;
    this.#plainTo = 0;
    this.#settled.replaceChildren();
    this.#tail.classList.remove('plain');
  }

  /** Nothing more will come: draw what is left, the first slice at once. */
  finish() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#drawToTheEnd();
  }

  #drawToTheEnd = () => {
    clearTimeout(this.#timer);
    if (this.#draw()) this.#timer = setTimeout(this.#drawToTheEnd);
    else if (this.#isPlain) this.#settlePlain(this.#tail.textContent ?? '', this.text.length);
    else this.#settle(this.#tail.childNodes, this.text.length);
    this.#onDraw?.();
  };

  #onFrame = (now) => {
    if (now < this.#restUntil) {
      this.#frame = requestAnimationFrame(this.#onFrame);
      return;
    }
    this.#frame = 0;
    const begin = performance.now();
    const isMore = this.#draw();
    this.#onDraw?.();
    const took = performance.now() - begin;
    this.#restUntil = now + took * FRAME_SHARE;
    if (took > TOO_SLOW_MS && !isMore && this.text.length - this.#settledLength > 2000) this.#isPlain = true;
    if (isMore) this.#frame = requestAnimationFrame(this.#onFrame);
  };

  /** Draw what there is, up to a slice of it. @returns {boolean} whether there is more */
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
        const finished = blocks.splice(0, done);
        const length = this.#settledLength + raw.length - this.#fence.length;
        this.#settle(renderBlocks(withoutEnd(finished, this.#fence)).childNodes, length);
        if (finished.at(-1).goesOn) this.#settled.lastElementChild?.classList.add('goes-on');
        this.#fence = finished.at(-1).fence ?? '';
        this.#slice = SLICE;
      } else if (!isWhole) {
        return this.#bePlain(part);
      }
      this.#tail.replaceChildren(isWhole ? renderBlocks(withoutEnd(blocks, this.#fence)) : '');
      return !isWhole;
    } catch {
      return this.#bePlain(part); // marked gave up
    }
  }

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
    this.#tail.textContent = block;
    return false;
  }

  #settlePlain(text, length) {
    const block = document.createElement('p');
    block.className = 'plain';
    block.textContent = text.replace(/\n+$/, '');
    this.#tail.replaceChildren();
    this.#tail.classList.remove('plain');
    this.#settle(block.textContent ? [block] : [], length);
  }

  #settle(nodes, length) {
    const added = [...nodes];
    this.#settled.append(...added);
    this.#settledLength = length;
    const text = added.map((node) => node.textContent).join(' ').trim();
    if (text) this.#onSettled?.(text);
  }
}

/** How many of the leading blocks can no longer change: those before the last one, once it is surely a new block. */
function settledCount(blocks, isWhole) {
  const last = lastBlock(blocks);
  if (last <= 0) return 0;
  // "2" after a list may become "2. ..." and belong to that list; some more characters tell.
  return !isWhole || blocks[last].raw.trim().length > 8 || blocks[last - 1].goesOn ? last : 0;
}

/** Where all of some code has settled but the line that ends it, that is no block of its own. */
function withoutEnd(blocks, fence) {
  return fence && blocks[0]?.type === 'code' && !blocks[0].text ? blocks.slice(1) : blocks;
}
