/**
 * Runs the sentence embedder in a worker of its own, with onnxruntime-web: embedder.js describes its input and output.
 *
 * One thread: a short text takes some 4 ms, and the cores belong to the model that answers.
 */
import { message } from '../common/message.js';
import * as ort from '../vendor/ort.wasm.min.mjs';
import { fetchFile } from '../common/file_fetch.js';
import { userError } from '../common/user_error.js';
import { watchFiles } from '../common/file_progress.js';

const DIMENSIONS = 384;

ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmPaths = new URL('../vendor/', import.meta.url).href;
ort.env.logLevel = 'error';

let file = new Uint8Array(); // the weights and both graphs: app/building/embedder/export.py
const sessions = /** @type {Map<string, any>} */ (new Map()); // of onnxruntime, by the graph's name
let turn = Promise.resolve(); // a session runs one text at a time

const actions = {
  async start({ model, bytes, sha256 }) {
    const endWatch = watchFiles(/\/ort-wasm[^/]*\.wasm/, tell);
    file = await fetchModel(model, bytes, sha256);
    await run('vector', Int32Array.of(101, 102)); // do the work of a first run now
    endWatch();
  },

  async encode({ ids, lengths }) {
    const out = new Float32Array(lengths.length * DIMENSIONS);
    let at = 0;
    for (let text = 0; text < lengths.length; text++) {
      out.set(await run('vector', ids.subarray(at, at + lengths[text])), text * DIMENSIONS);
      at += lengths[text];
    }
    return out;
  },

  async states({ ids, lengths }) {
    const out = new Float32Array(ids.length * DIMENSIONS);
    let at = 0;
    for (const length of lengths) {
      out.set(await run('states', ids.subarray(at, at + length)), at * DIMENSIONS);
      at += length;
    }
    return out;
  },
};

/** Reports the number of bytes that arrived since the last call. */
function tell(bytes) {
  self.postMessage({ bytes });
}

/** graph: 'vector' gives the text's vector, with the adapter; 'states' the state of each token, without it. */
async function run(graph, ids) {
  if (!sessions.has(graph)) sessions.set(graph, await open(graph));
  const outputs = await sessions.get(graph).run({ ids: new ort.Tensor('int32', ids, [1, ids.length]) });
  return outputs[graph].data;
}

/** Opens a graph when it is first needed. The file is released once both are open. */
async function open(graph) {
  const ends = new DataView(file.buffer, file.byteOffset + file.length - 8);
  const [weights, vector] = [ends.getUint32(0, true), ends.getUint32(4, true)];
  let content = file.subarray(0, vector);
  if (graph === 'states') {
    content = new Uint8Array(weights + file.length - 8 - vector);
    content.set(file.subarray(0, weights));
    content.set(file.subarray(vector, file.length - 8), weights);
  }
  const session = await ort.InferenceSession.create(content, { executionProviders: ['wasm'], graphOptimizationLevel: 'all' });
  if (sessions.size) file = new Uint8Array();
  return session;
}

async function fetchModel(url, bytes, sha256) {
  const content = await fetchFile(url, message('part.embedder', 'The sentence embedder'), tell);
  const fail = (why) => userError('DownloadError', message('embedder.not-loaded', 'The sentence embedder could not be loaded ({why}). Check your connection, then load again.', { why }));
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
      const said = known ? error.said : message('embedder.failed', 'The sentence embedder failed ({why}). Reload the page.', { why: error.message });
      self.postMessage({ id, error: { kind: known ? error.name : 'EmbedderError', said } });
    }
  });
};
