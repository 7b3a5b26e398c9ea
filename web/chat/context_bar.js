/**
 * A slim bar below the message box that shows how much of the context the last prompt took; a card lists its parts, and what
 * the model's memory holds.
 */
import { openCard } from '../common/card.js';
import { element } from '../common/dom.js';
import { formatBytes, formatShare } from '../common/format.js';
import { t } from '../i18n/i18n.js';

const PARTS = /** @type {const} */ (['system', 'memory', 'file', 'tools', 'turns']);
const OWNERS = /** @type {const} */ (['weights', 'adapters', 'scratch', 'conversations', 'kept', 'free']);
const MORE = 1000; // number of tokens for which the cost is shown

/**
 * @typedef {import('../protocol.js').Context} Context
 * @typedef {import('../protocol_calls.js').ModelMemory} Memory
 */

export class ContextBar {
  #button;
  #memory;
  #context = /** @type {Context|null} */ (null);

  /**
   * @param {HTMLButtonElement} button
   * @param {() => Promise<Memory>} memory
   */
  constructor(button, memory) {
    this.#button = button;
    this.#memory = memory;
    button.setAttribute('aria-haspopup', 'dialog');
    button.addEventListener('click', () => this.#open());
    this.show(null);
  }

  /** @param {Context|null} context null: no question was sent yet */
  show(context) {
    this.#context = context;
    this.#button.hidden = context === null;
    if (!context) return;
    const used = context.total - context.free;
    const share = formatShare(used / context.total);
    const words = t('context.used', { used, total: context.total });
    this.#button.title = words;
    this.#button.setAttribute('aria-label', `${share}: ${words}`);
    this.#button.replaceChildren(track(context), element('span', '', share));
  }

  #open() {
    const context = this.#context;
    if (!context) return;
    const { total, free, leftOut, bytesPerToken } = context;
    const list = element('dl', 'context-parts');
    for (const name of PARTS.filter((part) => context[part] > 0)) list.append(...row(name, context[name]));
    list.append(...row('free', free));
    const content = [element('h2', 'context-title', t('context.used', { used: total - free, total })), track(context), list];
    if (leftOut > 0) content.push(element('p', 'context-left-out', t('context.leftOut', { count: leftOut })));
    if (bytesPerToken > 0) content.push(element('p', 'context-cost', t('context.cost', { tokens: MORE, size: formatBytes(MORE * bytesPerToken) })));
    const held = element('div', 'context-held');
    content.push(held);
    this.#memory().then((memory) => held.replaceChildren(...memoryRows(memory)), () => held.remove()); // no model runs
    openCard(this.#button, { label: t('context.title'), className: 'context-card', content });
  }
}

function row(name, tokens) {
  const term = element('dt', `context-${name}`, t(`context.${name}`));
  return [term, element('dd', '', t('answers.tokens', { count: tokens }))];
}

/** @param {Memory} memory */
function memoryRows({ pages, total, limit, ...owners }) {
  const list = element('dl', 'context-owners');
  for (const owner of OWNERS) {
    const parts = owner in owners ? [['', owners[owner]]] : Object.entries(pages).map(([tier, held]) => [tier, held[owner]]);
    for (const [tier, bytes] of parts) {
      if (!bytes) continue;
      const words = tier && parts.length > 1 ? t('held.ofTier', { owner: t(`held.${owner}`), tier: t(`held.${tier}`) }) : t(`held.${owner}`);
      list.append(element('dt', '', words), element('dd', '', formatBytes(bytes)));
    }
  }
  const title = limit ? t('held.titleOf', { size: formatBytes(total), limit: formatBytes(limit) }) : t('held.title', { size: formatBytes(total) });
  return [element('h2', 'context-title', title), list];
}

/** @param {Context} context */
function track(context) {
  const made = element('span', 'context-track');
  for (const name of PARTS) {
    const part = element('span', `context-${name}`);
    part.style.inlineSize = `${100 * context[name] / context.total}%`;
    made.append(part);
  }
  return made;
}
