/**
 * Converts the conversation to the text that a reader sees, for other programs: formulas as their TeX, without the page's own
 * words and buttons.
 */
import { element } from '../common/dom.js';

const NOT_READ = '.code-head, .python-run, .answer-actions, .question-actions, .variants, .visually-hidden, button, .icon, [hidden]';
const ITEM = 'li:not(.task, [data-part])'; // whose number or bullet is selected, too: a browser omits it
const OTHERWISE = `${NOT_READ}, [data-formula], input, ${ITEM}`;

/**
 * @param {ParentNode} copy of a part of the page; is changed
 * @param {(tex: string, isBlock: boolean) => string} [sourceOf] a formula
 */
export function asRead(copy, sourceOf = (tex, isBlock) => (isBlock ? `$$${tex}$$` : `$${tex}$`)) {
  for (const node of copy.querySelectorAll(NOT_READ)) node.remove();
  for (const place of /** @type {NodeListOf<HTMLElement>} */ (copy.querySelectorAll('[data-formula]'))) {
    const tex = place.querySelector('annotation')?.textContent?.trim();
    if (tex) place.textContent = sourceOf(tex, place.dataset.formula === 'block');
  }
  const comments = document.createNodeIterator(copy, NodeFilter.SHOW_COMMENT); // of templates
  for (let comment = comments.nextNode(); comment; comment = comments.nextNode()) /** @type {Comment} */ (comment).remove();
  for (const box of copy.querySelectorAll('input')) box.replaceWith(box.checked ? '[x]' : '[ ]');
}

/** Copying and dragging a selection of the conversation gives the text as a reader sees it. @param {HTMLElement} log */
export function copyAsRead(log) {
  document.addEventListener('copy', (event) => {
    if (give(event.clipboardData, event.target)) event.preventDefault();
  });
  document.addEventListener('dragstart', (event) => give(event.dataTransfer, event.target));

  /** @returns {boolean} true if it was necessary */
  function give(transfer, target) {
    const selection = getSelection();
    if (!selection?.rangeCount || selection.isCollapsed || !(target instanceof Node)) return false;
    const range = selection.getRangeAt(0);
    if (!range.intersectsNode(log) || !range.intersectsNode(target)) return false;
    const copy = copyOf(range.cloneRange(), log);
    if (!copy.querySelector(OTHERWISE)) return false;
    asRead(copy);
    const items = /** @type {NodeListOf<HTMLLIElement>} */ (copy.querySelectorAll(ITEM));
    for (const part of copy.querySelectorAll('[data-part]')) part.removeAttribute('data-part');
    transfer.setData('text/html', copy.innerHTML);
    for (const item of items) mark(item);
    log.append(copy);
    transfer.setData('text/plain', copy.innerText.replace(/^\n+/, '').trimEnd());
    copy.remove();
    return true;
  }
}

/** @param {HTMLLIElement} item */
function mark(item) {
  let depth = 0;
  for (let around = item.parentElement?.closest('li'); around; around = around.parentElement?.closest('li')) depth += 1;
  const sign = item.parentElement?.nodeName === 'OL' ? `${item.value}. ` : '- ';
  const words = item.firstChild instanceof HTMLParagraphElement ? item.firstChild : item;
  words.prepend(element('span', 'list-mark', '  '.repeat(depth) + sign));
}

/**
 * The part of a range that is in the log, with its enclosing elements, and whole formulas. @param {Range} range @param
 * {HTMLElement} log
 */
function copyOf(range, log) {
  if (!log.contains(range.startContainer)) range.setStart(log, 0);
  if (!log.contains(range.endContainer)) range.setEnd(log, log.childNodes.length);
  const [first, last] = [range.startContainer, range.endContainer].map(formulaAround);
  if (first) range.setStartBefore(first);
  if (last) range.setEndAfter(last);
  const parts = partsOf(range);
  for (const item of parts) item.dataset.part = 'yes';
  let inner = /** @type {Node} */ (range.cloneContents());
  for (let around = elementOf(range.commonAncestorContainer); around && around !== log; around = around.parentElement) {
    const shell = /** @type {Element} */ (around.cloneNode(false));
    shell.append(inner);
    inner = shell;
  }
  for (const item of parts) delete item.dataset.part;
  const copy = element('div', 'copied');
  copy.append(inner);
  return copy;
}

/** The list items in which a range begins after their start, or which it does not leave. @param {Range} range */
function partsOf({ startContainer, startOffset, endContainer }) {
  const parts = /** @type {HTMLElement[]} */ ([]), last = elementOf(endContainer)?.closest('li');
  for (let item = elementOf(startContainer)?.closest('li'); item; item = item.parentElement?.closest('li')) {
    const before = document.createRange();
    before.setStart(item, 0);
    before.setEnd(startContainer, startOffset);
    if (item === last || before.toString().trim()) parts.push(item);
  }
  return parts;
}

const elementOf = (node) => (node instanceof Element ? node : node.parentElement);
const formulaAround = (node) => elementOf(node)?.closest('[data-formula]');
