/** A row of the lists of models and adapters. */
import { t } from '../../i18n/i18n.js';
import { askingButton } from '../../common/confirmation.js';
import { button, element } from '../../common/dom.js';

/**
 * @param {{title: string, about: string, inUse?: boolean, use?: (() => void)|null, save?: (() => void)|null, remove?: (() =>
 *   void)|null}} what null: the action is not available
 */
export function listRow({ title, about, inUse = false, use = null, save = null, remove = null }) {
  const row = element('li');
  const words = element('div', 'models-words');
  words.append(element('strong', '', title), element('small', '', about));
  const actions = element('div', 'models-row-actions');
  if (inUse) actions.append(element('span', 'models-in-use', t('models.inUse')));
  else if (use) actions.append(named(button(t('models.use'), 'quiet', use), `${t('models.use')} ${title}`));
  if (save) actions.append(named(button(t('models.save'), 'quiet', save), `${t('models.save')} ${title}`));
  if (remove) actions.append(askingButton(t('models.delete'), () => t('models.deleteAsked', { title }), t('models.delete'), remove));
  row.append(words, actions);
  return row;
}

/** @template {HTMLElement} T @param {T} made @param {string} label for screen readers @returns {T} */
export function named(made, label) {
  made.setAttribute('aria-label', label);
  return made;
}
