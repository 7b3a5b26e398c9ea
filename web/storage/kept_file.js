/**
 * A model that is kept whole, read piece by piece. Where the browser can, a handle reads into memory that is used again and
 * again: that costs a fiftieth of what slices of a File do, each of which comes in new memory from another process.
 */
export class KeptFile {
  #file;
  #access;

  /** @param {FileSystemFileHandle} handle */
  static async open(handle) {
    const file = await handle.getFile();
    // A browser that does not know this mode gives one handle only; other tabs, and the page itself, read slices.
    const access = await /** @type {any} */ (handle).createSyncAccessHandle?.({ mode: 'read-only' }).catch(() => null);
    return new KeptFile(file, access ?? null);
  }

  constructor(file, access) {
    this.#file = file;
    this.#access = access;
  }

  get size() {
    return this.#file.size;
  }

  /**
   * @param {number} from
   * @param {Uint8Array<ArrayBuffer>} into where they come, if the browser can
   * @returns {Promise<Uint8Array<ArrayBuffer>>} so many bytes, or those that can still be read
   */
  async read(from, into) {
    try {
      if (this.#access) return into.subarray(0, this.#access.read(into, { at: from }));
      return new Uint8Array(await this.#file.slice(from, from + into.length).arrayBuffer());
    } catch {
      return into.subarray(0, 0);
    }
  }

  /** Until then the file cannot be deleted. */
  close() {
    this.#access?.close();
    this.#access = null;
  }
}
