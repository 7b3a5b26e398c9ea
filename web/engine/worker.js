/**
 * The engine's side of the page: Python in this worker, behind Comlink. engine.js says what each call does.
 *
 * Python, the model's bytes and the GPU or the CPU's workers are asked for at the same time; app/worker.py joins them.
 */
import * as Comlink from '../vendor/comlink.mjs';
import './stream_transfer.js';
import { keepAdapter, readAdapter } from '../storage/adapter_store.js';
import { chooseBackend } from '../backends/backend_choice.js';
import { Embedder } from '../routing/embedder.js';
import { EventQueue } from './event_queue.js';
import { fetchFile } from '../common/fetch_file.js';
import { loadHnswKernel } from '../routing/hnsw_kernel.js';
import { deriveCipher } from '../memory/encryption.js';
import { memoryStore } from '../memory/indexeddb.js';
import { oneLearner } from '../learning/one_learner.js';
import { ModelSource } from '../storage/model_source.js';
import { bootPython } from './python_runtime.js';
import { TemplateCage } from '../tokenizers/template_cage.js';
import { tuningStore } from '../storage/tuning_store.js';
import { userError } from '../common/user_error.js';
import { WeightStream } from '../backends/weight_stream.js';

const PROGRESS_EVERY_MS = 50;
const MOST_ADAPTER_BYTES = 2 ** 29;

// The memory's info before Python has started.
const OPENING = {
  state: 'opening', routing: 'opening', learning: 'opening', problem: null, persistent: false, place: '', encrypted: false, counts: {}, nouns: {}, agents: [],
  unreadable: 0, uncompacted: null, suspicion: null,
};
const NOT_OPEN = {
  kind: 'StoreError', message: 'The memory is still opening. Try again in a moment.', details: null, reason: 'busy',
};

let page = /** @type {any} */ (null); // app.worker.PageWorker
let executor = /** @type {any} */ (null); // of the GPU
let pool = /** @type {import('../backends/wasm/kernel_pool.js').KernelPool|null} */ (null);
let python = /** @type {any} */ (null); // Pyodide

Comlink.expose({
  async start({ model, backend, workers, precision, patience, context, maxTokens, autotune, routing }, onProgress, onMemory) {
    const downloads = new AbortController();
    const source = new ModelSource(model);
    const templates = new TemplateCage();
    try {
      const count = await byteCounter(onProgress);
      const booting = bootPython(count('python'));
      const router = routing ? openRouter(booting, count('routing')) : undefined;
      router?.then(() => onProgress({ stage: 'routing', complete: true }), () => {});
      const [pyodide, stream, choice] = await Promise.all([
        booting.then((booted) => {
          page = booted.pyimport('app.worker').PageWorker(deriveCipher, () => void onMemory(), oneLearner, fetchReader);
          page.open_memory(memoryStore).then(() => page.open_routing(router));
          onProgress({ stage: 'python', complete: true });
          return booted;
        }),
        openWeights(source, downloads.signal, onProgress),
        chooseBackend({ backend, workers, patience }),
      ]);
      ({ executor, pool } = choice);
      python = pyodide;
      if (executor) executor.onReopen = () => onProgress({ stage: 'device', done: 0, total: null });
      const limits = maxTokens ? [maxTokens] : [];
      // undefined is Python's None, null is not.
      const device = executor ?? pool ?? undefined;
      const tuning = autotune ? tuningStore : undefined;
      const preparing = throttled(onProgress, 'setup');
      const info = JSON.parse(await page.start(device, stream, templates, preparing, precision, tuning, memory(), context ?? undefined, ...limits));
      if (info.error) throw pythonError(info.error);
      stream.drain();
      return { ...info, reason: choice.reason, notice: source.notice };
    } catch (error) {
      downloads.abort();
      throw error;
    }
  },

  async checkModel(blobs) {
    if (!page) return; // whoever loads it will be told
    const stream = await WeightStream.open(new ModelSource({ blobs }));
    try {
      const { error } = JSON.parse(await page.check_model(stream));
      const kind = error?.kind === 'AdapterFileError' ? error.kind : 'FilesError'; // no advice about a server
      if (error) throw pythonError({ ...error, kind });
    } finally {
      stream.close();
    }
  },

  addAdapter(files, base) {
    return keepAdapter(async (kept) => {
      const large = files.find(({ size }) => size > MOST_ADAPTER_BYTES);
      if (large) throw userError('AdapterError', `${large.name} is larger than any adapter. To open a model, choose a file that ends in .gguf.`);
      const given = await Promise.all(files.map(async (file) => [file.name, new Uint8Array(await file.arrayBuffer())]));
      const [answer, bytes] = await page.import_adapter(given, JSON.stringify(base), JSON.stringify(kept));
      const { error, facts } = JSON.parse(answer);
      if (error) throw pythonError(error);
      return { facts: { ...facts, base, bytes: bytes.length }, bytes };
    });
  },

  async useAdapter(facts, base) {
    const read = async () => new Uint8Array(await (await readAdapter(facts)).arrayBuffer());
    const { error, note } = JSON.parse(await page.use_adapter(facts?.name ?? '', base?.sha256 ?? '', read));
    if (error) throw pythonError(error);
    return note;
  },

  async forgetAdapter(name) {
    await page?.forget_adapter(name);
  },

  async openLearning(base, idle) {
    await page.open_learning(base, ...(idle === null ? [] : [idle]));
  },

  noteActivity() {
    page?.note_activity();
  },

  noteBattery(level, charging) {
    page?.note_battery(level, charging);
  },

  respond(text, again) {
    const events = new EventQueue();
    const push = (type, value) => events.push(type === 'delta' ? { type, text: value } : { ...JSON.parse(value), type });
    page.respond(text, push, again)
      .then(() => events.end(), (error) => events.fail(error));
    return events;
  },

  stop() {
    page.stop();
  },

  newChat() {
    return page.new_chat();
  },

  /** A call of an api of app/page_calls.py; `data`, bytes, is its first argument. */
  async ask(api, call, given, data) {
    if (!page) return api === 'memory' && call === 'info' ? { value: OPENING } : { error: NOT_OPEN };
    const answer = await page.ask(api, call, JSON.stringify(given), data ?? undefined);
    return typeof answer === 'string' ? JSON.parse(answer) : answer;
  },

  async resume(id) {
    const { error, value } = JSON.parse(await page.resume(id));
    if (error) throw pythonError(error);
    return value;
  },

  async generate(prompt, { raw, maxTokens, temperature, seed }) {
    return JSON.parse(await page.generate(prompt, raw, maxTokens, temperature, seed));
  },

  logits(prompt, raw) {
    return page.logits(prompt, raw);
  },

  async profile(onProgress) {
    const report = JSON.parse(await page.profile((done) => void onProgress(done)));
    if (report.error) throw pythonError(report.error);
    return report;
  },

  stopProfile() {
    page.stop_profile();
  },

  pythonHeapBytes() {
    return python._module.HEAPU8.length;
  },

  async setWorkers(count) {
    await pool?.setWorkers(count);
    return pool?.workers ?? 0;
  },

  loseDevice() {
    executor?.destroy();
  },

  killWorker(index) {
    pool?.kill(index);
  },

  hangWorker(index) {
    pool?.hang(index);
  },
});

/**
 * Counts the bytes of the site's files by stage; sizes.json has their sums.
 * @returns {Promise<(stage: 'python'|'routing') => (bytes: number) => void>}
 */
async function byteCounter(onProgress) {
  const sizes = JSON.parse(new TextDecoder().decode(await fetchFile(new URL('../sizes.json', import.meta.url), 'A part of the page')));
  return (stage) => {
    const total = sizes[stage];
    const report = throttled(onProgress, stage);
    let done = 0;
    report(0, total);
    return (bytes) => {
      done = Math.min(done + bytes, total);
      report(done, total);
    };
  };
}

/** Load routing while Python boots and the model loads. The memory's info tells if that failed. */
function openRouter(booting, onBytes) {
  const here = (path) => new URL(path, import.meta.url).href;
  const parts = [
    Embedder.open(here('../embedder/'), onBytes), booting.then(loadHnswKernel),
    fetchFile(here('../routing.safetensors'), 'The router', onBytes),
  ];
  const opening = Promise.all(parts).then(([embedder, kernel, data]) => ({ embedder, kernel, data }));
  opening.catch(() => {});
  return opening;
}

/** A reader of facts (app/fact_reader.py). The service worker keeps it from then on. */
function fetchReader(name) {
  return fetchFile(new URL(`../readers/${name}`, import.meta.url), 'The reader of facts');
}

async function openWeights(source, signal, onProgress) {
  try {
    const report = throttled(onProgress, 'model');
    return await WeightStream.open(source, {
      signal,
      onProgress: (done, total) => {
        report(done, total);
        if (done === total) onProgress({ stage: 'model', complete: true });
      },
    });
  } catch (error) {
    throw userError('DownloadError', error.message);
  }
}

/** Bytes of this machine; undefined where the browser does not tell, or only that they are many. */
function memory() {
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

function pythonError({ kind, message, details }) {
  const error = userError(kind, message);
  error.stack = details ?? '';
  return error;
}
