const HAS_MODES = 'mode' in (globalThis.FileSystemSyncAccessHandle?.prototype ?? {});

/**
 * A model that is kept whole, read piece by piece. Where the browser can, a handle reads into memory that is used again:
 * that costs a fraction of what slices of a File do, each of which comes in new memory from another process.
 */
export class KeptFile {
  #file;
  #access;

  /** @param {FileSystemFileHandle} handle */
  static async open(handle) {
    const file = await handle.getFile();
    // In a browser without modes it would shut out the other tabs. Where somebody else has it alone, slices are read.
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
