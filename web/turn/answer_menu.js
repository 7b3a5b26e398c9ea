/** The menu of an answer: further actions, and its figures. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { openCard } from '../common/card.js';
import { formatDuration, formatRate } from '../common/format.js';
import { icon, iconButton } from '../common/icon.js';
import { t } from '../i18n/i18n.js';
import { copyText } from '../markdown/clipboard.js';
import { openTable } from '../table/opener.js';
import { canReadAloud, isReadingAloud, readAloud, stopReading } from './speech.js';

/**
 * @typedef {{newTokens?: number, promptTokens?: number, decodeTokS?: number, prefillTokS?: number, firstMs?: number|null,
 *   context?: number|null}} Figures of an answer, as far as they are known; `context`: the number of tokens that the model can
 *   read
 */

/**
 * A button that opens the menu.
 * @param {{markdown: () => string, plain: () => string, figures: () => Figures, onContinue: () => (() => void)|null}} answer
 *   `onContinue`: the action that continues it, null if it cannot be continued
 */
export function answerMenu(answer) {
  return iconButton('ellipsis', t('answers.more'), ({ currentTarget }) => open(currentTarget, answer), { opens: 'dialog' });
}

/** @param {HTMLElement} opener @param {Parameters<typeof answerMenu>[0]} answer */
function open(opener, { markdown, plain, figures, onContinue }) {
  const item = (name, words, run) => html`
    <button class="menu-item" type="button" @click=${run}>${icon(name)}<span>${words}</span></button>`;
  const closing = (run) => () => {
    run();
    close();
  };
  const copy = ({ currentTarget }) => copyText(markdown, currentTarget.querySelector('span'), t('answers.copyMarkdown'));
  const goOn = onContinue();
  const aloud = isReadingAloud() ? item('square', t('answers.stopReading'), closing(stopReading))
    : canReadAloud() ? item('volume-2', t('answers.readAloud'), closing(() => readAloud(plain()))) : nothing;
  const rows = rowsOf(figures());
  const content = html`
    <div class="menu-items">${goOn ? item('play', t('answers.continue'), closing(goOn)) : nothing}${
      item('file-text', t('answers.copyMarkdown'), copy)}${
      item('table', t('table.title'), closing(() => openTable(t('table.answer'), plain())))}${aloud}</div>
    ${rows.length ? html`<dl class="menu-figures">${rows.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>` : nothing}`;
  const close = openCard(opener, { label: t('answers.more'), className: 'answer-menu', content, focus: 'button' });
}

/** @param {Figures} figures */
function rowsOf({ newTokens, promptTokens, decodeTokS, prefillTokS, firstMs, context }) {
  const rows = /** @type {[string, string][]} */ ([]);
  if (newTokens) rows.push([t('answers.written'), t('answers.tokens', { count: newTokens })]);
  if (decodeTokS) rows.push([t('answers.speed'), formatRate(decodeTokS)]);
  if (firstMs) rows.push([t('answers.first'), formatDuration(firstMs)]);
  if (promptTokens) rows.push([t('answers.read'), t('answers.tokens', { count: promptTokens })]);
  if (prefillTokS) rows.push([t('answers.readSpeed'), formatRate(prefillTokS)]);
  if (promptTokens && newTokens && context) {
    rows.push([t('answers.context'), t('answers.usedOf', { used: promptTokens + newTokens, all: context })]);
  }
  return rows;
}
