/** Turns an error into a sentence for the person at the page that says what to do. */
import { told } from '../i18n/engine_texts.js';

/** Advice by the error's kind, for messages that do not say it already (`said`). */
const ADVICE = {
  GGUFError: {
    said: /\bload (it )?again/i,
    advice: 'Load it again. If that does not help, the file on the server is damaged.',
  },
  DeviceLostError: { said: /load/i, advice: 'Load the model again to continue. Your message is kept.' },
  BackendError: { said: /load|reload|try/i, advice: 'Load the model again.' },
  ContextFullError: { said: /shorten/i, advice: 'Shorten the message.' },
};

/**
 * @param {{kind: string, message: string, details: string|null}} error details (a stack) only where the message is not
 *   written for people
 * @returns {{kind: string, message: string, details: string|null}} with a message that says what to do
 */
export function describe({ kind, message, details }) {
  if (details) {
    const what = sentence(`Something went wrong in the engine: ${message || kind}`);
    return { kind, message: `${what} Reload the page to start again.`, details };
  }
  const { said, advice } = ADVICE[kind] ?? {};
  const what = sentence(message || kind);
  return { kind, message: advice && !said.test(what) ? `${told(what)} ${advice}` : told(what), details: null };
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

function sentence(text) {
  const trimmed = text.trim();
  const begun = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
