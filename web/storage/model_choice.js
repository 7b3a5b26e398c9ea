/** Which model the page runs: that of the site, or one that the user brought. The choice is remembered. */
const KEY = 'sonata.model';

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
