/**
 * The worker that highlights code: however long a grammar takes for what a model writes, the page stays usable. It says
 * 'ready', or null if a grammar could not be fetched. Then it answers a message {language, text, from} with runs of colours,
 * [colour, length], of the text behind `from`; the text before it is parsed because a comment or a string may have begun there.
 * null: the grammar failed.
 */
import hljs from '../vendor/highlight/core.min.js';
import { GRAMMARS } from './code_languages.js';

const COLOURS = {
  keyword: ['keyword', 'literal', 'selector-tag', 'template-tag', 'name', 'meta-keyword'],
  string: ['string', 'regexp', 'char', 'link', 'symbol', 'selector-attr', 'selector-pseudo'],
  number: ['number', 'bullet'],
  comment: ['comment', 'quote', 'doctag'],
  title: ['title', 'section', 'function'],
  type: ['type', 'built_in', 'class'],
  attribute: ['attr', 'attribute', 'variable', 'template-variable', 'property', 'selector-id', 'selector-class'],
  meta: ['meta'],
  added: ['addition'],
  removed: ['deletion'],
  '': ['subst', 'params', 'operator', 'punctuation', 'tag'],
};
const COLOUR_OF = new Map(Object.entries(COLOURS).flatMap(([colour, scopes]) => scopes.map((scope) => [scope, colour])));
const PIECES = /<span class="(?:hljs-)?([\w-]+)(?: [^"]*)?">|(<\/span>)|&(?:amp|lt|gt|quot|#x27);|[^<&]+/g;

addEventListener('message', ({ data: { language, text, from } }) => {
  try {
    postMessage(runs(hljs.highlight(text, { language, ignoreIllegals: true }).value, from));
  } catch {
    postMessage(null);
  }
});

Promise.all(GRAMMARS.map(async (name) => {
  const grammar = `../vendor/highlight/${name}.min.js`;
  hljs.registerLanguage(name, (await import(grammar)).default);
})).then(() => postMessage('ready'), () => postMessage(null));

/** @returns {[string, number][]} the runs of highlight.js's HTML, behind its first `from` characters */
function runs(html, from) {
  const found = /** @type {[string, number][]} */ ([]);
  const open = [''];
  let at = 0;
  for (const [piece, scope, end] of html.matchAll(PIECES)) {
    if (scope) open.push(COLOUR_OF.get(scope) ?? open[open.length - 1]);
    else if (end) open.pop();
    else {
      const length = piece[0] === '&' ? 1 : piece.length;
      const rest = Math.min(length, at + length - from);
      at += length;
      const last = found.at(-1);
      if (rest > 0 && last?.[0] === open[open.length - 1]) last[1] += rest;
      else if (rest > 0) found.push([open[open.length - 1], rest]);
    }
  }
  return found;
}
