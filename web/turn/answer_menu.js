/** The menu of an answer: further actions, and its figures. */
import { openCard } from '../common/card.js';
import { element } from '../common/dom.js';
import { formatDuration, formatRate } from '../common/format.js';
import { icon } from '../common/icon.js';
import { t } from '../i18n/i18n.js';
import { copyText } from '../markdown/clipboard.js';
import { canReadAloud, isReadingAloud, readAloud, stopReading } from './speech.js';
import { iconButton } from './variant_switch.js';

/**
 * @typedef {{newTokens?: number, promptTokens?: number, decodeTokS?: number, prefillTokS?: number, firstMs?: number|null,
 *   context?: number|null}} Figures of an answer, as far as they are known; `context`: the number of tokens that the model can
 *   read
 */

/**
 * @param {{markdown: () => string, plain: () => string, figures: () => Figures, onContinue: () => (() => void)|null}} answer
 *   `onContinue`: the action that continues it, null if it cannot be continued
 * @returns {HTMLButtonElement}
 */
export function answerMenu({ markdown, plain, figures, onContinue }) {
  const opener = iconButton('ellipsis', t('answers.more'), () => {
    const items = element('div', 'menu-items');
    const item = (name, words, run, keepsOpen = false) => {
      const made = element('button', 'menu-item');
      made.type = 'button';
      const label = element('span', '', words);
      made.append(icon(name), label);
      made.addEventListener('click', () => {
        run(label);
        if (!keepsOpen) close();
      });
      items.append(made);
    };
    const goOn = onContinue();
    if (goOn) item('play', t('answers.continue'), goOn);
    item('file-text', t('answers.copyMarkdown'), (label) => copyText(markdown, label, t('answers.copyMarkdown')), true);
    if (isReadingAloud()) item('square', t('answers.stopReading'), stopReading);
    else if (canReadAloud()) item('volume-2', t('answers.readAloud'), () => readAloud(plain()));
    const rows = rowsOf(figures());
    const content = rows ? [items, rows] : [items];
    const close = openCard(opener, { label: t('answers.more'), className: 'answer-menu', content, focus: items.querySelector('button') ?? undefined });
  });
  opener.setAttribute('aria-haspopup', 'dialog');
  return opener;
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
  if (!rows.length) return null;
  const list = element('dl', 'menu-figures');
  for (const [name, value] of rows) list.append(element('dt', '', name), element('dd', '', value));
  return list;
}
