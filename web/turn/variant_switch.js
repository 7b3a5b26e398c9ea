/** "2 / 3" between two arrows: which of several variants of a message or an answer is shown. */
import { icon } from '../common/icon.js';
import { element } from '../common/dom.js';
import { t } from '../i18n/i18n.js';

class VariantSwitch {
  element = element('span', 'variants');

  /**
   * @param {number} number of the variant that is shown @param {number[]} siblings the numbers of all, oldest first
   * @param {(number: number) => void} onChoose
   */
  constructor(number, siblings, onChoose) {
    const at = siblings.indexOf(number);
    const arrow = (name, label, to) => {
      const made = iconButton(name, label, () => onChoose(siblings[to]));
      made.disabled = siblings[to] === undefined;
      return made;
    };
    const place = element('span', 'variants-place', t('answers.variant', { at: at + 1, of: siblings.length }));
    this.element.setAttribute('role', 'group');
    this.element.setAttribute('aria-label', t('answers.variants'));
    this.element.append(
      arrow('chevron-left', t('answers.earlier'), at - 1), place, arrow('chevron-right', t('answers.later'), at + 1),
    );
  }
}

/**
 * Show the switch in `root`, and keep it up to date; a single variant has none.
 * @param {HTMLElement} root @param {import('./question_view.js').Place} place @param {(number: number) => void} onChoose
 * @param {'first'|'last'} where in the root
 */
export function showVariants(root, { number, siblings }, onChoose, where) {
  const shown = root.querySelector('.variants'), now = String([number, ...siblings]);
  if (!siblings.length || (shown instanceof HTMLElement && shown.dataset.of === now)) return;
  shown?.remove();
  if (number === null || siblings.length < 2) return;
  const { element: made } = new VariantSwitch(number, siblings, onChoose);
  made.dataset.of = now;
  if (where === 'first') root.prepend(made);
  else root.append(made);
}

/** @param {string} name of the icon @param {string} label @param {() => unknown} run */
export function iconButton(name, label, run) {
  const made = element('button', 'action');
  made.type = 'button';
  made.title = label;
  made.setAttribute('aria-label', label);
  made.append(icon(name));
  made.addEventListener('click', run);
  return made;
}
