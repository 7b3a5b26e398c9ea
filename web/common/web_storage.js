/**
 * localStorage and sessionStorage, as far as the browser has and allows them: with blocked cookies even looking at one throws.
 * Values that the browser does not keep last as long as the page is open.
 */

class WebStorage {
  #name;
  #here = /** @type {Map<string, string|null>} */ (new Map()); // values that the browser does not keep; null: deleted here
  #keeps = true;

  /** @param {'localStorage'|'sessionStorage'} name */
  constructor(name) {
    this.#name = name;
  }

  /** True if the browser keeps anything here. */
  get isAllowed() {
    return this.#try((storage) => {
      storage.setItem('sonata.try', '');
      const isKept = storage.getItem('sonata.try') === '';
      storage.removeItem('sonata.try');
      return isKept;
    }) ?? false;
  }

  /** @param {string} key @returns {string|null} */
  getItem(key) {
    const here = this.#here.get(key);
    return here === undefined ? this.#try((storage) => storage.getItem(key)) ?? null : here;
  }

  /** @param {string} key @param {string} value @returns {boolean} true if the browser keeps it */
  setItem(key, value) {
    const isKept = this.#keeps && this.#try((storage) => {
      storage.setItem(key, value);
      return storage.getItem(key) === value;
    }) === true;
    if (isKept) {
      this.#here.delete(key);
    } else {
      this.removeItem(key); // an old value would be wrong
      this.#here.set(key, value);
    }
    return isKept;
  }

  /** @param {string} key */
  removeItem(key) {
    this.#here.delete(key);
    const isGone = this.#try((storage) => {
      storage.removeItem(key);
      return true;
    });
    if (!isGone) this.#here.set(key, null);
  }

  /** Keep nothing in the browser from now on, or keep values there again. @param {boolean} keeps */
  keep(keeps) {
    if (keeps === this.#keeps) return;
    this.#keeps = keeps;
    const keys = keeps ? [...this.#here.keys()] : this.#keys();
    for (const key of keys) {
      const value = this.getItem(key);
      if (value !== null) this.setItem(key, value);
    }
  }

  /** Forget everything that this page stored. */
  clear() {
    for (const key of [...this.#here.keys(), ...this.#keys()]) this.removeItem(key);
  }

  #keys() {
    return this.#try((storage) => Object.keys(storage).filter((key) => key.startsWith('sonata.'))) ?? [];
  }

  /** @template T @param {(storage: Storage) => T} act @returns {T|undefined} undefined if the browser forbids it */
  #try(act) {
    try {
      return act(globalThis[this.#name]);
    } catch {
      return undefined;
    }
  }
}

/** For this browser: settings and choices. */
export const local = new WebStorage('localStorage');
/** For this tab: drafts that were not sent. While the memory is encrypted they are kept nowhere (`keep`). */
export const session = new WebStorage('sessionStorage');
