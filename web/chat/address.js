/**
 * The conversation and the panel that the address of the page names, beside its options (page/options.js).
 *
 *   #chat=ID&panel=learned/map
 */
const CHAT = 'chat';
const PANEL = 'panel';

/** @returns {string|null} the id of the conversation that the address names */
export function chatInAddress() {
  return parameters().get(CHAT) || null;
}

/** @returns {string|null} the panel that the address names, with its open part: "learned/map" */
export function panelInAddress() {
  return parameters().get(PANEL) || null;
}

/**
 * @param {string|null} id null: a chat that is not stored yet
 * @param {'push'|'replace'} how 'push' if the browser's Back button should lead to the current address
 */
export function showInAddress(id, how) {
  write(CHAT, id, how, null);
}

/**
 * @param {string|null} panel as `panelInAddress`; null: none is open
 * @param {'push'|'replace'} how as `showInAddress`
 */
export function showPanelInAddress(panel, how) {
  write(PANEL, panel, how, how === 'push' ? { openedPanel: true } : history.state);
}

/** True if Back closes the open panel: the page itself opened it just before. */
export function backClosesPanel() {
  return history.state?.openedPanel === true;
}

/**
 * @param {URL} url @param {'push'|'replace'} [how] @param {object|null} [state] A browser may refuse, as Safari does from the
 *   hundredth change within 30 seconds on; nothing else depends on it.
 */
export function changeAddress(url, how = 'replace', state = history.state) {
  try {
    if (how === 'push') history.pushState(state, '', url);
    else history.replaceState(state, '', url);
  } catch {
    // the address stays unchanged
  }
}

function parameters() {
  return new URLSearchParams(location.hash.slice(1));
}

function write(name, value, how, state) {
  const url = new URL(location.href);
  const hash = parameters();
  if (value) hash.set(name, value);
  else hash.delete(name);
  url.hash = hash.toString().replaceAll('%2F', '/');
  if (url.href === location.href) return;
  changeAddress(url, how, state);
}
