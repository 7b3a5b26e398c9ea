/** The page's side of model_worker.js: brings one model at a time, and reports its progress to every listener. */
import { message } from '../common/message.js';
import * as Comlink from '../vendor/comlink.mjs';
import { ownScript } from '../common/own_script.js';
import { userError } from '../common/user_error.js';

/** @typedef {{key: string, title: string, done: number, total: number, perSecond: number}} Bringing */

export class ModelKeeper {
  bringing = /** @type {Bringing|null} */ (null);
  #remote = /** @type {any} */ (null);
  #onChange;

  /** @param {() => void} onChange `bringing` has changed */
  constructor(onChange) {
    this.#onChange = onChange;
  }

  /** See hub.js. @returns {Promise<import('./hub.js').Listed|null>} */
  ask(catalog, entry) {
    return this.#worker.ask(catalog, entry);
  }

  /** @returns {Promise<boolean>} false if it was stopped. Throws a userError. */
  download(catalog, entry, listed) {
    return this.#bring(entry.name, entry.title, (progress) => this.#worker.download(catalog, entry, listed, progress));
  }

  /**
   * @param {File[]} files one, or all parts of a model in their order @param {{title: string, licence: string}} known
   * @returns {Promise<{sha256: string}|null>} null if it was stopped. Throws a userError: a NoRoomError if it cannot be kept
   */
  importFiles(files, known) {
    return this.#bring('file', known.title, (progress) => this.#worker.importFiles(files, known, progress));
  }

  stop() {
    this.#remote?.stop();
  }

  get #worker() {
    const url = ownScript(new URL('./model_worker.js', import.meta.url));
    this.#remote ??= Comlink.wrap(new Worker(url, { type: 'module', name: 'sonata-models' }));
    return this.#remote;
  }

  async #bring(key, title, run) {
    if (this.bringing) throw userError('BusyError', message('download.still', '{title} is still on its way. Wait for it, or stop it.', { title: this.bringing.title }));
    let over = false; // the last report of progress may come later
    this.#say({ key, title, done: 0, total: 0, perSecond: 0 });
    try {
      return await run(Comlink.proxy((done, total, perSecond) => {
        if (!over) this.#say({ key, title, done, total, perSecond });
      }));
    } catch (error) {
      throw userError(error.name === 'NoRoomError' ? error.name : 'DownloadError', error.said ?? error.message);
    } finally {
      over = true;
      this.#say(null);
    }
  }

  #say(bringing) {
    this.bringing = bringing;
    this.#onChange();
  }
}
