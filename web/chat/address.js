/**
 * The address of a conversation: #chat=ID, beside whatever else the address of the page says (page/options.js).
 */
const NAME = 'chat';

/** @returns {string|null} the id of the conversation that the address names */
export function chatInAddress() {
  return new URLSearchParams(location.hash.slice(1)).get(NAME) || null;
}

/**
 * @param {string|null} id null: a chat of which nothing is stored yet
 * @param {'push'|'replace'} how whether the browser's Back button leads to the address that is there now
 */
export function showInAddress(id, how) {
  const url = new URL(location.href);
  url.hash = id ? new URLSearchParams({ [NAME]: id }).toString() : '';
  if (url.href === location.href) return;
  if (how === 'push') history.pushState(null, '', url);
  else history.replaceState(null, '', url);
}
