/**
 * The engine's side of the pages that use it: Python in this worker, behind Comlink. engine.js says what each call does.
 *
 * The tab that made this worker has a PageApi, and so has each tab that it lets in (model_tabs.js): with a conversation
 * of its own, on the same model. Python, the model's bytes and the GPU or the CPU's workers are requested at the same
 * time; app/page/worker.py joins them.
 */
import { message } from '../common/message.js';
import * as Comlink from '../vendor/comlink.mjs';
import './stream_transfer.js';
import { keepAdapter, readAdapter } from '../storage/adapter_store.js';
import { chooseBackend } from '../backends/backend_choice.js';
import { Embedder } from '../routing/embedder.js';
import { EventQueue } from './event_queue.js';
import { fetchFile } from '../common/file_fetch.js';
import { phase } from '../common/phase.js';
import { loadHnswKernel } from '../routing/hnsw_kernel.js';
import { deriveCipher } from '../memory/encryption.js';
import { memoryStore } from '../memory/indexeddb.js';
import { oneLearner } from '../learning/one_learner.js';
import { findWeights, keepWeights } from '../storage/kept_weights.js';
import { ModelSource } from '../storage/model_source.js';
import { bootPython } from './python_runtime.js';
import { TemplateCage } from '../tokenizers/template_cage.js';
import { openGrammarKernel } from './grammar_kernel.js';
import { tuningStore } from '../storage/tuning_store.js';
import '../common/error_transfer.js';
import { userError } from '../common/user_error.js';
import { AHEAD, WeightStream } from '../backends/weight_stream.js';

const PROGRESS_EVERY_MS = 50;
const MOST_ADAPTER_BYTES = 2 ** 29;
const KEEPING_MS = 5000; // after the start, in which the first question is answered

// The memory's info before Python has started.
const OPENING = {
  state: 'opening', routing: 'opening', learning: 'opening', problem: null, persistent: false, place: '', encrypted: false, agents: [],
  unreadable: 0, uncompacted: null, suspicion: null,
};
const NOT_OPEN = {
  kind: 'StoreError', message: message('memory.opening', 'The memory is still opening. Try again in a moment.'), details: null, reason: 'busy',
};

let running = /** @type {any} */ (null); // app.page.worker.PageModel
let starting = /** @type {Promise<object>|null} */ (null); // what `start` tells
let executor = /** @type {any} */ (null); // of the GPU
let pool = /** @type {import('../backends/wasm/kernel_pool.js').KernelPool|null} */ (null);
let python = /** @type {any} */ (null); // Pyodide
const pages = /** @type {Set<PageApi>} */ (new Set());
const tabs = /** @type {Map<string, PageApi>} */ (new Map()); // those of other tabs, by the lock that a tab holds
let isLoaded = false;
const progress = /** @type {Map<string, object>} */ (new Map()); // the last of each stage, for a tab that comes later

// Python takes the longest and is the same for every model: it starts before a page asks for anything.
const counting = siteSizes(tellProgress);
const booting = counting.then(({ count, snapshot }) => bootPython(count('python'), snapshot));
booting.then(() => phase('python'), () => {}); // `load` throws why not

/** The calls of one tab to the engine. */
class PageApi {
  onProgress = (/** @type {object} */ _progress) => {};
  onMemory = () => {};
  #session = /** @type {any} */ (null); // app.page.session.PageSession
  #end = () => {};

  /** @param {() => void} [end] closes the connection */
  constructor(end) {
    if (end) this.#end = end;
    pages.add(this);
  }

  /** null while Python starts. */
  get #page() {
    return running && (this.#session ??= running.new_session());
  }

  /** The first tab's options count: those of other tabs are the same (model_tabs.js), or were changed since. */
  start(options, onProgress, onMemory) {
    this.onProgress = onProgress;
    this.onMemory = onMemory;
    for (const last of progress.values()) onProgress(last);
    starting ??= load(options);
    return starting;
  }

  /** Let another tab in. @param {MessagePort} port @param {string} tab the lock that it holds as long as it lives */
  connect(port, tab) {
    tabs.get(tab)?.leave();
    const gone = new AbortController();
    const page = new PageApi(() => {
      gone.abort();
      port.close();
      if (tabs.get(tab) === page) tabs.delete(tab);
    });
    tabs.set(tab, page);
    Comlink.expose(page, port);
    navigator.locks.request(tab, { signal: gone.signal }, () => page.leave()).catch(() => {});
  }

  /** This tab no longer uses the engine. */
  leave() {
    pages.delete(this);
    this.#end();
    const session = this.#session;
    this.#session = null;
    if (session) running.end_session(session).then(() => session.destroy());
  }

  /** Return, to show that the worker responds. */
  ping() {}

  /** A call of an api (app/page/calls.py). Python's errors are an answer, too: {error}. */
  async call(api, method, args) {
    if (!this.#page) return api === 'memory' && method === 'info' ? { value: OPENING } : { error: NOT_OPEN };
    const isData = ([, value]) => value instanceof Uint8Array, given = Object.entries(args);
    const plain = JSON.stringify(Object.fromEntries(given.filter((one) => !isData(one))));
    const answer = await this.#page.call(api, method, plain, Object.fromEntries(given.filter(isData)));
    return typeof answer === 'string' ? JSON.parse(answer) : copied(answer);
  }

  /** A call that yields one value after the other. Its arguments must not be bytes. */
  stream(api, method, args) {
    if (!this.#page) throw pythonError(NOT_OPEN);
    let isLeft = false;
    const events = new EventQueue(() => { isLeft = true; });
    const tell = (/** @type {string} */ event) => {
      events.push(JSON.parse(event));
      return !isLeft;
    };
    const ended = this.#page.stream(api, method, JSON.stringify(args), tell).then(valueOf);
    ended.then(() => events.end(), (error) => events.fail(error));
    return events;
  }

  async checkModel({ files, stem }) {
    if (!running) return { title: stem, licence: '' }; // loading it will report the error
    const stream = await WeightStream.open(new ModelSource({ blobs: files }));
    try {
      return valueOf(await running.check_model.callKwargs({ stream, stem }));
    } catch (error) {
      if (error.name !== 'AdapterFileError') error.name = 'FilesError'; // no advice about a server
      throw error;
    } finally {
      stream.close();
    }
  }

  addAdapter({ files, base }) {
    return keepAdapter(async (kept) => {
      const large = files.find(({ size }) => size > MOST_ADAPTER_BYTES);
      if (large) throw userError('AdapterError', message('adapter.larger-than-any', '{name} is larger than any adapter. To open a model, choose a file that ends in .gguf.', { name: large.name }));
      const given = await Promise.all(files.map(async (file) => [file.name, new Uint8Array(await file.arrayBuffer())]));
      const [answer, bytes] = await running.import_adapter.callKwargs({ files: given, base: JSON.stringify(base), kept: JSON.stringify(kept) });
      return { facts: { ...valueOf(answer), base, bytes: bytes.length }, bytes };
    });
  }

  async useAdapter({ facts, base }) {
    const read = async () => new Uint8Array(await (await readAdapter(facts)).arrayBuffer());
    return valueOf(await this.#page.use_adapter.callKwargs({ name: facts?.name ?? '', base: base?.sha256 ?? '', read }));
  }

  pythonHeapBytes() {
    return python._module.HEAPU8.length;
  }

  async setWorkers(count) {
    await pool?.setWorkers(count);
    return pool?.workers ?? 0;
  }

  loseDevice() {
    executor?.destroy();
  }

  killWorker(index) {
    pool?.kill(index);
  }

  hangWorker(index) {
    pool?.hang(index);
  }
}

Comlink.expose(new PageApi());

/** Load Python, the model and what runs it: see `Engine.start`. */
async function load({ model, backend, workers, precision, patience, context, memory, maxTokens, autotune, tiers, routing, multilingual }) {
  const downloads = new AbortController();
  const source = new ModelSource(model);
  const templates = new TemplateCage();
  let filling = Promise.resolve(false);
  try {
    phase('worker asked');
    const { count, hasMultilingual } = await counting;
    const isMultilingual = multilingual && hasMultilingual;
    const keptWeights = findWeights(model);
    const router = routing ? openRouter(count('routing', isMultilingual ? 'routing_multilingual' : 'routing'), isMultilingual) : undefined;
    router?.then(() => tellProgress({ stage: 'routing', complete: true }), () => {});
    const [pyodide, stream, choice] = await Promise.all([
      booting.then((booted) => {
        running = booted.pyimport('app.page.worker').PageModel(deriveCipher, tellMemory, oneLearner, fetchReader, memoryStore, router);
        phase('modules imported');
        running.open().then(); // a coroutine runs only once it is awaited
        tellProgress({ stage: 'python', complete: true });
        return booted;
      }),
      openWeights(source, downloads.signal, tellProgress).then((opened) => {
        phase('model opened');
        keptWeights.then((kept) => kept || opened.fetchAhead(AHEAD));
        return opened;
      }),
      chooseBackend({ backend, workers, patience }).then(async (chosen) => {
        phase('device');
        filling = fillWeights(chosen.pool, await keptWeights);
        return chosen;
      }),
    ]);
    ({ executor, pool } = choice);
    filling.then((isFilled) => isFilled || stream.fetchAhead(AHEAD));
    python = pyodide;
    if (executor) executor.onReopen = () => tellProgress({ stage: 'device', done: 0, total: null });
    const info = valueOf(await running.start.callKwargs({ // undefined is Python's None, null is not
      device: executor ?? pool ?? undefined, stream, templates, on_progress: throttled(tellProgress, 'setup'), precision,
      tuning: autotune ? tuningStore : undefined, memory: machineMemory(),
      chosen_memory: memory ? Math.round(memory * 1e6) : undefined, context: context ?? undefined,
      max_tokens: maxTokens ?? undefined, tiers, stem: stemOf(model), open_grammar_kernel: openGrammarKernel,
    }));
    phase('model loaded');
    const kernels = choice.pool;
    if (kernels?.uploaded) setTimeout(() => keepWeights(model, kernels).catch(() => {}), KEEPING_MS);
    if (await filling && !kernels?.uploaded) stream.close();
    else stream.drain();
    progress.clear();
    isLoaded = true;
    const runs = { sha256: model.sha256 ?? null, title: model.title ?? null };
    return { ...info, runs, reason: choice.reason, notice: source.notice };
  } catch (error) {
    downloads.abort();
    throw error;
  }
}

/** The name of a model's file without its ending. */
function stemOf({ stem, url }) {
  return stem ?? decodeURI(new URL(url, self.location.href).pathname.split('/').at(-1) ?? '').replace(/\.gguf$/i, '');
}

/** @param {{stage: string, done?: number, total?: number|null, complete?: boolean}} told as `Engine.start` tells it */
function tellProgress(told) {
  if (!isLoaded) progress.set(told.stage, told);
  for (const page of pages) page.onProgress(told);
}

function tellMemory() {
  for (const page of pages) page.onMemory();
}

/**
 * The contents of sizes.json: `count` counts the bytes of the site's files by stage; `snapshot`: the checksum of
 * Python's snapshot, null if there is none. hasMultilingual: the site has an embedder for other languages than English.
 * @returns {Promise<{count: (stage: 'python'|'routing', part?: string) => (bytes: number) => void, snapshot: string|null,
 *   hasMultilingual: boolean}>}
 */
async function siteSizes(onProgress) {
  const sizes = JSON.parse(new TextDecoder().decode(await fetchFile(new URL('../sizes.json', import.meta.url), message('part.page', 'A part of the page'))));
  const count = (stage, part = stage) => {
    const total = sizes[part];
    const report = throttled(onProgress, stage);
    let done = 0;
    report(0, total);
    return (bytes) => {
      done = Math.min(done + bytes, total);
      report(done, total);
    };
  };
  return { count, snapshot: sizes.snapshot, hasMultilingual: Boolean(sizes.multilingual) };
}

/** Load routing while Python boots and the model loads. The memory's info tells if that failed. */
function openRouter(onBytes, isMultilingual) {
  const here = (path) => new URL(`../${isMultilingual ? 'multilingual/' : ''}${path}`, import.meta.url).href;
  const data = (name) => fetchFile(here(name), message('part.router', 'The router'), onBytes);
  const parts = [
    Embedder.open(here(isMultilingual ? '' : 'embedder/'), onBytes), booting.then(loadHnswKernel),
    data('routing.safetensors'), isMultilingual ? data('gate.safetensors') : undefined,
  ];
  const opening = Promise.all(parts).then(([embedder, kernel, data, gate]) => ({ embedder, kernel, data, gate }));
  opening.catch(() => {});
  return opening;
}

/** A reader of facts (app/lessons/reader.py). The service worker keeps it from then on. */
function fetchReader(name) {
  return fetchFile(new URL(`../readers/${name}`, import.meta.url), message('part.reader', 'The reader of facts'));
}

/** Bring kept weights to the memory of the CPU's kernels. @returns {Promise<boolean>} true if they are there */
async function fillWeights(pool, kept) {
  const isFilled = Boolean(pool && kept && await pool.fill(kept));
  if (!isFilled) return false;
  phase('weights filled');
  tellProgress({ stage: 'model', complete: true });
  return true;
}

async function openWeights(source, signal, onProgress) {
  try {
    const report = throttled(onProgress, 'model');
    return await WeightStream.open(source, {
      signal,
      ahead: 0, // with kept weights, only the file's beginning is read
      onProgress: (done, total) => {
        report(done, total);
        if (done === total) onProgress({ stage: 'model', complete: true });
      },
    });
  } catch (error) {
    throw userError('DownloadError', error.said ?? error.message);
  }
}

/** Bytes of this machine's memory; undefined if the browser does not say, or only says that they are many. */
function machineMemory() {
  const gigabytes = /** @type {any} */ (navigator).deviceMemory;
  return gigabytes < 8 ? gigabytes * 2 ** 30 : undefined;
}

/** (done, total) -> onProgress, not more often than a person can read. */
function throttled(onProgress, stage) {
  let last = -Infinity;
  return (done, total) => {
    const now = performance.now();
    if (now - last < PROGRESS_EVERY_MS && done !== total) return;
    last = now;
    onProgress({ stage, done, total: total ?? null });
  };
}

/** Python's bytes or array, as a typed array of its own. */
function copied(proxy) {
  const values = proxy.toJs();
  proxy.destroy();
  return values;
}

/** The result in an answer of Python's (app/page/calls.py: answer_of). Throws its error. @param {string} answer */
function valueOf(answer) {
  const { value, error } = JSON.parse(answer);
  if (error) throw pythonError(error);
  return value;
}

function pythonError({ kind, message, details }) {
  const error = userError(kind, message);
  error.stack = details ?? '';
  return error;
}
