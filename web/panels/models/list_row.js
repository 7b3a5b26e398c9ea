/** A row of the lists of models and adapters. */
import { html, nothing } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { askingButton } from '../../common/confirmation.js';

/**
 * @param {{title: string, about: string, inUse?: boolean, use?: (() => void)|null, save?: (() => void)|null, remove?: (() =>
 *   void)|null, more?: unknown}} what null: the action is not available; more: a template of another action
 */
export function listRow({ title, about, inUse = false, use = null, save = null, remove = null, more = nothing }) {
  const asked = { label: t('models.delete'), question: t('models.deleteAsked', { title }), yes: t('models.delete') };
  const state = inUse ? html`<span class="models-in-use">${t('models.inUse')}</span>` : use ? named(t('models.use'), title, use) : nothing;
  return html`
    <li><div class="models-words"><strong>${title}</strong><small>${about}</small></div><div class="models-row-actions">${state}${
      save ? named(t('models.save'), title, save) : nothing}${remove ? askingButton({ ...asked, run: remove }) : nothing}${more}</div></li>`;
}

/** A button that names its row for screen readers. @param {string} action @param {string} title @param {() => unknown} run */
export function named(action, title, run) {
  return html`<button type="button" class="quiet" aria-label=${`${action} ${title}`} @click=${run}>${action}</button>`;
}
