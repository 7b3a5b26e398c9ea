/**
 * Runs the sentence embedder in a worker of its own, with onnxruntime-web: embedder.js says what goes in and out.
 *
 * One thread: a short text takes some 4 ms, and the cores belong to the model that answers.
 */
import * as ort from '../vendor/ort.wasm.min.mjs';
import { fetchFile } from '../common/fetch_file.js';
import { userError } from '../common/user_error.js';
import { watchFiles } from '../common/watch_files.js';

const DIMENSIONS = 384;

ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmPaths = new URL('../vendor/', import.meta.url).href;
ort.env.logLevel = 'error';

let session = /** @type {any} */ (null); // of onnxruntime
let turn = Promise.resolve(); // a session runs one text at a time

const actions = {
  async start({ model, bytes, sha256 }) {
    const endWatch = watchFiles(/\/ort-wasm[^/]*\.wasm/, tell);
    const content = await fetchModel(model, bytes, sha256);
    session = await ort.InferenceSession.create(content, { executionProviders: ['wasm'], graphOptimizationLevel: 'all' });
    await run(Int32Array.of(101, 102), true); // what is made at a first run is made now
    endWatch();
  },

  async encode({ ids, lengths }) {
    const out = new Float32Array(lengths.length * DIMENSIONS);
    let at = 0;
    for (let text = 0; text < lengths.length; text++) {
      out.set(await run(ids.subarray(at, at + lengths[text]), true), text * DIMENSIONS);
      at += lengths[text];
    }
    return out;
  },

  async states({ ids, lengths }) {
    const out = new Float32Array(ids.length * DIMENSIONS);
    let at = 0;
    for (const length of lengths) {
      out.set(await run(ids.subarray(at, at + length), false), at * DIMENSIONS);
      at += length;
    }
    return out;
  },
};

/** How many more bytes have come in. */
function tell(bytes) {
  self.postMessage({ bytes });
}

/** adapted: the text's vector, with the adapter; otherwise the state of each token, without it. */
async function run(ids, adapted) {
  const feeds = { ids: new ort.Tensor('int32', ids, [1, ids.length]), adapted: new ort.Tensor('bool', [adapted], []) };
  const { rows } = await session.run(feeds);
  return rows.data;
}

async function fetchModel(url, bytes, sha256) {
  const content = await fetchFile(url, 'The sentence embedder', tell);
  const fail = (why) => userError('DownloadError', `The sentence embedder could not be loaded (${why}). Check your connection, then load again.`);
  if (content.byteLength !== bytes) throw fail(`the file has ${content.byteLength} bytes instead of ${bytes}`);
  if (globalThis.crypto?.subtle) { // only in a secure context
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', content));
    const found = Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
    if (found !== sha256) throw fail('the file was damaged on its way');
  }
  return content;
}

self.onmessage = ({ data: { id, kind, ...content } }) => {
  turn = turn.then(async () => {
    try {
      const value = await actions[kind](content);
      self.postMessage({ id, value }, value ? [value.buffer] : []);
    } catch (error) {
      const known = error.name === 'DownloadError';
      const message = known ? error.message : `The sentence embedder failed (${error.message}). Reload the page.`;
      self.postMessage({ id, error: { kind: known ? error.name : 'EmbedderError', message } });
    }
  });
};
