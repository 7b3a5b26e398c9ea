/**
 * Signs that look like Markdown's marks but are not: 5*4*3, x**2, 100~200, __init__, *.py, (_). In doubt a sign is shown: a
 * reader can ignore a surplus asterisk, but not a product that became one number. Also marks beside a script without spaces
 * between words, which Markdown's rules do not accept.
 */
const RUNS = /(\*+|_+|~+)/;
const NAMES = /(?<![\p{L}\p{N}_])__(?:[a-z0-9]+(?:_[a-z0-9]+)*|[A-Z0-9]+(?:_[A-Z0-9]+)*)__(?![\p{L}\p{N}_])/gu; // __init__
const FACES = /(?<=^|[\s([{"'])(?:\*[^\p{L}\p{N}\s*]+\*|_[^\p{L}\p{N}\s_]+_)(?=$|[\s)\]}"',;:.?!])/gu; // *.*, *_*
const CHAINS = /(?<![^\s\p{P}]|\*)[^\s\p{P}*]+(?:\*[^\s\p{P}*]+)+/gu; // 单价*数量*2
const SPACELESS = /[\p{scx=Hani}\p{scx=Hira}\p{scx=Kana}\p{scx=Hang}\p{scx=Bopo}\p{scx=Thai}\p{scx=Laoo}\p{scx=Khmr}\p{scx=Mymr}\uff01-\uffee]/u;
const WORD = /[\p{L}\p{N}\p{M}]/u;
const NUMBER = /[\p{N}\p{Sc}]/u;
const DIGIT = /[\p{Nd}\p{Sc}]/u; // **m**² is bold
const OPERAND_BEFORE = /[\p{L}\p{N}\p{M}\p{Sc})\]}%°′″]$|(?:[\p{N})]|(?<!\p{L})\p{L})[!.'’]$|[\p{L}\p{N}.!?)\]]["']$/u; // 5!, 5., f'; "a"
const OPERAND_AFTER = /^[\p{L}\p{N}\p{Sc}([{√∞]|^[-+−.]\p{N}/u;
const ONE_LETTER = /(?<!\p{L})\p{L}$/u;
const ESCAPED = /^\+\+/; // as marked masks it: [a-z]*\.py
const OPENS = /[([{<“‘«„]/;
const BEGINNING = /(?:^|[\s([{<“‘«„])["']?$/;
const ENDS = /[)\]},;:.?!]/;
const CLOSES = /[)\]}>”’»]/;
const SYMBOL = /[\p{S}\-;]/u;
const PUNCTUATION = /[\p{P}\p{S}]/u;
const SPACE = /\s/;
const BACKSLASH = /^\\[!-'*-/:-@\\\]-`{-~]/; // but not of a formula
const LITERAL = /\\[\p{L}\p{N}]|[^\p{N}]\\\.|^["'(]?(?:[a-z]:|\.{1,2}|%\w+%)\\/iu; // .*\.js, D:\*.log, ..\_x
const ARM = /(?!\p{ASCII})\p{S}$/u; // ¯\_(ツ)_/¯
const LONGEST_WORD = 200;
const MOST_TOKENS = 8;

/**
 * For marked's `emStrongMask`: the same text, in which such signs are not marks, and a mark beside a script without spaces
 * stands between letters.
 * @param {string} text @returns {string} as long as the text
 */
export function maskSigns(text) {
  const rest = text.replace(NAMES, plain).replace(FACES, plain).replace(CHAINS, plainProduct);
  const parts = rest.split(RUNS); // text, run, text, ...
  const masked = [...parts];
  const begun = new Set(); // runs that may have opened a mark
  let open = '', isWord = true; // the last of them, and whether the text after it is a single word so far
  for (let at = 1; at < parts.length; at += 2) {
    const run = parts[at], before = parts[at - 1].at(-1) ?? (at > 1 ? parts[at - 2][0] : '');
    const after = parts[at + 1][0] ?? parts[at + 2]?.[0] ?? '';
    isWord &&= !SPACE.test(parts[at - 1]);
    const isEnd = run === open && before.trim() !== '';
    const isInWord = isEnd && !DIGIT.test(after) && (run[0] !== '_' || !WORD.test(after)) // **N**atural, **model**s
      && (isWord || (run.length > 1 && !ONE_LETTER.test(parts[at - 1])));
    const isBeside = parts[at - 1] === '/' && masked[at - 2] === run && open === ''; // *he*/*she*
    const isMark = isInWord || isBeside || canMark(parts, at, before, after, begun.has(run) || run.length > 2);
    if (isMark) {
      const isOver = isEnd || !after.trim();
      if (isOver || begun.has(run)) begun.delete(run);
      else for (const part of run.length > 2 ? [run[0], run[0].repeat(2), run] : [run]) begun.add(part);
      [open, isWord] = [isOver ? '' : run, true];
    }
    if (!isMark) {
      masked[at] = plain(run);
    } else if (run[0] !== '_' && (isSpaceless(before) || isSpaceless(after))) {
      if (PUNCTUATION.test(before)) masked[at - 1] = masked[at - 1].slice(0, -1) + 'a';
      if (PUNCTUATION.test(after)) masked[at + 1] = `a${masked[at + 1].slice(1)}`;
    }
  }
  return masked.join('');
}

/** @param {string} character */
export const isSpaceless = (character) => SPACELESS.test(character);

/**
 * For marked: a backslash before a letter or a digit is literal, and so are the others of its word: C:\_old\x, \d+\.\d,
 * \\server. It is also literal, as an arm, beside a sign that Markdown does not use.
 */
export const plainBackslash = {
  name: 'plainBackslash',
  level: /** @type {const} */ ('inline'),
  start: (source) => source.indexOf('\\'),
  tokenizer(source, before = /** @type {any[]} */ ([])) {
    if (!BACKSLASH.test(source)) return undefined;
    const behind = before.slice(-MOST_TOKENS).map(({ raw }) => raw).join('').slice(-LONGEST_WORD);
    const word = behind.split(SPACE).at(-1) + source.slice(0, LONGEST_WORD).split(SPACE, 1)[0];
    if (!LITERAL.test(word) && !ARM.test(behind)) return undefined;
    const raw = source.slice(0, 2);
    return { type: 'text', raw, text: raw, escaped: false };
  },
};

const plain = (text) => text.replace(/[*_~]/g, '+');

/** Two or four asterisks may be marks in a script without spaces, if nothing suggests numbers. */
function plainProduct(chain) {
  return /[\p{N}=＝]/u.test(chain) || chain.split('*').length % 2 === 0 ? plain(chain) : chain;
}

/** @param {boolean} isBegun true if it may close a mark */
function canMark(parts, at, before, after, isBegun) {
  const run = parts[at], isOne = run.length === 1;
  if (run === '~') return false;
  if (isSpaceless(before) || isSpaceless(after)) return true;
  if (isOne && (before === '/' || (!before.trim() && /[/=]/.test(after)))) return false; // src/*, */5, x *= 2
  if (!after.trim()) return true;
  if (OPENS.test(before) && CLOSES.test(after)) return false; // (*)
  // *.py, (_, i)
  if (BEGINNING.test(parts[at - 1]) && (before === '' || !RUNS.test(before))) {
    return !isOne || !ENDS.test(after) || parts[at + 1].startsWith('..');
  }
  if (!isBegun && (ENDS.test(after) || CLOSES.test(after))) return false; // a.*, b.*
  if (ESCAPED.test(parts[at + 1])) return false;
  if (NUMBER.test(before) && NUMBER.test(after)) return false;
  if (before === after && PUNCTUATION.test(before)) return false; // "*"
  if (SYMBOL.test(before) && SYMBOL.test(after)) return false; // >_<
  if (before === '/') return WORD.test(after);
  return !OPERAND_BEFORE.test(parts[at - 1]) || !OPERAND_AFTER.test(parts[at + 1]) || isStress(parts, at);
}

/** As in pho**to**graphy; x**n**2 is a power. */
function isStress(parts, at) {
  return parts[at] === '**' && parts[at + 2] === '**' && /\p{L}{2}$/u.test(parts[at - 1])
    && /^\p{L}{2,}$/u.test(parts[at + 1]) && !/^\p{N}/u.test(parts[at + 3]);
}
