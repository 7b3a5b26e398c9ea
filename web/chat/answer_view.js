/**
 * One answer that grows. Text is added as it arrives and drawn at most once a frame.
 *
 * Only the last block of the Markdown can still change, so the blocks before it are drawn once ("settled") and never
 * touched again: the cost of a frame does not grow with the answer. A long list settles in parts. A last block that gets
 * expensive all the same is drawn less often, and one that would hold up the page is drawn as plain text.
 */
import { lexBlocks, renderBlocks } from './markdown.js';

const FRAME_SHARE = 6; // rest this many times as long as the last drawing took
const LONG_LIST = 12; // items; a longer list settles up to its last item
const TOO_SLOW_MS = 30; // a drawing this slow is the last one of its block as Markdown

export class AnswerView {
  text = '';
  #settledLength = 0;
  #settled = document.createElement('div');
  #tail = document.createElement('div');
  #tailIsPlain = false;
  #frame = 0;
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
    this.#tailIsPlain = false;
    this.#settled.replaceChildren();
    this.#tail.classList.remove('plain');
  }

  /** Nothing more will come: draw what is left. */
  finish() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#draw();
    this.#settle(this.#tail.childNodes, this.text.length);
  }

  #onFrame = (now) => {
    if (now < this.#restUntil) {
      this.#frame = requestAnimationFrame(this.#onFrame);
      return;
    }
    this.#frame = 0;
    const begin = performance.now();
    this.#draw();
    this.#onDraw?.();
    const took = performance.now() - begin;
    this.#restUntil = now + took * FRAME_SHARE;
    if (took > TOO_SLOW_MS && this.text.length - this.#settledLength > 2000) this.#tailIsPlain = true;
  };

  #draw() {
    const rest = this.text.slice(this.#settledLength);
    if (this.#tailIsPlain) return this.#drawPlain(rest);
    try {
      const blocks = splitLongList(lexBlocks(rest));
      const done = settledCount(blocks);
      const raw = blocks.slice(0, done).reduce((sum, block) => sum + block.raw, '');
      if (raw && rest.startsWith(raw)) {
        const finished = blocks.splice(0, done);
        this.#settle(renderBlocks(finished).childNodes, this.#settledLength + raw.length);
        if (finished.at(-1).goesOn) this.#settled.lastElementChild?.classList.add('goes-on');
      }
      this.#tail.replaceChildren(renderBlocks(blocks));
    } catch {
      this.#drawPlain(rest); // for example thousands of nested quotes
    }
  }

  #drawPlain(rest) {
    this.#tail.textContent = rest;
    this.#tail.classList.add('plain');
  }

  #settle(nodes, length) {
    const added = [...nodes];
    if (this.#tail.classList.contains('plain') && added[0]?.parentNode === this.#tail) {
      const block = document.createElement('p');
      block.className = 'plain';
      block.append(...added);
      added.splice(0, added.length, block);
      this.#tail.classList.remove('plain');
    }
    this.#settled.append(...added);
    this.#settledLength = length;
    const text = added.map((node) => node.textContent).join(' ').trim();
    if (text) this.#onSettled?.(text);
  }
}

/** How many of the leading blocks can no longer change: those before the last one, once it is surely a new block. */
function settledCount(blocks) {
  const last = lastBlock(blocks);
  if (last <= 0) return 0;
  // "2" after a list may become "2. ..." and belong to that list; some more characters tell.
  return blocks[last].raw.trim().length > 8 || blocks[last - 1].goesOn ? last : 0;
}

/** A long list at the end becomes two: all items but the last, which can no longer change, and the last one. */
function splitLongList(blocks) {
  const last = lastBlock(blocks);
  const list = blocks[last];
  if (list?.type !== 'list' || list.items.length <= LONG_LIST) return blocks;
  const raw = list.items.slice(0, -1).reduce((sum, item) => sum + item.raw, '');
  const head = { ...list, items: list.items.slice(0, -1), raw, goesOn: true };
  const start = list.ordered ? Number(list.start) + head.items.length : list.start;
  const tail = { ...list, items: list.items.slice(-1), raw: list.raw.slice(raw.length), start };
  blocks.splice(last, 1, head, tail);
  return blocks;
}

function lastBlock(blocks) {
  let last = blocks.length - 1;
  while (last >= 0 && blocks[last].type === 'space') last -= 1;
  return last;
}
