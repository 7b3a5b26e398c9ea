/**
 * The panel that shows the progress of loading. Its figures count every byte that is downloaded or read from the browser's
 * storage: Python with its packages, the model, and the router's files. At least one stage runs at any time.
 */
import { t } from '../i18n/i18n.js';
import { part } from '../common/dom.js';
import { formatProgress } from '../common/format.js';

export class LoadingView {
  #root;
  #label;
  #bar;
  #bytes;
  #stages; // name -> its <li>
  /** @type {Record<string, {done: number, total: number|null|undefined}>} name -> bytes */
  #counts = {};

  #prepared = /** @type {number|null} */ (null); // the prepared share of the model, from 0 to 1

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#root = root;
    this.#label = part(root, '#loading-label', HTMLElement);
    this.#bar = part(root, 'progress', HTMLProgressElement);
    this.#bytes = part(root, '.loading-bytes', HTMLElement);
    this.#stages = Object.fromEntries(['python', 'model', 'routing', 'setup'].map((name) => (
      [name, part(root, `[data-stage=${name}]`, HTMLLIElement)]
    )));
  }

  /** @param {boolean} routing true if messages will be routed */
  begin(routing) {
    this.#counts = {};
    this.#prepared = null;
    for (const li of Object.values(this.#stages)) li.dataset.state = 'running';
    this.#stages.setup.dataset.state = 'waiting';
    this.#stages.routing.hidden = !routing;
    if (!routing) this.#stages.routing.dataset.state = 'done';
    this.#show();
    this.#root.hidden = false;
  }

  /**
   * @param {{stage: 'python'|'model'|'routing'|'setup', done?: number, total?: number|null, complete?: boolean}} progress
   *   `done` of `total` bytes; `complete`: this stage is done
   */
  progress({ stage, done, total, complete = false }) {
    if (stage === 'setup') this.#prepared = (done ?? 0) / (total || 1);
    else if (done !== undefined) this.#counts[stage] = { done, total };
    if (complete) this.#stages[stage].dataset.state = 'done';
    this.#show();
  }

  end() {
    this.#root.hidden = true;
  }

  #isDone(stage) {
    return this.#stages[stage].dataset.state === 'done';
  }

  #show() {
    // The model is prepared while the routing still loads: chatting does not wait for that.
    if (this.#isDone('python') && this.#isDone('model')) this.#stages.setup.dataset.state = 'running';
    const running = ['model', 'python'].find((stage) => !this.#isDone(stage)) ?? 'setup';
    this.#label.textContent = t(`loading.label_${running}`);
    const counts = Object.values(this.#counts);
    const done = counts.reduce((sum, count) => sum + count.done, 0);
    const known = counts.length > 0 && counts.every(({ total }) => total);
    const total = counts.reduce((sum, count) => sum + (count.total ?? 0), 0);
    const isSetUp = running === 'setup'; // the missing bytes belong to the routing
    this.#bytes.textContent = counts.length && !isSetUp ? formatProgress(done, known ? total : null) : '';
    const share = isSetUp ? this.#prepared : known ? done / total : null;
    if (share === null) this.#bar.removeAttribute('value');
    else this.#bar.value = share;
  }
}
