import { english } from './message.js';

/**
 * An Error that is written for the user. `kind` becomes its name, which survives Comlink, as the message does
 * (error_transfer.js). It has no stack: that is how the page tells it from a bug.
 * @param {string} kind @param {string|import('./message.js').Message} said a string must be in the language of the page
 */
export function userError(kind, said) {
  const error = Object.assign(new Error(english(said)), { name: kind, said });
  error.stack = '';
  return error;
}
