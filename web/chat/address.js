/**
 * What the address of the page names beside whatever else it says (page/options.js): a conversation and a panel.
 *
 *   #chat=ID&panel=learned/map
 */
const CHAT = 'chat';
const PANEL = 'panel';

/** @returns {string|null} the id of the conversation that the address names */
export function chatInAddress() {
  return parameters().get(CHAT) || null;
}

/** @returns {string|null} the panel that the address names, with the part of it that is open: "learned/map" */
export function panelInAddress() {
  return parameters().get(PANEL) || null;
}

/**
 * @param {string|null} id null: a chat of which nothing is stored yet
 * @param {'push'|'replace'} how whether the browser's Back button leads to the address that is there now
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

/** Whether Back closes the panel that is open: the page itself opened it just before. */
export function backClosesPanel() {
  return history.state?.openedPanel === true;
}

/**
 * @param {URL} url @param {'push'|'replace'} [how] @param {object|null} [state] A browser may refuse, Safari does from the
 *   hundredth change within 30 seconds on: nothing else depends on it.
 */
export function changeAddress(url, how = 'replace', state = history.state) {
  try {
    if (how === 'push') history.pushState(state, '', url);
    else history.replaceState(state, '', url);
  } catch {
    // the address stays as it was
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
