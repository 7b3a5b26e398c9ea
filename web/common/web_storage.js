/**
 * localStorage and sessionStorage, as far as the browser has and allows them: with blocked cookies even a look at one
 * throws. What it does not keep is known for as long as the page is open.
 */

class WebStorage {
  #name;
  #here = /** @type {Map<string, string|null>} */ (new Map()); // what the browser does not keep; null: what it does not let go
  #keeps = true;

  /** @param {'localStorage'|'sessionStorage'} name */
  constructor(name) {
    this.#name = name;
  }

  /** Whether the browser keeps anything here. */
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

  /** @param {string} key @param {string} value @returns {boolean} whether the browser keeps it */
  setItem(key, value) {
    const isKept = this.#keeps && this.#try((storage) => {
      storage.setItem(key, value);
      return storage.getItem(key) === value;
    }) === true;
    if (isKept) {
      this.#here.delete(key);
    } else {
      this.removeItem(key); // an older value would be wrong
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

  /** Leave nothing with the browser from now on, or leave it what is there. @param {boolean} keeps */
  keep(keeps) {
    if (keeps === this.#keeps) return;
    this.#keeps = keeps;
    const keys = keeps ? [...this.#here.keys()] : this.#keys();
    for (const key of keys) {
      const value = this.getItem(key);
      if (value !== null) this.setItem(key, value);
    }
  }

  /** Forget everything of this page's. */
  clear() {
    for (const key of [...this.#here.keys(), ...this.#keys()]) this.removeItem(key);
  }

  #keys() {
    return this.#try((storage) => Object.keys(storage).filter((key) => key.startsWith('sonata.'))) ?? [];
  }

  /** @template T @param {(storage: Storage) => T} act @returns {T|undefined} undefined where the browser forbids it */
  #try(act) {
    try {
      return act(globalThis[this.#name]);
    } catch {
      return undefined;
    }
  }
}

/** Of this browser: settings and choices. */
export const local = new WebStorage('localStorage');
/** Of this tab: what was begun and not sent. While the memory is encrypted it is kept nowhere (`keep`). */
export const session = new WebStorage('sessionStorage');
