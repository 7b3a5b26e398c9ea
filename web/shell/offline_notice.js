/**
 * Says "Works offline" once that is true: the browser keeps the whole of the model that runs, and the service worker every file
 * of the site, including those that were not requested so far: they are fetched once the model is there. It says so once in
 * each browser; the mark in the model's popover stays.
 */
import { local } from '../common/web_storage.js';
import { t } from '../i18n/i18n.js';
import { keepEverything } from './offline.js';
import { storedModels } from '../storage/model_store.js';

const SAID = 'sonata.said-offline';
const LOOK_MS = 1000; // between two checks that the model is complete

export class OfflineNotice {
  #notices;
  #mark;
  #siteIsKept = false;
  #model = /** @type {string|null} */ (null); // the sha256 of the running model
  #looking = 0;

  /** @param {import('./notices.js').Notices} notices @param {HTMLElement} mark shown while it is true */
  constructor(notices, mark) {
    this.#notices = notices;
    this.#mark = mark;
    mark.closest('[popover]')?.addEventListener('toggle', () => this.#look()); // a model may have been deleted meanwhile
  }

  /** The service worker has all files of a version. */
  siteKept() {
    this.#siteIsKept = true;
    if (this.#mark.hidden) this.#look();
  }

  /** @param {string|null} sha256 of the model that runs now; null: the browser does not keep it */
  modelRuns(sha256) {
    this.#model = sha256;
    this.#show(false);
    this.#look();
  }

  async #look() {
    clearTimeout(this.#looking);
    const model = this.#model;
    if (!this.#siteIsKept || model === null) return;
    const kept = await storedModels().catch(() => []);
    if (model !== this.#model) return;
    if (!kept.some(({ sha256, complete }) => sha256 === model && complete)) {
      this.#show(false);
      this.#looking = setTimeout(() => this.#look(), LOOK_MS); // its last bytes are still being written
    } else if (await keepEverything() && model === this.#model) {
      this.#show(true);
    }
  }

  #show(works) {
    this.#mark.hidden = !works;
    if (!works) return delete document.documentElement.dataset.worksOffline;
    document.documentElement.dataset.worksOffline = 'yes';
    if (wasSaid()) return;
    this.#notices.say('offline', t('pwa.worksOffline'));
  }
}

/** True if it was said before; from now on it counts as said. */
function wasSaid() {
  return local.getItem(SAID) !== null || !local.setItem(SAID, 'yes');
}
