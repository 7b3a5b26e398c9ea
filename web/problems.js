/** What went wrong -> what the person at the page reads and can do about it. */

/** Kinds of error whose message is written for the user, by the core or by the worker. */
const WRITTEN_FOR_USERS = new Set([
  'BackendError', 'ContextFullError', 'DeviceLostError', 'DownloadError', 'GGUFError', 'ModelListError',
  'NoWebGPUError', 'WorkerError',
]);

/** What to do, by kind; `says` tells that the message says it already. */
const ADVICE = {
  GGUFError: {
    says: /load (it )?again/i,
    advice: 'Load it again; if that does not help, the file on the server is damaged.',
  },
  DeviceLostError: { says: /load/i, advice: 'Load the model again to go on; your message is kept.' },
  BackendError: { says: /load|reload|try/i, advice: 'Load the model again.' },
  ContextFullError: { says: /new chat|shorter/i, advice: 'Start a new chat, or send a shorter message.' },
};

/**
 * @param {{kind: string, message: string, details?: string|null}} error
 * @returns {{kind: string, message: string, details: string|null}}
 */
export function describe({ kind, message, details = null }) {
  if (!WRITTEN_FOR_USERS.has(kind)) {
    const reason = sentence(`Something went wrong in the engine: ${message || kind}`);
    return { kind, message: `${reason} Reload the page to start again.`, details };
  }
  const { says, advice } = ADVICE[kind] ?? {};
  const said = sentence(message);
  return { kind, message: advice && !says.test(said) ? `${said} ${advice}` : said, details: null };
}

/** An Error that came out of the engine, as `describe` wants it. */
export function fromError(error) {
  return { kind: error.name, message: error.message, details: error.stack ?? null };
}

function sentence(text) {
  const trimmed = text.trim();
  const begun = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
