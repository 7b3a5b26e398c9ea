/** Which model the page runs: that of the site, or one that the user brought. The choice is remembered. */
const KEY = 'sonata.model';
const AGREED = 'sonata.agreed-model'; // of this tab: whoever opens the link once more, elsewhere, is asked again

/** @returns {string|null} the sha256 of a model that is kept here (model_store.js); null: the site's */
export function chosenModel() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // a browser may forbid the page to store anything
  }
}

/** @param {string|null} sha256 */
export function rememberModel(sha256) {
  try {
    if (sha256) localStorage.setItem(KEY, sha256);
    else localStorage.removeItem(KEY);
  } catch { /* then not */ }
}

/** Whether the user said in this tab that a model from this address may be opened. @param {string} url */
export function isAgreedModel(url) {
  try {
    return sessionStorage.getItem(AGREED) === url;
  } catch {
    return false;
  }
}

/** @param {string} url */
export function agreeToModel(url) {
  try {
    sessionStorage.setItem(AGREED, url);
  } catch { /* then the next load asks again */ }
}
