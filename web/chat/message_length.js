/** Messages that are surely too long are refused by their length: showing and reading them would take long. */
import { t } from '../i18n/i18n.js';


const MOST_UNTOLD = 200_000; // most characters that are shown before the model is loaded and reports how long a prompt may be
const NOT_COUNTED = /[\0-\x20\x7f]/g; // as in py_core/tokenizers/base.py

/**
 * @param {string} text
 * @param {{contextLength: number, longestPrompt: number|null}|null} model `longestPrompt`: bytes that a prompt of its longest
 *   tokens would have, null if that is unknown. `model` is null while it loads
 * @returns {string|null} a sentence
 */
export function whyTooLong(text, model) {
  const most = model ? model.longestPrompt ?? Infinity : MOST_UNTOLD;
  if (text.length <= most) return null;
  if (!model) return t('problems.veryLong');
  if (text.replace(NOT_COUNTED, '').length <= most) return null;
  return t('problems.tooLong', { count: text.length, tokens: model.contextLength });
}
