/** Shortens texts that come from files, addresses and people before they are shown: such a text may have any length. */

const LENGTH = 120; // characters of an address or a file's name: real ones are shorter

const GOES_ON = /^(?:\p{M}|\u200d|\p{Emoji_Modifier}|\p{Surrogate})/u; // an accent, the rest of an emoji, half of a pair
const MOST_PARTS = 16; // of a character; longer ones are decoration

/**
 * The last place up to an end at which no character is cut in half; py_core/display.py does the same.
 * @param {string} text @param {number} end @returns {number}
 */
export function wholeEnd(text, end) {
  const isWithin = (at) => text[at - 1] === '\u200d' || GOES_ON.test(text.slice(at, at + 2));
  const least = Math.max(end - 2 * MOST_PARTS, 0);
  let at = end;
  while (at > least && at < text.length && isWithin(at)) at -= 1;
  if (at > least) return at;
  return /^[\udc00-\udfff]/.test(text.slice(end)) ? end - 1 : end;
}

/**
 * @param {string} text
 * @returns {string} its first 120 characters, without invisible characters, which may reverse the order of the others
 */
export function cut(text) {
  const begin = text.slice(0, wholeEnd(text, LENGTH)).replace(/\p{C}/gu, '\ufffd');
  return text.length > LENGTH ? `${begin}…` : begin;
}

/** @param {string} text @returns {string} with the characters made visible that reverse the order of the others */
export function visible(text) {
  return text.replace(/[\u202a-\u202e\u2066-\u2069]/g, '\ufffd');
}

/** True if nothing of a text is visible: then it counts as empty. @param {string} text */
export function isBlank(text) {
  return /^[\p{White_Space}\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u2800]*$/u.test(text);
}
