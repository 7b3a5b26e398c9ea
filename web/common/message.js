/**
 * Text for a person: a code, by which a language finds its text (i18n/engine_texts.js), and the English text. Python and the
 * workers do not know the page's language, so they send such messages.
 *
 * @typedef {import('../protocol.js').Message} Message
 */

/**
 * @param {string} code @param {string} text the English, in which {name} stands for a value
 * @param {Record<string, any>} [values] texts, numbers, messages, or lists of them
 * @returns {Message}
 */
export function message(code, text, values = {}) {
  return { code, text, values };
}

/** @param {Message|string} message @returns {string} the English */
export function english(message) {
  return typeof message === 'string' ? message : filled(message.text, message.values, english);
}

/**
 * @param {string} text @param {Record<string, any>} values @param {(value: any) => string} words the text of a value that is
 *   itself a message
 */
export function filled(text, values, words) {
  const word = (value) => {
    if (Array.isArray(value)) return value.map(word).join(', ');
    return typeof value === 'object' ? words(value) : String(value);
  };
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? word(values[name]) : whole));
}
