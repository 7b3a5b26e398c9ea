/** The model that the page runs: the site's, or one that the user brought. The choice is remembered. */
import { local, session } from '../common/web_storage.js';

const KEY = 'sonata.model';
const AGREED = 'sonata.agreed-model'; // for this tab: the link asks again if it is opened elsewhere

/** @returns {string|null} the sha256 of a kept model (model_store.js); null: the site's */
export function chosenModel() {
  return local.getItem(KEY);
}

/** @param {string|null} sha256 */
export function rememberModel(sha256) {
  if (sha256) local.setItem(KEY, sha256);
  else local.removeItem(KEY);
}

/** True if the user allowed in this tab to open a model from this address. @param {string} url */
export function isAgreedModel(url) {
  return session.getItem(AGREED) === url;
}

/** @param {string} url */
export function agreeToModel(url) {
  session.setItem(AGREED, url);
}
