/**
 * Formulas in Markdown: $..$ and \(..\) in a line, $$..$$ and \[..\] in lines of their own. Markdown does not parse their
 * content: it would remove backslashes, and take * and _ for emphasis. "$5 and $10" are prices.
 */
const LONGEST = 4000; // characters of a formula
const MARKS = /\\[([]|\$/;
const INLINE = /^(?:\\\(([^]+?)\\\)|\\\[([^]+?)\\\]|\$\$(?!\$)([^]+?)\$\$(?!\$))/;
// Pandoc's rule: no space inside the dollars, no letter or digit behind the second. Nor a formula that continues like ${a}.
const DOLLARS = /^\$(?![\s$])((?:\\.|[^\\$`\n])+?)(?<!\s)\$(?![\p{L}\p{N}_{$])/u;
const TEX = /[\\^_={}+*/<>|]/;
const BLOCK = /^ {0,3}(?:\$\$(?!\$)(?:(?!\$\$)[^])+\$\$|\\\[(?:(?!\\\])[^])+\\\])[ \t]*(?:\n+|$)/;
const OPEN_BLOCK = /^ {0,3}(?:\$\$(?!\$)|\\\[)[^]*$/; // the answer is still streaming
/** Finds the beginning of a formula on a line of its own. */
export const FORMULA_LINE = /\n {0,3}(?:\$\$|\\\[)/;
const EMPTY_LINE = /\n[ \t]*\n/;

/** Finds the beginning of a formula on a line of its own; marked passes the text after the first character. */
function startOfBlock(source) {
  const at = source.search(FORMULA_LINE);
  return at < 0 ? undefined : at + 1;
}

/** @returns {any[]} extensions of marked. @param {(text: string) => string} escape for HTML */
export function formulaSyntax(escape) {
  return [{
    name: 'formula',
    level: 'inline',
    start: (source) => source.search(MARKS),
    tokenizer(source, before) {
      const behind = before?.at(-1)?.raw ?? '';
      const [raw, round, square, dollars = ''] = INLINE.exec(source.slice(0, LONGEST)) ?? [];
      const isFormula = raw && !isProse(dollars) && !(dollars && behind.endsWith('$'));
      if (isFormula) return { type: 'formula', raw, tex: round ?? square ?? dollars, isBlock: round === undefined };
      if (source[0] !== '$' || /[\p{L}\p{N}$]$/u.test(behind)) return undefined; // US$
      const [found, tex] = DOLLARS.exec(source.slice(0, LONGEST)) ?? [];
      const isTwice = found && source[1] !== '-' && source[1] === source[found.length]; // $('a')/$('b')
      return found && !isTwice && !isProse(tex) ? { type: 'formula', raw: found, tex, isBlock: false } : undefined;
    },
    renderer: ({ raw, isBlock }) => `<span data-formula="${isBlock ? 'block' : 'inline'}">${escape(raw)}</span>`,
  }, {
    name: 'formulaBlock',
    level: 'block',
    start: startOfBlock,
    tokenizer(source) {
      const near = source.slice(0, LONGEST);
      const [raw] = BLOCK.exec(near) ?? [];
      if (raw && !EMPTY_LINE.test(raw.trim()) && !isProse(texOf(raw.trim()))) return { type: 'formulaBlock', raw, text: raw.trim() };
      const [open] = source.length < LONGEST ? OPEN_BLOCK.exec(source) ?? [] : [];
      const isOpen = open && !EMPTY_LINE.test(open) && !/\$\$|\\\]/.test(open.trim().slice(2));
      return isOpen ? { type: 'formulaBlock', raw: open, text: open.trim(), isOpen } : undefined;
    },
    renderer: ({ text, isOpen }) => (isOpen ? `<p>${escape(text)}</p>\n` : `<p data-formula="block">${escape(text)}</p>\n`),
  }];
}

/** "5 or maybe 10", the text between two prices */
const isProse = (tex) => !TEX.test(tex) && /\s/.test(tex) && /\p{L}{2}/u.test(tex);

/** The text between the marks of a formula as `formulaSyntax` found it. @param {string} source */
export function texOf(source) {
  const marks = source.startsWith('$') && !source.startsWith('$$') ? 1 : 2;
  return source.slice(marks, -marks);
}
