/** "2 / 3" between two arrows: which of several variants of a message or an answer is shown. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { iconButton } from '../common/icon.js';
import { t } from '../i18n/i18n.js';

/**
 * A single variant has no switch.
 * @param {import('./question_view.js').Place} place of the shown one; its siblings are the numbers of all, the oldest first
 * @param {(number: number) => void} onChoose
 */
export function variantSwitch({ number, siblings }, onChoose) {
  if (number === null || siblings.length < 2) return nothing;
  const at = siblings.indexOf(number);
  const arrow = (name, label, to) => iconButton(name, label, () => onChoose(siblings[to]), { isDisabled: siblings[to] === undefined });
  return html`<span class="variants" role="group" aria-label=${t('answers.variants')}>${
    arrow('chevron-left', t('answers.earlier'), at - 1)}<span class="variants-place">${t('answers.variant', { at: at + 1, of: siblings.length })}</span>${
    arrow('chevron-right', t('answers.later'), at + 1)}</span>`;
}
