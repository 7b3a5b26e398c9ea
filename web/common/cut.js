/** Texts that come from files, addresses and people, where they are shown: some are as long as their makers like. */

const LENGTH = 120; // characters of an address or a file's name: real ones are shorter

/**
 * @param {string} text
 * @returns {string} its first 120 characters, without characters that nobody sees, which may turn the order of the others around
 */
export function cut(text) {
  const begin = text.slice(0, LENGTH).replace(/\p{C}/gu, '\ufffd');
  return text.length > LENGTH ? `${begin}…` : begin;
}

/** @param {string} text @returns {string} with the characters seen that turn the order of the others around */
export function visible(text) {
  return text.replace(/[\u202a-\u202e\u2066-\u2069]/g, '\ufffd');
}

/** Whether nothing of a text is seen: it counts as empty. @param {string} text */
export function isBlank(text) {
  return /^[\p{White_Space}\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u2800]*$/u.test(text);
}
