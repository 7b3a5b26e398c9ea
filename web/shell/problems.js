/** Turns an error into a sentence for the person at the page that says what to do. */
import { told } from '../i18n/engine_texts.js';
import { t } from '../i18n/i18n.js';

/** Advice by the error's kind, for messages that do not say it already (`said`). */
const ADVICE = {
  GGUFError: {
    said: /\bload (it )?again/i,
    advice: 'problems.fileDamaged',
  },
  DeviceLostError: { said: /load/i, advice: 'problems.loadToContinue' },
  BackendError: { said: /load|reload|try/i, advice: 'problems.loadModelAgain' },
  ContextFullError: { said: /shorten/i, advice: 'problems.shorten' },
};

/**
 * @param {{kind: string, message: string, details: string|null}} error details (a stack) only where the message is not
 *   written for people
 * @returns {{kind: string, message: string, details: string|null}} with a message that says what to do
 */
export function describe({ kind, message, details }) {
  if (details) {
    const what = sentence(t('problems.engine', { message: message || kind }));
    return { kind, message: `${what} ${t('problems.reloadToStart')}`, details };
  }
  const { said, advice } = ADVICE[kind] ?? {};
  const what = sentence(message || kind);
  return { kind, message: advice && !said.test(what) ? `${told(what)} ${t(advice)}` : told(what), details: null };
}

/**
 * An Error that came out of the engine, as `describe` wants it. See user_error.js.
 * @param {{name: string, message: string, stack?: string}} error
 */
export function fromError({ name, message, stack }) {
  if (!stack) return { kind: name, message, details: null };
  const [lastLine] = message.trim().split('\n').slice(-1); // Pyodide's messages are whole tracebacks
  return { kind: name, message: lastLine, details: stack.includes(message) ? stack : `${message}\n${stack}` };
}

/** @param {string} text @returns {string} with a capital letter and a full stop */
export function sentence(text) {
  const trimmed = text.trim();
  const begun = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
