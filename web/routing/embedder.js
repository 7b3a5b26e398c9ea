/**
 * The sentence embedder's side of the worker that calls it: sends tokens to embedder_worker.js, gets vectors or the
 * states of tokens back.
 *
 * Python (py_core/routing/embedder_browser.py) makes the tokens.
 */
import { message } from '../common/message.js';
import { fetchFile } from '../common/file_fetch.js';
import { ownScript } from '../common/own_script.js';
import { userError } from '../common/user_error.js';

export class Embedder {
  #worker;
  #waiting = new Map();
  #calls = 0;
  #broken = /** @type {Error|null} */ (null);

  /**
   * Starts the worker and loads the model that embedder.json names.
   *
   * @param {string} folder URL of the folder that holds embedder.json, ending in /
   * @param {(bytes: number) => void} [onBytes] called with the number of bytes that arrived since the last call
   * @returns {Promise<Embedder>} rejects with a DownloadError if a file cannot be fetched, with an EmbedderError if it does not
   *   run
   */
  static async open(folder, onBytes = () => {}) {
    const about = JSON.parse(await fetchText(`${folder}embedder.json`, onBytes));
    const embedder = new Embedder(about, onBytes);
    try {
      const [tokenizer] = await Promise.all([
        fetchText(folder + about.tokenizer, onBytes),
        embedder.#call('start', { model: folder + about.model, bytes: about.bytes, sha256: about.sha256 }),
      ]);
      embedder.tokenizer = tokenizer;
    } catch (error) {
      embedder.close();
      throw error;
    }
    return embedder;
  }

  /** @param {Record<string, any>} about embedder.json @param {(bytes: number) => void} onBytes */
  constructor(about, onBytes) {
    this.fingerprint = about.fingerprint;
    this.meaningFingerprint = about.meaning_fingerprint;
    this.isMultilingual = about.multilingual;
    this.tokenizer = ''; // the text of tokenizer.json
    this.#worker = new Worker(ownScript(new URL('./embedder_worker.js', import.meta.url)), { type: 'module' });
    this.#worker.onmessage = ({ data: { id, value, error, bytes } }) => {
      if (bytes !== undefined) return onBytes(bytes);
      const { resolve, reject } = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error) reject(userError(error.kind, error.said));
      else resolve(value);
    };
    this.#worker.onerror = (event) => {
      event.preventDefault();
      this.#break(message('embedder.stopped', 'The sentence embedder stopped. Reload the page.'));
    };
  }

  /**
   * @param {Int32Array} ids of all texts, one after the other
   * @param {Int32Array} lengths number of ids of each text
   * @returns {Promise<Float32Array>} 384 numbers a text
   */
  encode(ids, lengths) {
    return this.#call('encode', { ids, lengths });
  }

  /**
   * @param {Int32Array} ids of all texts, one after the other
   * @param {Int32Array} lengths number of ids of each text
   * @returns {Promise<Float32Array>} 384 numbers a token: the plain model's last layer
   */
  states(ids, lengths) {
    return this.#call('states', { ids, lengths });
  }

  close() {
    this.#worker.terminate();
    this.#break(message('embedder.closed', 'The sentence embedder was closed.'));
  }

  #call(kind, content) {
    if (this.#broken) return Promise.reject(this.#broken);
    return new Promise((resolve, reject) => {
      const id = ++this.#calls;
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, kind, ...content });
    });
  }

  #break(said) {
    this.#broken = userError('EmbedderError', said);
    for (const { reject } of this.#waiting.values()) reject(this.#broken);
    this.#waiting.clear();
  }
}

async function fetchText(url, onBytes) {
  return new TextDecoder().decode(await fetchFile(url, message('part.embedder', 'The sentence embedder'), onBytes));
}
