/**
 * Prints, as JSON, the texts that stand in the page's JavaScript instead of the catalogue: [{path, line, text}].
 * node --expose-internals texts_in_code.cjs WEB: the folder of the page. The parser is the one that is part of Node.
 *
 * A text is what looks like a sentence ("Load it", "not used yet."), and any words at a place from which people read: what is
 * in a button, an element, an attribute, a notice. An Error whose message begins in lower case is for developers. The English
 * of a message() stands beside its code (docs/develop/errors.md).
 */
const { readdirSync, readFileSync } = require('node:fs');
const { join, relative } = require('node:path');

const { parse } = require('internal/deps/acorn/acorn/dist/acorn');

const [, , web] = process.argv;

const SENTENCE = /(^|[\s“"(])[A-Z][\w’'-]*,? [a-zA-Z“{]|[a-z]{2,} [a-z{][^<>=;]*[.!?…:]$/;
const WORDS = /[A-Za-z]{2,}/;
const NAMES = /\{\}|\b(Sonata|WebGPU|HTTP|tok\/s|[kMGT]?B(\/s)?|min|ms)\b/g; // the same in each language
const ATTRIBUTES = /^(aria-label|aria-description|title|placeholder|alt)$/;
/** Which arguments of a function people read; a button's, for example, is the first. */
const READ = {
  element: [2], button: [0], iconButton: [1], copyButton: [0], labelled: [0], hinted: [1, 2], area: [2, 3, 4], number: [3, 4], SectionForm: [0],
  userError: [1], deleteAction: [0, 1], addNote: [0], facts: [0, 1, 2, 3, 4, 5], announce: [0], named: [0], choice: [0, 1], item: [1],
  append: [0, 1, 2, 3], prepend: [0, 1], replaceChildren: [0, 1, 2, 3], before: [0], after: [0], say: [0, 1], entry: [0], turn: [0],
};
const PROPERTIES = /^(title|label|placeholder|about|yes|no|question|hint|axis|empty|alt|textContent|ariaLabel|searchLabel|filterLabel)$/;
const SILENT = /^(t|message|phase|info|warn|error|debug|querySelector|querySelectorAll|closest|matches|add|loadStyles|loadScript|RegExp|match|test|CSS)$/;

const found = [];
for (const path of scripts(web)) {
  const source = readFileSync(path, 'utf-8');
  const tree = parse(source, { ecmaVersion: 'latest', sourceType: 'module', locations: true, allowHashBang: true });
  const report = (node, text) => {
    found.push({ path: relative(web, path).replaceAll('\\', '/'), line: node.loc.start.line, text });
  };
  visit(tree, [], (node, above) => {
    if (node.type === 'TaggedTemplateExpression' && node.tag.name === 'html') {
      for (const text of inMarkup(plain(node.quasi))) report(node, text);
      return;
    }
    const text = plain(node);
    const isMarkup = above.at(-1)?.type === 'TaggedTemplateExpression';
    if (text === null || isMarkup || /^(Import|Export.*From|ExportAll)/.test(above.at(-1)?.type ?? '')) return;
    if (!WORDS.test(text.replace(NAMES, '')) || isQuiet(node, above, text)) return;
    if (SENTENCE.test(text) || isRead(node, above)) report(node, text);
  });
}
console.log(JSON.stringify(found));

/** Each node with those above it, the root first. */
function visit(node, above, see) {
  see(node, above);
  const below = [...above, node];
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) {
      if (child && typeof child.type === 'string') visit(child, below, see);
    }
  }
}

function scripts(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === 'i18n' || entry.name === 'vendor' ? [] : scripts(path);
    return entry.name.endsWith('.js') ? [path] : [];
  });
}

/** The literal's text, with {} where a value is put in; null: it is none. */
function plain(node) {
  if (node.type === 'TemplateLiteral') return node.quasis.map(({ value }) => value.cooked).join('{}');
  return node.type === 'Literal' && typeof node.value === 'string' ? node.value : null;
}

/** Words between the tags of a template, and those of its attributes that people read. */
function inMarkup(markup) {
  const attributes = [...markup.matchAll(/\s(aria-label|title|placeholder|alt)="([^"]*)"/g)].map(([, , value]) => value);
  return [...attributes, ...markup.replace(/<[^>]*>/g, '\n').split('\n')].map((text) => text.trim()).filter((text) => WORDS.test(text.replace(NAMES, '')));
}

/** The expression of which the node is the whole value, or one of the possible values; and what is above that. */
function whole(node, above) {
  const parent = above.at(-1);
  const isPart = parent.type === 'TemplateLiteral' || parent.type === 'LogicalExpression'
    || (parent.type === 'ConditionalExpression' && parent.test !== node) || (parent.type === 'BinaryExpression' && parent.operator === '+');
  return isPart ? whole(parent, above.slice(0, -1)) : { value: node, parent };
}

function isCall({ type }) {
  return type === 'CallExpression' || type === 'NewExpression';
}

/** @returns {string} of the function that is called: "say" of notices.say() */
function nameOf({ callee }) {
  return callee.name ?? callee.property?.name ?? '';
}

function isQuiet(node, above, text) {
  const { parent } = whole(node, above);
  if (!isCall(parent)) return false;
  const name = nameOf(parent);
  return SILENT.test(name) || (/Error$|^reject$|^fail$/.test(name) && /^[a-z]/.test(text) && name !== 'userError');
}

function isRead(node, above) {
  const { value, parent } = whole(node, above);
  if (isCall(parent)) {
    const at = parent.arguments.indexOf(value);
    const name = nameOf(parent);
    if (name === 'setAttribute') return at === 1 && ATTRIBUTES.test(parent.arguments[0].value ?? '');
    if (name === 'say' && at === 0 && parent.arguments.length > 1) return false; // the kind of a notice
    return READ[name]?.includes(at) ?? false;
  }
  if (parent.type === 'Property') return parent.value === value && PROPERTIES.test(parent.key.name ?? parent.key.value);
  return parent.type === 'AssignmentExpression' && parent.right === value && PROPERTIES.test(parent.left.property?.name ?? '');
}
