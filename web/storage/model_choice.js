/** Which model the page runs: that of the site, or one that the user brought. The choice is remembered. */
import { local, session } from '../common/web_storage.js';

const KEY = 'sonata.model';
const AGREED = 'sonata.agreed-model'; // of this tab: whoever opens the link once more, elsewhere, is asked again

/** @returns {string|null} the sha256 of a model that is kept here (model_store.js); null: the site's */
export function chosenModel() {
  return local.getItem(KEY);
}

/** @param {string|null} sha256 */
export function rememberModel(sha256) {
  if (sha256) local.setItem(KEY, sha256);
  else local.removeItem(KEY);
}

/** Whether the user said in this tab that a model from this address may be opened. @param {string} url */
export function isAgreedModel(url) {
  return session.getItem(AGREED) === url;
}

/** @param {string} url */
export function agreeToModel(url) {
  session.setItem(AGREED, url);
}
