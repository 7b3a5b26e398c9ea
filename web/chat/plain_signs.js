/**
 * Signs that look like Markdown's marks and are none: 5*4*3, x**2, 100~200, __init__, *.py, (_). In doubt a sign is shown:
 * an asterisk too many can be read past, a product that became one number cannot. And marks beside a script without spaces
 * between words, which Markdown's rules take for none.
 */
const RUNS = /(\*+|_+|~+)/;
const NAMES = /(?<![\p{L}\p{N}_])__(?:[a-z0-9]+(?:_[a-z0-9]+)*|[A-Z0-9]+(?:_[A-Z0-9]+)*)__(?![\p{L}\p{N}_])/gu; // __init__
const FACES = /(?<=^|[\s([{"'])(?:\*[^\p{L}\p{N}\s*]+\*|_[^\p{L}\p{N}\s_]+_)(?=$|[\s)\]}"',;:.?!])/gu; // *.*, *_*
const CHAINS = /(?<![^\s\p{P}]|\*)[^\s\p{P}*]+(?:\*[^\s\p{P}*]+)+/gu; // 单价*数量*2
const SPACELESS = /[\p{scx=Hani}\p{scx=Hira}\p{scx=Kana}\p{scx=Hang}\p{scx=Bopo}\p{scx=Thai}\p{scx=Laoo}\p{scx=Khmr}\p{scx=Mymr}\uff01-\uffee]/u;
const WORD = /[\p{L}\p{N}\p{M}]/u;
const NUMBER = /[\p{N}\p{Sc}]/u;
const OPERAND_BEFORE = /[\p{L}\p{N}\p{M}\p{Sc})\]}%°′″]$|(?:[\p{N})]|(?<!\p{L})\p{L})[!.'’]$/u; // the latter: 5!, 5., f'
const OPERAND_AFTER = /^[\p{L}\p{N}\p{Sc}([{√∞]|^[-+−.]\p{N}/u;
const OPENS = /[([{<“‘«„]/;
const ENDS = /[)\]},;:.?!]/;
const CLOSES = /[)\]}>”’»]/;
const SYMBOL = /[\p{S}\-;]/u;
const PUNCTUATION = /[\p{P}\p{S}]/u;
const SPACE = /\s/;

/**
 * For marked's `emStrongMask`: the same text, in which such signs are no marks, and a mark beside a script without spaces
 * stands between letters.
 * @param {string} text @returns {string} as long as the text
 */
export function maskSigns(text) {
  const rest = text.replace(NAMES, plain).replace(FACES, plain).replace(CHAINS, plainProduct);
  const parts = rest.split(RUNS); // text, run, text, ...
  const masked = [...parts];
  let open = '', isWord = true; // what may have begun something, and whether what follows is one word so far
  for (let at = 1; at < parts.length; at += 2) {
    const run = parts[at], before = parts[at - 1].at(-1) ?? (at > 1 ? parts[at - 2][0] : '');
    const after = parts[at + 1][0] ?? parts[at + 2]?.[0] ?? '';
    isWord &&= !SPACE.test(parts[at - 1]);
    const isEnd = run === open && before.trim() !== '';
    const isInWord = isEnd && !NUMBER.test(after) && (isWord || run.length > 1); // **N**atural, **model**s
    const isMark = isInWord || canMark(parts, at, before, after);
    if (isMark) [open, isWord] = [isEnd || !after.trim() ? '' : run, true];
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

const plain = (text) => text.replace(/[*_~]/g, '+');

/** Two asterisks, or four, may be marks in a script without spaces, if nothing tells of numbers. */
function plainProduct(chain) {
  return /[\p{N}=＝]/u.test(chain) || chain.split('*').length % 2 === 0 ? plain(chain) : chain;
}

function canMark(parts, at, before, after) {
  const run = parts[at], isOne = run.length === 1;
  if (run === '~') return false;
  if (!after.trim() || isSpaceless(before) || isSpaceless(after)) return true;
  if (OPENS.test(before) && CLOSES.test(after)) return false; // (*)
  // *.py, (_, i)
  if (!before.trim() || OPENS.test(before)) return !isOne || !ENDS.test(after) || parts[at + 1].startsWith('..');
  if (NUMBER.test(before) && NUMBER.test(after)) return false;
  if (before === after && PUNCTUATION.test(before)) return false; // "*"
  if (SYMBOL.test(before) && SYMBOL.test(after)) return false; // >_<
  if (before === '/') return !isOne && WORD.test(after);
  return !OPERAND_BEFORE.test(parts[at - 1]) || !OPERAND_AFTER.test(parts[at + 1]) || isStress(parts, at);
}

/** As in pho**to**graphy; x**n**2 is a power. */
function isStress(parts, at) {
  return parts[at] === '**' && parts[at + 2] === '**' && /\p{L}{2}$/u.test(parts[at - 1])
    && /^\p{L}{2,}$/u.test(parts[at + 1]) && !/^\p{N}/u.test(parts[at + 3]);
}
