/**
 * Lines that look like Markdown's blocks but are not: >= 5, >>> f(x), + 5 in a sum, _ _ _ _, a lone "-". Also what blocks would
 * drop: the numbers of a list, the surplus cells of a row.
 */
import { FORMULA_LINE } from './formula_syntax.js';
import { Tokenizer } from '../vendor/marked.esm.js';

const NO_QUOTE = /^ {0,3}>(?:[=:;\p{N}\p{Sc}]|[-+.]\p{N}|[._]+[<>]|>>(?:\s|$))/u; // >5, >:(, >_<, >>> f(x)
const NO_RULE = /^ {0,3}(?:_[ \t]+_|\*{4})/; // not decided yet, or not stated
const NO_ITEM = /^ {0,3}\+ +[\p{N}\p{Sc}]/u;
const UNDERLINE = /\n {0,3}(=+|-+)[ \t]*(?:\n|$)/;
const SHORTEST_LINE = 3;
const NUMBER = /^\s*(\d+)/;
const MARK = /[`$]/;
const PIPE = /(?<!\\)\|/;
const OUTER_PIPES = /^\s*\||(?<!\\)\|\s*$/g;

/** For marked. In these functions `false` means that marked decides. */
export const plainBlocks = {
  blockquote: (source) => (NO_QUOTE.test(source) ? undefined : false),
  hr: (source) => (NO_RULE.test(source) ? undefined : false),

  /** Text above a lone "-" or "=", or above one in a formula, is not a heading. @param {string} source */
  lheading(source) {
    const near = source.slice(0, source.indexOf('\n\n') + 1 || undefined);
    const underline = UNDERLINE.exec(near), formula = near.search(FORMULA_LINE);
    if (!underline || underline[1].length < SHORTEST_LINE) return undefined;
    return formula >= 0 && formula < underline.index ? undefined : false;
  },

  /** @this {any} @param {string} source */
  list(source) {
    if (NO_ITEM.test(source)) return undefined;
    const list = Tokenizer.prototype.list.call(this, source);
    if (list?.ordered) keepNumbers(list.items);
    return list;
  },

  /** @this {any} @param {string} source */
  table(source) {
    const table = Tokenizer.prototype.table.call(this, source);
    if (!table) return undefined;
    const most = table.header.length;
    for (const [at, row] of table.raw.split('\n').slice(2).entries()) {
      const cells = row.replace(OUTER_PIPES, '').split(PIPE);
      if (cells.length > most) {
        table.rows[at] = fit(cells, most).map((cell, column) => {
          const text = cell.trim().replaceAll('\\|', '|');
          return { text, tokens: this.lexer.inline(text), header: false, align: table.align[column] };
        });
      }
    }
    return table;
  },
};

/**
 * Items keep their own numbers, even if they count down. If all have the same number, they are counted. @param {any[]} items
 */
function keepNumbers(items) {
  const numbers = items.map(({ raw }) => Number(NUMBER.exec(raw)?.[1]));
  const isSame = numbers.every((number) => number === numbers[0]);
  for (const [at, item] of items.entries()) item.value = isSame ? numbers[0] + at : numbers[at];
}

/** Limits a row to this number of cells: | in code, in a formula and in || is text, and so is the surplus. */
function fit(cells, most) {
  const joined = /** @type {string[]} */ ([]);
  let isOpen = false; // the last cell continues
  for (const [at, cell] of cells.entries()) {
    const isPart = joined.length > 0 && (isOpen || cell === '' || cells[at - 1] === '');
    if (isPart) joined[joined.length - 1] += `|${cell}`;
    else joined.push(cell);
    isOpen = cell.split(MARK).length % 2 === (isPart && isOpen ? 1 : 0);
  }
  const fitting = joined.length < most ? cells : joined;
  return [...fitting.slice(0, most - 1), fitting.slice(most - 1).join('|')];
}
