/** Fetches a file of the site; rejects with a sentence for the user. */
import { message } from './message.js';
import { userError } from './user_error.js';

/**
 * @param {string|URL} url
 * @param {import('./message.js').Message} what begins the sentence: "The router", "The CPU's kernels"
 * @param {(bytes: number) => void} [onBytes] called with the number of bytes that arrived since the last call
 * @returns {Promise<Uint8Array<ArrayBuffer>>} rejects with a DownloadError
 */
export async function fetchFile(url, what, onBytes = () => {}) {
  let why = /** @type {import('./message.js').Message|string} */ (message('part.no-connection', 'there is no connection to the server'));
  try {
    const response = await fetch(url);
    if (response.ok) return await bytesOf(response, onBytes);
    why = `HTTP ${response.status}`;
  } catch { /* said below */ }
  throw userError('DownloadError', message('part.not-loaded', '{what} could not be loaded ({why}). Check your connection, then load again.', { what, why }));
}

async function bytesOf(response, onBytes) {
  const chunks = [];
  let length = 0;
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    length += value.length;
    onBytes(value.length);
  }
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.length;
  }
  return bytes;
}
