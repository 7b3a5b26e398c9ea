/** Texts that come from files and addresses, where they are shown: some are as long as their makers like. */

/**
 * @param {string} text @param {number} length the most characters
 * @returns {string} without characters that nobody sees, which may turn the order of the others around
 */
export function cut(text, length) {
  const begin = text.slice(0, length).replace(/\p{C}/gu, '\ufffd');
  return text.length > length ? `${begin}…` : begin;
}
