/**
 * A slim bar below the message box that shows how much of the context the last prompt took; a card lists its parts, and what
 * the model's memory holds.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
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
    render(html`${track(context)}<span>${share}</span>`, this.#button);
  }

  #open() {
    const context = this.#context;
    if (!context) return;
    const { total, free, leftOut, bytesPerToken } = context;
    const held = element('div', 'context-held');
    this.#memory().then((memory) => render(memoryRows(memory), held), () => held.remove()); // no model runs
    const content = html`
      <h2 class="context-title">${t('context.used', { used: total - free, total })}</h2>
      ${track(context)}
      <dl class="context-parts">${PARTS.filter((part) => context[part] > 0).map((name) => row(name, context[name]))}${row('free', free)}</dl>
      ${leftOut > 0 ? html`<p class="context-left-out">${t('context.leftOut', { count: leftOut })}</p>` : nothing}
      ${bytesPerToken > 0 ? html`<p class="context-cost">${t('context.cost', { tokens: MORE, size: formatBytes(MORE * bytesPerToken) })}</p>` : nothing}
      ${held}`;
    openCard(this.#button, { label: t('context.title'), className: 'context-card', content });
  }
}

function row(name, tokens) {
  return html`<dt class="context-${name}">${t(`context.${name}`)}</dt><dd>${t('answers.tokens', { count: tokens })}</dd>`;
}

/** @param {Memory} memory */
function memoryRows({ pages, total, limit, ...owners }) {
  const rows = OWNERS.flatMap((owner) => {
    const parts = owner in owners ? [['', owners[owner]]] : Object.entries(pages).map(([tier, held]) => [tier, held[owner]]);
    return parts.filter(([, bytes]) => bytes).map(([tier, bytes]) => {
      const words = tier && parts.length > 1 ? t('held.ofTier', { owner: t(`held.${owner}`), tier: t(`held.${tier}`) }) : t(`held.${owner}`);
      return html`<dt>${words}</dt><dd>${formatBytes(bytes)}</dd>`;
    });
  });
  const title = limit ? t('held.titleOf', { size: formatBytes(total), limit: formatBytes(limit) }) : t('held.title', { size: formatBytes(total) });
  return html`<h2 class="context-title">${title}</h2><dl class="context-owners">${rows}</dl>`;
}

/** @param {Context} context */
function track(context) {
  return html`<span class="context-track">${PARTS.map((name) => html`
    <span class="context-${name}" .style=${`inline-size: ${100 * context[name] / context.total}%`}></span>`)}</span>`;
}
