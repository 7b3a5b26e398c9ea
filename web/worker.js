/**
 * The engine's side of the page: Python in this worker, behind Comlink. engine.js says what each call does.
 *
 * Python, the model's bytes and the GPU or the CPU's workers are asked for at the same time; app/worker.py joins them.
 */
import * as Comlink from './vendor/comlink.mjs';
import './stream_transfer.js';
import { chooseBackend } from './backend_choice.js';
import { EventQueue } from './event_queue.js';
import { ModelSource } from './model_source.js';
import { bootPython } from './python_runtime.js';
import { tuningStore } from './tuning_store.js';
import { userError } from './user_error.js';
import { WeightStream } from './weight_stream.js';

const PROGRESS_EVERY_MS = 50;

let page = null; // app.worker.PageWorker
let executor = null;
let pool = null; // KernelPool
let python = null; // Pyodide

Comlink.expose({
  async start({ model, backend, workers, precision, patience, maxTokens, autotune }, onProgress) {
    const downloads = new AbortController();
    const source = new ModelSource(model);
    try {
      const [pyodide, stream, choice] = await Promise.all([
        bootPython().then((booted) => {
          onProgress({ stage: 'python', done: 1, total: 1 });
          return booted;
        }),
        openWeights(source, downloads.signal, onProgress),
        chooseBackend({ backend, workers, patience }),
      ]);
      ({ executor, pool } = choice);
      python = pyodide;
      if (executor) executor.onReopen = () => onProgress({ stage: 'device', done: 0, total: null });
      page = pyodide.pyimport('app.worker').PageWorker();
      const limits = maxTokens ? [maxTokens] : [];
      // undefined is Python's None, null is not.
      const device = executor ?? pool ?? undefined;
      const tuning = autotune ? tuningStore : undefined;
      const ready = throttled(onProgress, 'ready');
      const info = JSON.parse(await page.start(device, stream, ready, precision, tuning, ...limits));
      if (info.error) throw pythonError(info.error);
      stream.drain();
      onProgress({ stage: 'ready', done: 1, total: 1 });
      return { ...info, reason: choice.reason, notice: source.notice };
    } catch (error) {
      downloads.abort();
      throw error;
    }
  },

  respond(text) {
    const events = new EventQueue();
    page
      .respond(text, (type, value) => events.push(type === 'delta' ? { type, text: value } : { type, ...JSON.parse(value) }))
      .then(() => events.end(), (error) => events.fail(error));
    return events;
  },

  stop() {
    page.stop();
  },

  newChat() {
    return page.new_chat();
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

async function openWeights(source, signal, onProgress) {
  try {
    return await WeightStream.open(source, { signal, onProgress: throttled(onProgress, 'model') });
  } catch (error) {
    throw userError('DownloadError', error.message);
  }
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
