/**
 * localStorage and sessionStorage, as far as the browser has and allows them: with blocked cookies even a look at one
 * throws. What it does not keep is known for as long as the page is open.
 */

class WebStorage {
  #name;
  #here = /** @type {Map<string, string>} */ (new Map()); // what the browser does not keep
  #keeps = true;

  /** @param {'localStorage'|'sessionStorage'} name */
  constructor(name) {
    this.#name = name;
  }

  /** Whether the browser keeps anything here. */
  get isAllowed() {
    return this.#try((storage) => {
      storage.setItem('sonata.try', '');
      storage.removeItem('sonata.try');
      return true;
    }) ?? false;
  }

  /** @param {string} key @returns {string|null} */
  getItem(key) {
    return this.#here.get(key) ?? this.#try((storage) => storage.getItem(key)) ?? null;
  }

  /** @param {string} key @param {string} value @returns {boolean} whether the browser keeps it */
  setItem(key, value) {
    const isKept = this.#keeps && this.#try((storage) => { storage.setItem(key, value); return true; }) === true;
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
    this.#try((storage) => storage.removeItem(key));
  }

  /** Leave nothing with the browser from now on, or leave it what is there. @param {boolean} keeps */
  keep(keeps) {
    if (keeps === this.#keeps) return;
    this.#keeps = keeps;
    const keys = keeps ? [...this.#here.keys()] : this.#keys();
    for (const key of keys) this.setItem(key, this.getItem(key) ?? '');
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
