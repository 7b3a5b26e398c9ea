/**
 * Decides which tab runs the model. Of the tabs that want the same model, one leads: it holds a Web Lock and has the
 * worker. Each other tab uses that worker through a MessagePort, which a SharedWorker hands over (broker_worker.js).
 * When the leader closes, the lock passes to a waiting tab.
 *
 * A tab may also take the lock: to run another model for all tabs, or because the leader is silent. If the browser has
 * or allows no SharedWorker or no locks, each tab runs its own worker.
 */
import { t } from '../i18n/i18n.js';
import * as Comlink from '../vendor/comlink.mjs';
import { partOf, webLocks } from '../common/browser_parts.js';
import { ownScript } from '../common/own_script.js';
import { userError } from '../common/user_error.js';

const ASK_MS = 500; // until a leader that does not answer is asked again: it may be about to change
const PING_MS = 3000;
const ASKED_PATIENCE = 1 / 4; // of the patience: the leader's page answers this, and it has little to do

/**
 * @typedef {object} Link
 * @property {any} remote the worker's api for this tab (worker.js), behind Comlink
 * @property {boolean} isElsewhere whether it is another tab's
 * @property {Promise<never>} died rejects with a userError if the worker cannot be started, or is gone
 * @property {() => void} close
 */

export class ModelTabs {
  #name;
  #patience;
  #onMoved;
  #shares = false;
  #beginning;
  #locks = /** @type {LockManager} */ (/** @type {unknown} */ (null)); // set if it shares
  #tab = `sonata.tab:${crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`}`;
  #channel = /** @type {BroadcastChannel|null} */ (null);
  #leads = false;
  #waits = false; // for the lock
  #leader = ''; // the id of the worker that this tab uses, of another tab
  #askNow = () => {};
  #lose = (/** @type {Error} */ _why) => {}; // the link to another tab's worker
  #release = () => {};
  #closed = /** @type {Promise<void>} */ (new Promise((resolve) => { this.#release = resolve; }));

  /**
   * @param {string} key what must be the same for tabs to share a worker
   * @param {{patience: number, onMoved: (take: boolean) => void}} page patience: seconds of silence after which a leader
   *   counts as gone. onMoved: the worker that this tab uses is gone, and it has to `connect` again, by taking the lock
   *   if `take` is true
   */
  constructor(key, { patience, onMoved }) {
    this.#name = `sonata.model:${key}`;
    this.#patience = patience;
    this.#onMoved = onMoved;
    this.#beginning = this.#begin();
  }

  /** @returns {Promise<boolean>} whether tabs run one model together, as far as is known */
  async areTogether() {
    await this.#beginning;
    return this.#shares;
  }

  async #begin() {
    const locks = await webLocks();
    const broker = locks && partOf(openBroker), channel = broker && partOf(() => new BroadcastChannel('sonata.model'));
    broker?.port.close();
    if (!channel) return;
    locks.request(this.#tab, () => new Promise(() => {})).catch(() => {}); // it shows that this tab is alive
    this.#locks = locks;
    this.#channel = channel;
    channel.onmessage = ({ data }) => this.#onLeader(data ?? {});
    this.#shares = true;
  }

  /**
   * @param {{take?: boolean}} [how] take: run the model in this tab from now on, whoever did before
   * @returns {Promise<Link>}
   */
  async connect({ take = false } = {}) {
    await this.#beginning;
    if (this.#shares && !this.#leads) await this.#elect(take);
    return this.#leads || !this.#shares ? this.#own() : this.#join();
  }

  /** This tab neither runs nor wants the model any more. */
  close() {
    this.#release();
  }

  // ---- who leads ----

  async #elect(take) {
    const leads = await this.#lock(take ? { steal: true } : { ifAvailable: true });
    if (leads || this.#waits) return;
    this.#waits = true;
    this.#lock({}).then((now) => {
      this.#waits = false;
      if (now) this.#moved();
    });
  }

  /** @returns {Promise<boolean>} whether this tab leads now */
  #lock(options) {
    return new Promise((resolve) => {
      this.#locks.request(this.#name, options, (lock) => {
        this.#leads ||= lock !== null;
        resolve(lock !== null);
        return lock && this.#closed; // or until this tab closes, or another tab takes it
      }).catch(({ name }) => {
        if (name !== 'AbortError') this.#shares = false; // this browser has no locks
        this.#leads = false;
        resolve(false);
        this.#moved();
      });
    });
  }

  /** Another tab leads, or the leader has another worker. */
  #onLeader({ name, leader }) {
    if (name !== this.#name || this.#leads) return;
    if (this.#leader && this.#leader !== leader) this.#moved();
    else this.#askNow();
  }

  #moved(take = false) {
    this.#leader = '';
    this.#askNow();
    this.#lose(userError('MovedError', t('problems.tabClosed')));
    this.#onMoved(take);
  }

  // ---- the worker of this tab ----

  /** @returns {Link} */
  #own() {
    const url = ownScript(new URL('./worker.js', import.meta.url));
    const worker = new Worker(url, { type: 'module', name: 'sonata-engine' });
    const died = /** @type {Promise<never>} */ (new Promise((_, reject) => {
      worker.addEventListener('error', (event) => {
        event.preventDefault();
        reject(userError('WorkerError', t('problems.engineNotStarted')));
      });
    }));
    died.catch(() => {});
    const remote = Comlink.wrap(worker);
    const broker = this.#shares ? this.#welcome(remote) : null;
    const close = () => {
      broker?.close();
      worker.terminate();
    };
    return { remote, isElsewhere: false, died, close };
  }

  /** Let other tabs use this tab's worker, and tell them. */
  #welcome(remote) {
    const leader = `${this.#tab}/${Date.now()}/${Math.random()}`;
    const { port } = openBroker();
    port.onmessage = ({ data, ports: [page] }) => {
      if (data?.kind === 'heard') return this.#channel?.postMessage({ name: this.#name, leader });
      if (data?.kind !== 'ask' || !page) return;
      page.postMessage({ leader });
      remote.connect(Comlink.transfer(page, [page]), data.tab);
    };
    port.postMessage({ kind: 'lead', key: this.#name });
    return port;
  }

  // ---- the worker of another tab ----

  /** @returns {Promise<Link>} */
  async #join() {
    for (let silent = 0; ;) {
      const { port, leader, isHeard } = await this.#ask();
      if (this.#leads) return this.#own();
      if (port) return this.#linkTo(port, leader);
      if (document.visibilityState === 'visible') silent += ASK_MS / 1000;
      if (silent < this.#patience * ASKED_PATIENCE) continue;
      if (!isHeard) this.#shares = false; // nothing hands ports over here
      return this.connect({ take: true });
    }
  }

  /** Ask the leader for its worker, once. @returns {Promise<{port: MessagePort|null, leader: string, isHeard: boolean}>} */
  #ask() {
    const { port1, port2 } = new MessageChannel();
    return new Promise((resolve) => {
      let isHeard = false;
      const { port: broker } = openBroker();
      const end = (port, leader = '') => {
        clearTimeout(timer);
        this.#askNow = () => {};
        broker.close();
        port1.onmessage = null;
        if (!port) port1.close();
        resolve({ port, leader, isHeard });
      };
      const timer = setTimeout(end, ASK_MS, null);
      this.#askNow = () => end(null);
      broker.onmessage = () => { isHeard = true; };
      port1.onmessage = ({ data }) => data?.leader && end(port1, data.leader);
      broker.postMessage({ kind: 'ask', key: this.#name, tab: this.#tab }, [port2]);
    });
  }

  /** @returns {Link} */
  #linkTo(port, leader) {
    this.#leader = leader;
    const remote = /** @type {any} */ (Comlink.wrap(port));
    const died = /** @type {Promise<never>} */ (new Promise((_, reject) => { this.#lose = reject; }));
    died.catch(() => {});
    const unwatch = this.#watch(remote);
    const close = () => {
      unwatch();
      remote.leave().catch(() => {});
      if (this.#leader === leader) this.#leader = '';
    };
    return { remote, isElsewhere: true, died, close };
  }

  /** While this tab is visible: take the lock if the leader is silent, like a tab that the browser has frozen. */
  #watch(remote) {
    let silent = 0, waits = false;
    const timer = setInterval(() => {
      if (document.visibilityState !== 'visible') return;
      silent = waits ? silent + PING_MS / 1000 : 0;
      if (silent >= this.#patience) {
        clearInterval(timer);
        this.#moved(true);
      }
      if (waits) return;
      waits = true;
      remote.ping().then(() => { waits = false; });
    }, PING_MS);
    return () => clearInterval(timer);
  }
}

function openBroker() {
  return new SharedWorker(ownScript(new URL('./broker_worker.js', import.meta.url)), { name: 'sonata-broker' });
}
