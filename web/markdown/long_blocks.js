/** Blocks of Markdown that are long enough to be drawn in parts, which look like one. */
import { wholeEnd } from '../common/cut.js';
import { lexBlocks } from './markdown.js';

const LONG_LIST = 12; // items; a longer list settles up to its last item
const LONG_CODE = 8000; // characters, some 200 lines; longer code settles in parts of this length
const FENCE = /^ {0,3}(?:`{3}|~{3})[^\n]*\n/;

/**
 * The last block becomes two if it is long. The first has `goesOn`, and code also `fence`: the line to put before what follows.
 * @param {any[]} blocks of lexBlocks @returns {any[]} the same array
 */
export function splitLong(blocks) {
  const last = lastBlock(blocks);
  const parts = { list: splitList, code: splitCode }[blocks[last]?.type]?.(blocks[last]);
  if (parts) blocks.splice(last, 1, ...parts);
  return blocks;
}

/** All items but the last, which can no longer change, and the last item. */
function splitList(list) {
  if (list.items.length <= LONG_LIST) return null;
  const raw = list.items.slice(0, -1).reduce((sum, item) => sum + item.raw, '');
  const head = { ...list, items: list.items.slice(0, -1), raw, goesOn: true };
  const start = list.ordered ? Number(list.start) + head.items.length : list.start;
  return [head, { ...list, items: list.items.slice(-1), raw: list.raw.slice(raw.length), start }];
}

function splitCode({ raw }) {
  const [fence] = FENCE.exec(raw) ?? [];
  if (!fence || raw.length <= LONG_CODE) return null;
  const head = raw.slice(0, endOfLine(raw, LONG_CODE));
  return [{ ...lexBlocks(head)[0], raw: head, goesOn: true, fence }, ...lexBlocks(fence + raw.slice(head.length))];
}

/** The index of the last block that is not empty space. */
export function lastBlock(blocks) {
  let last = blocks.length - 1;
  while (last >= 0 && blocks[last].type === 'space') last -= 1;
  return last;
}

/** The place at which to cut a text of more than `length` characters: after a line, else after a word, else anywhere. */
export function endOfLine(text, length) {
  const begin = text.slice(0, length);
  const end = [begin.lastIndexOf('\n') + 1, begin.lastIndexOf(' ') + 1].find((at) => at > length / 2);
  return end ?? wholeEnd(text, length);
}
