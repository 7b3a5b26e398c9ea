/** True if several may read a file at the same time. */
export const HAS_MODES = 'mode' in (globalThis.FileSystemSyncAccessHandle?.prototype ?? {});

/**
 * A completely kept model, read piece by piece. If the browser can, a handle reads into reused memory: that costs a fraction of
 * slices of a File, each of which arrives in new memory from another process.
 */
export class KeptFile {
  #file;
  #access;

  /** @param {FileSystemFileHandle} handle */
  static async open(handle) {
    const file = await handle.getFile();
    // In a browser without modes a handle would lock out the other tabs. If another tab has the file exclusively, slices are
    // read.
    if (!HAS_MODES) return new KeptFile(file, null);
    const opening = /** @type {any} */ (handle).createSyncAccessHandle({ mode: 'read-only' });
    return new KeptFile(file, await opening.catch(() => null));
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
   * @param {Uint8Array<ArrayBuffer>} into memory for the bytes, if the browser can read into it
   * @returns {Promise<Uint8Array<ArrayBuffer>>} the bytes: as many as `into` holds, or as many as can still be read
   */
  async read(from, into) {
    try {
      if (this.#access) return into.subarray(0, this.#access.read(into, { at: from }));
      return new Uint8Array(await this.#file.slice(from, from + into.length).arrayBuffer());
    } catch {
      return into.subarray(0, 0);
    }
  }

  /** Until this is called the file cannot be deleted. */
  close() {
    this.#access?.close();
    this.#access = null;
  }
}
