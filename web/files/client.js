/** The files of conversations, as the page sees them: `engine.files`. app/files/api.py answers. */

/**
 * @typedef {{id: string, name: string, type: string, size: number, passages: number, indexed: number, comes: boolean}}
 *   AttachedFile size: bytes; indexed: the number of its passages that can be found by meaning; comes: true if the others will
 *   be
 */

export class Files {
  #call;

  /** @param {(call: string, given: any[], data: Uint8Array|null) => Promise<any>} call calls the worker */
  constructor(call) {
    this.#call = call;
  }

  /**
   * @param {Uint8Array} data the file; for a PDF, the text of its pages in UTF-8, separated by form feeds
   * @param {string|null} chat the conversation, null: a new one
   * @param {number} size bytes of the file itself
   * @returns {Promise<{chat: string, id: string}>} Rejects with a sentence if it cannot be read
   */
  attach(data, chat, name, type, size) { return this.#call('attach', [chat, name, type, size], data); }

  /** @param {string} chat @returns {Promise<AttachedFile[]>} */
  files(chat) { return this.#call('files', [chat], null); }

  /** @param {string[]} ids */
  detach(ids) { return this.#call('detach', [ids], null); }

  /** @param {string} id @returns {Promise<string>} */
  text(id) { return this.#call('text', [id], null); }
}
