/** Texts that come from files and addresses, where they are shown: some are as long as their makers like. */

const LENGTH = 120; // characters of an address or a file's name: real ones are shorter

/**
 * @param {string} text
 * @returns {string} its first 120 characters, without characters that nobody sees, which may turn the order of the others around
 */
export function cut(text) {
  const begin = text.slice(0, LENGTH).replace(/\p{C}/gu, '\ufffd');
  return text.length > LENGTH ? `${begin}…` : begin;
}
