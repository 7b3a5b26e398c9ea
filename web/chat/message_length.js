/** Messages that are surely too long are refused by their length: showing and reading them would take long. */

const MOST_UNTOLD = 200_000; // characters that are shown before the model is there and tells how long a prompt may be
const NOT_COUNTED = /[\0-\x20\x7f]/g; // as py_core/tokenizers/base.py has it

/**
 * @param {string} text
 * @param {{contextLength: number, longestPrompt: number|null}|null} model `longestPrompt`: bytes that its longest tokens
 *   could have together, null where that is unknown. null while it loads
 * @returns {string|null} a sentence
 */
export function whyTooLong(text, model) {
  const most = model ? model.longestPrompt ?? Infinity : MOST_UNTOLD;
  if (text.length <= most) return null;
  if (!model) return 'The message is very long. Send it when the model is loaded: only then it is known whether it fits.';
  if (text.replace(NOT_COUNTED, '').length <= most) return null;
  return `The text is too long: it has ${text.length.toLocaleString('en')} characters, and the model reads at most ${model.contextLength} tokens. Shorten it, or send it in parts.`;
}
