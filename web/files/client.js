/** The files of conversations, as the page sees them: `engine.files`. app/files/api.py answers. */

/** @typedef {{id: string, name: string, type: string, size: number, passages: number, indexed: number, comes: boolean}} AttachedFile
 *   size: bytes; indexed: how many of its passages are found by their meaning; comes: whether the others will be */

export class Files {
  #call;

  /** @param {(call: string, given: any[], data: Uint8Array|null) => Promise<any>} call what the worker answers */
  constructor(call) {
    this.#call = call;
  }

  /**
   * @param {Uint8Array} data the file; of a PDF, the text of its pages in UTF-8 with a form feed between two
   * @param {string|null} chat the conversation, null: a new one
   * @param {number} size bytes of the file itself
   * @returns {Promise<{chat: string, id: string}>} Rejects with a sentence where it cannot be read
   */
  attach(data, chat, name, type, size) { return this.#call('attach', [chat, name, type, size], data); }

  /** @param {string} chat @returns {Promise<AttachedFile[]>} */
  files(chat) { return this.#call('files', [chat], null); }

  /** @param {string[]} ids */
  detach(ids) { return this.#call('detach', [ids], null); }

  /** @param {string} id @returns {Promise<string>} */
  text(id) { return this.#call('text', [id], null); }
}
