/** A file of the site, or a sentence for the user. */
import { userError } from './user_error.js';

/**
 * @param {string|URL} url
 * @param {string} what begins the sentence: "The router", "The CPU's kernels"
 * @returns {Promise<Uint8Array>} rejects with a DownloadError
 */
export async function fetchFile(url, what) {
  let why = 'there is no connection to the server';
  try {
    const response = await fetch(url);
    if (response.ok) return new Uint8Array(await response.arrayBuffer());
    why = `HTTP ${response.status}`;
  } catch { /* said below */ }
  throw userError('DownloadError', `${what} could not be loaded (${why}). Check your connection, then load again.`);
}
