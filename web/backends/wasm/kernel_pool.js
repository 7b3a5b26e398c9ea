/**
 * The CPU as a device: the kernels (web/kernels) on several workers over one shared memory, or on one worker with a memory of
 * its own if the page may share none. py_core/backends/wasm/host.py says what each method promises.
 *
 * A worker that traps or falls silent takes the others down with it, and new workers start on the same memory. Calls under way
 * then fail with an Error named WorkersRestarted, or WorkersLost if the memory is gone too.
 */
import { message } from '../../common/message.js';
import { loadKernels } from './kernel_module.js';
import { hexOf } from '../../downloads/model_download.js';
import { ownScript } from '../../common/own_script.js';
import { userError } from '../../common/user_error.js';

const PAGE = 65536;
const LARGEST = [65536, 32768, 16384]; // pages: a browser may refuse to reserve this much address space for a shared memory
const HEAP_BASE = 2 << 20;
const MAX_WORKERS = 16; // the kernels' memory has this many stacks
const CONTROL = 1024, WORDS = 64; // web/kernels/kernels.h; the words from STEPS on are of kernel_worker.js
const GENERATION = 1, ABORT = 4, EPOCH = 30, STEPS = 31, BUSY = 32;
const LANES = 2; // workers that repack an upload; more would only need more memory
const FILLED_AT_ONCE = 32 << 20; // bytes of kept weights: the workers give a sign of life behind them
const WAITING_PIECES = 2; // that each of them may have
const RESTARTS = 3; // in a row, without an answer between them
const TICKS = 8; // how often the watchdog looks before its patience ends
// A worker that is terminated in the middle of a task finishes it first; Chromium ends it by force after two seconds.
const LEAVING_MS = 250, GONE_MS = 2500;

export class KernelPool {
  build; // of the kernels: pairs, dot or simd
  uploaded = /** @type {{version: string, key: string, regions: number[]}|null} */ (null); // what storage/kept_weights.js keeps
  shared;
  abi; // the kernels' version
  #kernels;
  #script; // blob URL of kernel_worker.js: a restart needs no network access
  #memory = /** @type {WebAssembly.Memory|null} */ (null); // the shared one
  #patience; // ms without a sign of life
  #workers = /** @type {Worker[]} */ ([]);
  #wanted;
  #asked = new Map(); // id -> {resolve, reject, steps}, in the order they were asked
  #next = 1;
  #held = /** @type {({(): any, alone?: boolean})[]|null} */ (null); // calls made while the number of workers changes
  #state = 'starting'; // later running, restarting, ended
  #end = /** @type {Error|null} */ (null); // the Error that every later call gets
  #restarts = 0;
  #epoch = 0; // number of restarts; each message carries it
  #filled = /** @type {{key: string, regions: number[], isRight: Promise<boolean>}|null} */ (null); // weights that were kept
  #timer = 0;
  #quiet = 0; // ticks since the last sign of life
  #lastSign = '';

  /**
   * @param {{folder: string, workers?: number, sharedWanted?: boolean, patience?: number}} options `folder`: URL of the
   *   .wasm files, ending in /; `patience`: ms after which a worker that gives no sign of life counts as dead
   * Throws a userError.
   */
  static async create({ folder, workers = defaultWorkers(), sharedWanted = true, patience = 10_000 }) {
    const shared = sharedWanted && self.crossOriginIsolated === true && typeof SharedArrayBuffer === 'function';
    const [kernels, script] = await Promise.all([loadKernels(folder, shared), fetchScript()]);
    const pool = new KernelPool(kernels, script, shared, shared ? within(workers) : 1, patience);
    try {
      [pool.abi] = await pool.#spawn();
      pool.#state = 'running';
      return pool;
    } catch (error) {
      pool.destroy();
      throw userError('BackendError', message('cpu.not-started', 'The workers on the CPU could not be started ({why}). Close other tabs, then load again.', { why: error.said ?? error.message.replace(/\.$/, '') }));
    }
  }

  constructor(kernels, script, shared, workers, patience) {
    this.#kernels = kernels;
    this.#script = script;
    this.#wanted = workers;
    this.#patience = patience;
    this.build = kernels.build;
    this.shared = shared;
    if (shared) this.#memory = sharedMemory(this.#leastPages, kernels.maximum);
  }

  /** How many times the workers were restarted. */
  restarted = 0;

  get workers() { return this.#wanted; }
  get mostWorkers() { return this.shared ? MAX_WORKERS : 1; }

  /** Grow the memory to at least this size. */
  async reserve(nbytes) {
    const pages = Math.ceil(nbytes / PAGE);
    let granted = true;
    if (!this.shared) {
      granted = await this.#inTurn(() => this.#ask(0, { kind: 'grow', pages }));
    } else {
      if (this.#end) throw this.#end;
      const memory = /** @type {WebAssembly.Memory} */ (this.#memory);
      const missing = pages - memory.buffer.byteLength / PAGE;
      try {
        if (missing > 0) memory.grow(missing);
      } catch {
        granted = false;
      }
    }
    if (!granted) {
      const gigabytes = (nbytes / 1e9).toFixed(1);
      throw userError('Error', message('cpu.no-memory', 'The model and its context need {size} GB of memory, more than this browser allows. Close other tabs and load again, or choose a smaller model.', { size: gigabytes }));
    }
  }

  /** data: a Uint8Array, which is transferred: it cannot be used afterwards. */
  write(address, data) {
    const whole = data.byteLength === data.buffer.byteLength ? data : data.slice();
    this.#inTurn(() => this.#tell(0, { kind: 'write', address, data: whole }, [whole.buffer]));
  }

  /**
   * Begin to bring kept weights to the memory. @param {import('../../storage/kept_weights.js').KeptWeights} kept
   * @returns {Promise<boolean>} true if they are there, and whole
   */
  async fill(kept) {
    if (!this.shared || kept.version !== this.#kernels.version) return false;
    const isRight = this.#fill(kept).catch(() => false);
    this.#filled = { key: kept.key, regions: kept.regions, isRight };
    return isRight;
  }

  /** Regions that are filled although they are wrong are zeros again. */
  async #fill({ file, from, regions, sums }) {
    // The file may be damaged: below HEAP_BASE are the workers' stacks.
    if (regions.some((value, at) => !Number.isSafeInteger(value) || value < (at % 2 ? 0 : HEAP_BASE))) return false;
    await this.reserve(Math.max(...regions.map((value, at) => (at % 2 ? regions[at - 1] + value : 0))));
    const last = this.workers - 1; // the first one has more to do
    for (let at = from, first = 0; first < regions.length;) {
      let end = first, nbytes = 0;
      for (; end < regions.length && nbytes < FILLED_AT_ONCE; end += 2) nbytes += regions[end + 1];
      const part = { kind: 'fill', file, from: at, regions: regions.slice(first, end) };
      const found = await this.#inTurn(() => this.#ask(last, part, []));
      if (String(found) !== String(sums.slice(first / 2, end / 2))) {
        await this.#clear(regions);
        return false;
      }
      at += nbytes;
      first = end;
    }
    return true;
  }

  /**
   * True if the memory holds the weights that these jobs would bring to these regions (address and bytes of each, in a
   * row). `changes` tells how they are changed afterwards.
   */
  async holds(jobs, regions, changes) {
    const filled = this.#filled;
    this.#filled = null;
    if (!this.shared) return false;
    const key = await hexOf(new TextEncoder().encode(`${jobs} ${regions} ${changes}`));
    if (filled && await filled.isRight) {
      if (filled.key === key && String(filled.regions) === String(regions)) return true;
      await this.#clear(filled.regions);
    }
    this.uploaded = { version: this.#kernels.version, key, regions: [...regions] };
    return false;
  }

  #clear(regions) {
    return this.#inTurn(() => this.#ask(0, { kind: 'clear', regions }, []));
  }

  /** @param {number[]} regions @returns {Promise<string[]>} the checksum of each */
  checksums(regions) {
    return quietly(this.#inTurn(() => this.#ask(0, { kind: 'checksums', regions }, [])));
  }

  /**
   * stream: a WeightStream; jobs: (file offset, bytes, format, target, first row, rows, columns) of each piece, in the
   * file's order; staging: the address of an area twice as large as the largest piece rounded up to 64 bytes.
   */
  async upload(stream, jobs, staging) {
    const lanes = Array.from({ length: Math.min(this.workers, LANES) }, () => []);
    const free = []; // buffers that were returned
    let room = 0;
    for (let at = 1; at < jobs.length; at += 7) room = Math.max(room, Math.ceil(jobs[at] / 64) * 64);
    await this.read(HEAP_BASE, 0); // other workers must not be ahead of what the first one still has to write
    for (let at = 0, turn = 0; at < jobs.length; at += 7, turn = (turn + 1) % lanes.length) {
      const [offset, nbytes, ...job] = jobs.subarray(at, at + 7);
      const data = await stream.read(offset, nbytes, free.pop());
      const lane = lanes[turn];
      if (lane.length === WAITING_PIECES) await lane.shift();
      lane.push(quietly(this.#inTurn(() => {
        const worker = turn % this.workers;
        return this.#ask(worker, { kind: 'repack', data, staging: staging + worker * room, job }, [data.buffer]);
      }).then((back) => free.push(back.buffer))));
    }
    await Promise.all(lanes.flat());
  }

  /** @returns {Promise<Int32Array>} the result of each step */
  run(program, steps) {
    return quietly(this.#inTurn(() => {
      const message = { kind: 'run', program, steps, workers: this.workers };
      for (let worker = 1; worker < this.workers; worker++) this.#tell(worker, message);
      return this.#ask(0, message, [], steps);
    }));
  }

  /** @returns {Promise<Uint8Array>} a copy */
  read(address, nbytes) {
    return quietly(this.#inTurn(() => this.#ask(0, { kind: 'read', address, nbytes })));
  }

  /** Change the number of workers once the calls under way are done. A pool without shared memory keeps its one worker. */
  async setWorkers(count) {
    if (!this.shared) return;
    const held = (this.#held ??= []);
    await new Promise((/** @type {(value: any) => void} */ resolve, reject) => {
      const resize = () => {
        this.#wanted = within(count);
        if (this.#state === 'running') this.#spawn().then(resolve, reject);
        else resolve(null); // a restart makes the wanted number
      };
      held.push(Object.assign(resize, { alone: true }));
      this.#release();
    });
  }

  destroy() {
    this.#finish(userError('Error', message('cpu.unloaded', 'The model was unloaded. Load it again.')));
  }

  /** For tests: a worker exits silently, or never answers again. */
  kill(worker) { this.#workers[worker].terminate(); }
  hang(worker) { this.#tell(worker, { kind: 'hang' }); }

  // ---- messages -------------------------------------------------------------------------------------------------

  #tell(worker, message, transfer = []) {
    if (this.#state !== 'restarting' && !this.#end) this.#workers[worker].postMessage({ ...message, epoch: this.#epoch }, transfer);
  }

  #ask(worker, message, transfer, steps = 0) {
    if (this.#end) return Promise.reject(this.#end);
    return new Promise((resolve, reject) => {
      const id = this.#next++;
      this.#asked.set(id, { resolve, reject, steps });
      this.#tell(worker, { ...message, id }, transfer);
      this.#timer ||= setInterval(() => this.#tick(), this.#patience / TICKS);
    });
  }

  /** Runs now, or once the number of workers has changed. */
  #inTurn(act) {
    const held = this.#held;
    if (!held) return act();
    return new Promise((resolve, reject) => {
      held.push(() => Promise.resolve(act()).then(resolve, reject));
    });
  }

  #answered(id, value) {
    const asked = this.#asked.get(id);
    if (!asked || this.#state === 'restarting') return; // an aborted run answers, too
    this.#asked.delete(id);
    this.#quiet = 0;
    if (asked.steps) this.#restarts = 0;
    asked.resolve(value);
    this.#release();
    if (this.#asked.size === 0) this.#rest();
  }

  /**
   * Make the calls that were held back. A run with more workers would wait at an older run's barriers, so the older run must
   * be over.
   */
  #release() {
    while (this.#held?.length) {
      if (this.#held[0].alone && this.#asked.size > 0) return;
      this.#held.shift()?.();
    }
    this.#held = null;
  }

  #rest() {
    clearInterval(this.#timer);
    this.#timer = 0;
    this.#quiet = 0;
  }

  // ---- workers --------------------------------------------------------------------------------------------------

  /** Create or end workers until the wanted number runs. Resolves once the new ones are ready; they accept messages before. */
  async #spawn() {
    for (const worker of this.#workers.splice(this.#wanted)) worker.terminate();
    const ready = [];
    while (this.#workers.length < this.#wanted) {
      const index = this.#workers.length;
      const worker = new Worker(ownScript(this.#script), { name: `sonata-kernels-${index}` });
      const ifCurrent = (act) => (event) => {
        if (this.#workers[index] === worker) act(event);
      };
      worker.onmessage = ifCurrent(({ data }) => {
        if (data.died) this.#died(data.died);
        else this.#answered(data.id, data.value);
      });
      worker.onmessageerror = ifCurrent(() => this.#died(message('cpu.unread', 'a message could not be read')));
      worker.onerror = ifCurrent((event) => {
        event.preventDefault();
        this.#died(event.message || message('cpu.script', 'the script could not be started'));
      });
      this.#workers.push(worker);
      ready.push(quietly(this.#ask(index, {
        kind: 'start', module: this.#kernels.module, memory: this.#memory, worker: index,
        pages: this.#leastPages, maximum: this.#kernels.maximum,
      })));
    }
    return Promise.all(ready);
  }

  get #leastPages() { return Math.max(this.#kernels.minimum, HEAP_BASE / PAGE); }

  /** Counts ticks instead of time, so that no worker is late because the machine slept. */
  #tick() {
    const control = this.#memory && new Int32Array(this.#memory.buffer, CONTROL, WORDS);
    const sign = control ? `${Atomics.load(control, GENERATION)} ${Atomics.load(control, STEPS)}` : '';
    if (sign !== this.#lastSign) this.#quiet = 0;
    this.#lastSign = sign;
    // A memory that is not shared cannot be watched: each of its steps may take a tenth of the patience.
    const [oldest] = this.#asked.values();
    const patience = control ? 1 : 1 + (oldest?.steps ?? 0) / 10;
    if (++this.#quiet > TICKS * patience) this.#died(message('cpu.silent', 'a worker stopped responding'));
  }

  #died(why) {
    if (this.#end || this.#state === 'restarting') return;
    console.info(`Sonata: the workers on the CPU stopped: ${why}`);
    if (this.#state === 'starting') return this.#finish(userError('Error', why));
    if (!this.shared) {
      return this.#finish(userError('WorkersLost', message('cpu.stopped', 'The worker that runs the model on the CPU stopped ({why}). Load the model again to continue. Your message is kept.', { why })));
    }
    if (++this.#restarts > RESTARTS) {
      return this.#finish(userError('WorkersFailed', message('cpu.stopped-often', 'The workers that run the model on the CPU stopped {times} times in a row ({why}). Close other tabs or programs, then load the model again.', { times: RESTARTS + 1, why })));
    }
    this.#restart(why);
  }

  async #restart(why) {
    this.#rest();
    this.#state = 'restarting';
    for (const act of this.#held?.splice(0) ?? []) act(); // they fail with the others
    this.#held = null;
    const { buffer } = /** @type {WebAssembly.Memory} */ (this.#memory);
    const control = new Int32Array(buffer, CONTROL, WORDS);
    const busy = () => control.subarray(BUSY, BUSY + MAX_WORKERS).some((_, i) => Atomics.load(control, BUSY + i));
    // Calls still queued in an old worker carry an older epoch, so they do not touch the memory of the new workers.
    Atomics.store(control, EPOCH, ++this.#epoch);
    Atomics.store(control, ABORT, 1);
    const left = () => {
      Atomics.notify(control, GENERATION); // each time: a worker may just have been about to sleep
      return !busy();
    };
    await until(left, LEAVING_MS);
    for (const worker of this.#workers.splice(0)) worker.terminate();
    await until(left, GONE_MS);
    if (this.#end) return;
    control.forEach((_, word) => word === EPOCH || Atomics.store(control, word, 0));
    this.#state = 'running';
    this.restarted += 1;
    const failed = [...this.#asked.values()];
    this.#asked.clear();
    quietly(this.#spawn());
    for (const { reject } of failed) reject(userError('WorkersRestarted', message('cpu.restarted', 'The workers on the CPU were restarted ({why}).', { why })));
  }

  #finish(error) {
    if (this.#end) return;
    this.#end = error;
    this.#state = 'ended';
    this.#rest();
    for (const worker of this.#workers.splice(0)) worker.terminate();
    URL.revokeObjectURL(this.#script);
    for (const act of this.#held?.splice(0) ?? []) act();
    this.#held = null;
    for (const { reject } of this.#asked.values()) reject(error);
    this.#asked.clear();
    this.#memory = null;
  }
}

/** One worker per core, at most eight: more workers spend more time waiting for each other than they save. */
export function defaultWorkers() {
  return within(Math.min(navigator.hardwareConcurrency || 1, 8));
}

function within(count) {
  return Math.min(Math.max(Math.floor(count) || 1, 1), MAX_WORKERS);
}

function sharedMemory(initial, most) {
  for (const maximum of LARGEST) {
    try {
      return new WebAssembly.Memory({ initial, maximum: Math.min(maximum, most), shared: true });
    } catch { /* the next one */ }
  }
  throw userError('BackendError', message('cpu.no-memory-here', 'This browser has no memory left for the model. Close other tabs, then load again.'));
}

async function fetchScript() {
  const response = await fetch(new URL('./kernel_worker.js', import.meta.url)).catch(() => null);
  if (!response?.ok) throw userError('DownloadError', message('part.page-not-loaded', 'A part of the page could not be loaded. Check your connection, then load again.'));
  return URL.createObjectURL(new Blob([await response.text()], { type: 'text/javascript' }));
}

/** Keeps a rejection from being reported as unhandled; code that awaits the promise still gets the error. */
function quietly(promise) {
  promise.catch(() => {});
  return promise;
}

async function until(holds, ms) {
  for (const end = performance.now() + ms; !holds() && performance.now() < end;) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
