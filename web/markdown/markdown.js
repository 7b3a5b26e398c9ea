/**
 * Markdown of the model -> safe DOM. HTML in the text is shown as text, images become links. DOMPurify then drops whatever is
 * not on the short list below. Elements that rich_blocks.js extends are marked: code by its language, formulas, tasks, images.
 */
import { formulaSyntax } from './formula_syntax.js';
import { plainBlocks } from './plain_blocks.js';
import { isSpaceless, maskSigns, plainBackslash } from './plain_signs.js';
import { Lexer, Marked, Tokenizer } from '../vendor/marked.esm.js';
import DOMPurify from '../vendor/purify.es.mjs';

const ALLOWED = {
  ALLOWED_TAGS: [
    'a', 'blockquote', 'br', 'code', 'del', 'em', 'h3', 'h4', 'h5', 'h6', 'hr', 'li', 'ol', 'p', 'pre', 'strong',
    'span', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul',
  ],
  ALLOWED_ATTR: ['align', 'data-formula', 'data-image', 'data-language', 'data-task', 'href', 'start', 'title', 'value'],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ADD_URI_SAFE_ATTR: ['align', 'data-formula', 'data-image', 'data-language', 'data-task', 'start', 'value'], // the rule above is not for their values
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
};

const WEB = /^https?:\/\//i;
const ADDRESS = /^(?:https?:|mailto:|#)/i; // f[0](x) and f[0](std::x) are not links
const BREAK = /^<br\s*\/?>$/i;
const MARKS = /^(?:\*+|~+)/;
const LANGUAGE = /^[\p{L}\d+#.-]{1,24}/u; // the text behind a code fence
const escapes = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escape = (text) => text.replace(/[&<>"]/g, (char) => escapes[char]);

const ENTITIES = /(&(?:#\d{1,7}|#x[\da-f]{1,6}|\w+);)/i;
const entities = /** @type {Map<string, boolean>} */ (new Map());

/** In "&notes;" a browser would take the beginning for an entity. @param {string} written as in ENTITIES */
function isEntity(written) {
  if (!entities.has(written)) {
    const read = DOMPurify.sanitize(written, { RETURN_DOM_FRAGMENT: true }).textContent ?? '';
    entities.set(written, read === ';' || !read.endsWith(';'));
  }
  return entities.get(written);
}

const FIRST_LEVEL = 3; // the chat is h1, each message h2
const LAST_LEVEL = 6;
let above = /** @type {number[]} */ ([]); // of the current rendering: see `renderBlocks`

/**
 * The level on the page of a heading with the given number of `#`: no level is skipped, however the model numbers its
 * headings.
 */
function levelOf(depth) {
  while (above.length && above[above.length - 1] >= depth) above.pop();
  above.push(depth);
  return Math.min(FIRST_LEVEL + above.length - 1, LAST_LEVEL);
}

let isInCell = false; // the current rendering is inside a cell, and not alone

/**
 * marked's rule for emphasis or deleted text, except that signs which are not marks stay; a script without spaces counts as a
 * space.
 * @param {'emStrong'|'del'} name @returns {(this: any, source: string, masked: string, before?: string) => any}
 */
function markRule(name) {
  return function begins(source, masked, before = '') {
    const [sign] = source, run = MARKS.exec(source)?.[0].length ?? 0;
    if (masked.at(-source.length) !== sign) return undefined;
    const isBeside = run > 0 && (isSpaceless(before) || isSpaceless(source[run] ?? ''));
    const rule = /** @type {any} */ (Tokenizer.prototype[name]);
    return isBeside ? rule.call(this, source, masked, ' ') : false; // false: marked decides
  };
}

const marked = new Marked({
  gfm: true,
  breaks: true,
  hooks: { emStrongMask: maskSigns },
  tokenizer: {
    emStrong: markRule('emStrong'),
    del: markRule('del'),
    ...plainBlocks,
  },
  renderer: {
    text(/** @type {any} */ { text, tokens, escaped }) {
      if (tokens || escaped) return false;
      return text.split(ENTITIES).map((part, at) => (at % 2 && isEntity(part) ? part : escape(part))).join('');
    },
    html({ text, block }) {
      if (isInCell && BREAK.test(text)) return '<br>';
      return block ? `<p>${escape(text.trim()).replaceAll('\n', '<br>')}</p>` : escape(text);
    },
    listitem(/** @type {any} */ { tokens, value }) {
      return value === undefined ? false : `<li value="${value}">${this.parser.parse(tokens)}</li>\n`;
    },
    tablecell({ tokens, header, align }) {
      isInCell = tokens.length > 1;
      const name = header ? 'th' : 'td', words = this.parser.parseInline(tokens);
      isInCell = false;
      return `<${name}${align ? ` align="${align}"` : ''}>${words}</${name}>\n`;
    },
    link: ({ href, raw }) => (ADDRESS.test(href) ? false : escape(raw)),
    def: ({ raw }) => `<p>${escape(raw.trim())}</p>\n`,
    image({ text, href }) {
      if (!WEB.test(href)) return escape(`[${text || href}]`);
      return `<a data-image="yes" href="${escape(href)}">${escape(text)}</a>`;
    },
    checkbox: ({ checked }) => `<span data-task="${checked ? 'done' : 'open'}"></span>`,
    heading({ tokens, depth }) {
      const level = levelOf(depth);
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>\n`;
    },
    code: ({ text, lang }) => `<pre data-language="${escape(LANGUAGE.exec(lang ?? '')?.[0] ?? '')}"><code>${escape(text)}</code></pre>\n`,
  },
});
marked.use({ extensions: [...formulaSyntax(escape), plainBackslash] });

DOMPurify.addHook('afterSanitizeAttributes', (node) => {
  if (node.tagName !== 'A') return;
  node.setAttribute('target', '_blank');
  node.setAttribute('rel', 'noopener noreferrer nofollow');
});

// marked's time for the inside of a paragraph grows with its length times its delimiters, 6 ns each: a paragraph that would
// take over 25 ms is plain text. A real paragraph of 2,000 characters with 200 delimiters takes a tenth of that.
const MOST_WORK = 4e6;
const DELIMITERS = /[*_~`[\]<>()\\!&:@$]|www|http/g;
const MOST_NESTED = 20; // blocks within blocks; deeper ones are text

/** marked's lexer, with bounds: a text whose inside would take too long, or that nests too deeply, stays plain. */
class BoundedLexer extends Lexer {
  #depth = 0;

  inlineTokens(source, tokens = []) {
    if (source.length * (source.match(DELIMITERS)?.length ?? 0) <= MOST_WORK) return super.inlineTokens(source, tokens);
    tokens.push(plain(source));
    return tokens;
  }

  /** @returns {any} */
  blockTokens(source, tokens = /** @type {any[]} */ ([]), isClipped = false) {
    if (this.#depth === MOST_NESTED) {
      tokens.push({ type: 'paragraph', raw: source, text: source, tokens: [plain(source)] });
      return tokens;
    }
    this.#depth += 1;
    try {
      return super.blockTokens(source, tokens, isClipped);
    } finally {
      this.#depth -= 1;
    }
  }
}

function plain(text) {
  return { type: 'text', raw: text, text, escaped: false };
}

/** @returns {any[]} the blocks of the text; their `raw` strings concatenate to it */
export function lexBlocks(markdown) {
  return new BoundedLexer(marked.defaults).lex(markdown);
}

/**
 * @param {any[]} blocks of lexBlocks
 * @param {number[]} [headings] the number of `#` of each heading above the blocks, outermost first. Changed to the headings
 *   above the text that follows
 * @returns {DocumentFragment}
 */
export function renderBlocks(blocks, headings = []) {
  above = headings;
  return DOMPurify.sanitize(marked.parser(blocks), { ...ALLOWED, RETURN_DOM_FRAGMENT: true });
}
