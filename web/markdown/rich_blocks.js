/**
 * Extends an answer's Markdown, once it is safe DOM (markdown.js): code with its language and a copy button, tables that scroll
 * by themselves, formulas, tasks with boxes, links that show their address. Only elements are made here, never HTML from text.
 */
import { iconNode } from '../common/icon.js';
import { element } from '../common/dom.js';
import { t } from '../i18n/i18n.js';
import { CodeFigure } from './code_figure.js';
import { showFormula } from './formulas.js';

const LISTS = new Set(['UL', 'OL', 'P', 'PRE', 'BLOCKQUOTE', 'FIGURE', 'TABLE']);

/**
 * @param {DocumentFragment} fragment
 * @param {CodeFigure[]} known figures that were drawn here before: a block that has grown is not created again
 * @param {() => void} onDraw called after something was drawn later
 * @returns {CodeFigure[]} the figures that are now in the fragment
 */
export function enrich(fragment, known, onDraw) {
  // A list or a table takes the direction of its first words; each block within it has its own (markdown.css).
  for (const block of fragment.children) /** @type {HTMLElement} */ (block).dir = 'auto';
  const left = [...known];
  const figures = [...fragment.querySelectorAll('pre')].map((pre) => {
    const written = pre.dataset.language ?? '', text = pre.textContent ?? '';
    const same = left.findIndex((figure) => figure.canBecome(written, text));
    const [figure] = same < 0 ? [new CodeFigure(written)] : left.splice(same, 1);
    figure.set(text);
    pre.replaceWith(figure.element);
    return figure;
  });
  for (const table of fragment.querySelectorAll('table')) scroll(table);
  for (const mark of fragment.querySelectorAll('[data-task]')) task(/** @type {HTMLElement} */ (mark));
  for (const link of fragment.querySelectorAll('a[href]')) tellAddress(/** @type {HTMLAnchorElement} */ (link));
  for (const place of /** @type {NodeListOf<HTMLElement>} */ (fragment.querySelectorAll('[data-formula]'))) {
    if (place.dataset.formula === 'block') group(place, t('answers.formula'));
    showFormula(place, onDraw);
  }
  return figures;
}

/** Puts a table into a box of its own, which scrolls sideways. */
function scroll(table) {
  const box = element('div', 'table-box');
  table.replaceWith(box);
  box.append(table);
  group(box, t('answers.table'));
}

/** An element that scrolls sideways must be reachable by keyboard. */
function group(node, label) {
  node.tabIndex = 0;
  node.setAttribute('role', 'group');
  node.setAttribute('aria-label', label);
}

/** Puts a box before the text of a task, and both into a label. It shows what the answer says, and cannot be clicked. */
function task(mark) {
  const box = Object.assign(element('input'), { type: 'checkbox', disabled: true });
  box.toggleAttribute('checked', mark.dataset.task === 'done');
  const label = element('label');
  const text = [];
  for (let next = mark.nextSibling; next && !LISTS.has(next.nodeName); next = next.nextSibling) text.push(next);
  mark.replaceWith(label);
  label.append(box, ' ', ...text);
  label.closest('li')?.classList.add('task');
}

/** Shows the address of a link, whatever its text says; an image becomes a link to it. */
function tellAddress(link) {
  link.title = link.href;
  if (!link.textContent?.trim() && !link.dataset.image) link.textContent = link.href;
  if (!link.dataset.image) return;
  link.className = 'image-link';
  const { host } = new URL(link.href);
  const words = link.textContent?.trim();
  link.replaceChildren(iconNode('image'), words ? t('answers.imageOf', { words, host }) : t('answers.image', { host }));
}
