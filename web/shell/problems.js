/** Turns an error into a sentence for the person at the page that says what to do. */
import { english } from '../common/message.js';
import { said } from '../i18n/engine_texts.js';
import { t } from '../i18n/i18n.js';

/** @typedef {import('../common/message.js').Message|string} Said */

/** Advice by the error's kind, for messages that do not say it already (`enough`). */
const ADVICE = {
  GGUFError: {
    enough: /\bload (it )?again/i,
    advice: 'problems.fileDamaged',
  },
  DeviceLostError: { enough: /load/i, advice: 'problems.loadToContinue' },
  BackendError: { enough: /load|reload|try/i, advice: 'problems.loadModelAgain' },
  ContextFullError: { enough: /shorten/i, advice: 'problems.shorten' },
};

/**
 * @param {{kind: string, message: Said, details: string|null}} error details (a stack) only if the message is not written
 *   for people
 * @returns {{kind: string, message: string, details: string|null}} with a message that says what to do
 */
export function describe({ kind, message, details }) {
  if (details) {
    const what = sentence(t('problems.engine', { message: said(message) || kind }));
    return { kind, message: `${what} ${t('problems.reloadToStart')}`, details };
  }
  const { enough, advice } = ADVICE[kind] ?? {};
  const what = sentence(said(message) || kind);
  return { kind, message: advice && !enough.test(english(message)) ? `${what} ${t(advice)}` : what, details: null };
}

/**
 * An Error that came out of the engine, as `describe` wants it. See user_error.js.
 * @param {{name: string, message: string, stack?: string, said?: Said}} error
 */
export function fromError({ name, message, stack, said = message }) {
  if (!stack) return { kind: name, message: said, details: null };
  const [lastLine] = message.trim().split('\n').slice(-1); // Pyodide's messages are whole tracebacks
  return { kind: name, message: lastLine, details: stack.includes(message) ? stack : `${message}\n${stack}` };
}

/** @param {string} text @returns {string} with a capital letter and a full stop */
export function sentence(text) {
  const trimmed = text.trim();
  const begun = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
