/**
 * Finds the words that two texts share, in their order: the longest common subsequence of their words.
 * @typedef {{text: string, kind: 'same'|'gone'|'new'}} Piece words with the spaces behind them
 */

const MOST_WORDS = 1500; // of a text: the table has as many rows and columns

/** @param {string} before @param {string} after @returns {Piece[]} adjacent words of one kind form one piece */
export function wordDiff(before, after) {
  const [a, b] = [before, after].map((text) => (text.match(/\S+\s*|^\s+/g) ?? []).slice(0, MOST_WORDS));
  const same = (i, j) => a[i].trim() === b[j].trim();
  const width = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * width); // of the rest of both, from a word of each on
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = same(i, j)
        ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const pieces = /** @type {Piece[]} */ ([]);
  const add = (/** @type {Piece['kind']} */ kind, text) => {
    const last = pieces.at(-1);
    if (last?.kind === kind) last.text += text;
    else pieces.push({ text, kind });
  };
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && same(i, j)) {
      add('same', b[j]);
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) add('gone', a[i++]);
    else add('new', b[j++]);
  }
  return pieces;
}
