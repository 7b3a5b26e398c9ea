/**
 * The engine as the page sees it: a worker, of this tab or of another one (model_tabs.js), behind Comlink. A failed
 * Engine is disposed of, and a new one is made.
 *
 * Errors have the kind as their `name` ("DeviceLostError", "GGUFError", ...). If the message is written for the user,
 * `stack` is absent (user_error.js).
 */
import * as Comlink from '../vendor/comlink.mjs';
import './stream_transfer.js';
import { ApiCalls, ConversationCalls, DeveloperCalls, FilesCalls, ModelCalls, TablesCalls, ToolsCalls } from '../protocol_calls.js';
import { Learning } from '../learning/client.js';
import { Memory } from '../memory/client.js';
import { userError } from '../common/user_error.js';
import { said } from '../i18n/engine_texts.js';

/** `conversation`, `memory`, `learning`, `files`, `tables`, `tools`, `model`, `developer` and `api` hold the calls that Python answers. */
export class Engine {
  /** @type {Promise<import('./model_tabs.js').Link>} */
  #link;

  /** @param {Promise<import('./model_tabs.js').Link>} link of ModelTabs.connect */
  constructor(link) {
    this.#link = link;
    link.catch(() => {});
    const to = /** @type {import('../protocol_calls.js').Remote} */ ({
      call: async (api, method, args) => valueOf(await this.#ask((remote) => remote.call(api, method, args))),
      stream: (api, method, args) => this.#ask((remote) => remote.stream(api, method, args)),
    });
    this.conversation = new ConversationCalls(to);
    this.memory = new Memory(to);
    this.learning = new Learning(to);
    this.files = new FilesCalls(to);
    this.tables = new TablesCalls(to);
    this.tools = new ToolsCalls(to);
    this.model = new ModelCalls(to);
    this.developer = new DeveloperCalls(to);
    this.api = new ApiCalls(to);
  }

  /**
   * Load Python, the model and what runs it.
   * @param {{model: object, backend: 'auto'|'webgpu'|'wasm'|'numpy', workers: number|null,
   *   precision: 'precise'|'fast', patience: number, context: number|null, memory: number|null, maxTokens: number|null, autotune: boolean, tiers: boolean, routing: boolean, multilingual: boolean}} options `model` as storage/model_list.js
   *   tells it; `workers`, `precision` and `patience` (ms of silence after which a worker counts as dead) are those of wasm;
   *   `memory`: MB that the model may take at most, null to leave that to the machine
   * @param {(progress: {stage: 'python'|'model'|'routing'|'setup'|'device', done?: number, total?: number|null,
   *   complete?: boolean}) => void} onProgress bytes, but of 'setup' whatever the backend counts; also later, if the
   *   GPU was lost: a new device is opened ('device') and the model is copied there ('model')
   * @returns {Promise<{backend: string, adapter: string, software: boolean, features: string[], reason: string|null, model: string,
   *   parameters: number, diffusion: boolean, contextLength: number, need: string, fit: {trained: number, weights: number, pages: number,
   *   scratch: number, contexts: number[][]}, longestPrompt: number|null, notice: string|null,
   *   runs?: {sha256: string|null, title: string|null}}>} `need`: a sentence on the
   *   memory that this context takes; `fit`: the same in bytes, and the needs of other lengths, [tokens, bytes];
   *   `longestPrompt`: the most bytes of a prompt (chat/message_length.js); `notice`: a sentence for the user if the
   *   model is not kept; `runs`: the model, if another tab runs it
   */
  start(options, onProgress) {
    return this.#ask((remote) => remote.start(options, Comlink.proxy(onProgress), Comlink.proxy(() => this.memory.tell())));
  }

  /**
   * Check whether a model could run instead of this one: by the header of its files alone, before they are copied.
   * @param {{files: File[], stem: string}} given files: one, or all parts in their order; stem: of their name
   * @returns {Promise<{title: string, licence: string}>} what people call it. Rejects with a userError that says why not
   */
  checkModel(given) { return this.#ask((remote) => remote.checkModel(given)); }

  /**
   * Keep the user's adapter (storage/adapter_store.js) for the model that runs.
   * @param {{files: File[], base: {sha256: string, title: string}}} given files: one, or the two that PEFT writes; base: the
   *   model
   * @returns {Promise<import('../storage/adapter_store.js').AdapterFacts>} Rejects with a userError that says why not
   */
  addAdapter(given) { return this.#ask((remote) => remote.addAdapter(given)); }

  /**
   * Answer with an adapter from the next message on.
   * @param {{facts: import('../storage/adapter_store.js').AdapterFacts|null, base: {sha256: string}|null}} given facts: null
   *   for none; base: the model, if the browser keeps it. Rejects if the adapter is for another one
   * @returns {Promise<string>} a sentence on what the model leaves out for it, or ""
   */
  useAdapter(given) { return this.#ask((remote) => remote.useAdapter(given)).then(said); }

  /** Python's memory, which never shrinks. @returns {Promise<number>} */
  pythonHeapBytes() { return this.#ask((remote) => remote.pythonHeapBytes()); }

  /** Change the number of workers on the CPU, also in the middle of an answer. @returns {Promise<number>} there are now */
  setWorkers(count) { return this.#ask((remote) => remote.setWorkers(count)); }

  /** Lose the GPU, as a driver reset would. */
  loseDevice() { return this.#ask((remote) => remote.loseDevice()); }

  /** End a CPU worker without a message. */
  killWorker(index) { return this.#ask((remote) => remote.killWorker(index)); }

  /** Make a CPU worker hang. */
  hangWorker(index) { return this.#ask((remote) => remote.hangWorker(index)); }

  /** Release this engine; it must not be used afterwards. */
  dispose() {
    this.#link.then((link) => link.close(), () => {});
  }

  /** @param {(remote: any) => Promise<any>} ask */
  async #ask(ask) {
    const { remote, died } = await this.#link;
    return Promise.race([ask(remote), died]);
  }
}

/** @param {Uint8Array|{value?: any, error?: any}} answer */
function valueOf(answer) {
  if (answer instanceof Uint8Array) return answer;
  if (!answer.error) return answer.value;
  const { kind, message, details, reason, field } = answer.error;
  throw Object.assign(userError(kind, message), { reason, field, stack: details ?? '' });
}
