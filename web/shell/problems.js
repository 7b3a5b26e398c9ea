/** Turns an error into a sentence that tells the user what to do. */
import { said } from '../i18n/engine_texts.js';
import { t } from '../i18n/i18n.js';

/** @typedef {import('../common/message.js').Message|string} Said */

/** Advice by the error's kind. `saysIt`: codes, or areas of codes, whose text contains the advice already. */
const ADVICE = {
  GGUFError: { advice: 'problems.fileDamaged', saysIt: ['download'] },
  BackendError: {
    advice: 'problems.loadModelAgain',
    saysIt: ['cpu', 'adapter.too-many', 'engine.not-loaded', 'gpu.error', 'gpu.no-timestamps', 'model.closed', 'model.load-again', 'wasm.other-version'],
  },
  ContextFullError: { advice: 'problems.shorten', saysIt: ['chat.message-too-long', 'chat.text-too-long', 'engine.too-long'] },
};

/**
 * @param {{kind: string, message: Said, details: string|null}} error details (a stack) only if the message was not written for
 *   people
 * @returns {{kind: string, message: string, details: string|null}} with a message that says what to do
 */
export function describe({ kind, message, details }) {
  if (details) {
    const what = sentence(t('problems.engine', { message: said(message) || kind }));
    return { kind, message: `${what} ${t('problems.reloadToStart')}`, details };
  }
  const { advice, saysIt = [] } = ADVICE[kind] ?? {};
  const what = sentence(said(message) || kind);
  const code = typeof message === 'string' ? '' : message.code;
  const isSaid = !advice || saysIt.includes(code) || saysIt.includes(code.split('.')[0]);
  return { kind, message: isSaid ? what : `${what} ${t(advice)}`, details: null };
}

/**
 * Converts an Error from the engine for `describe`. See user_error.js.
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
