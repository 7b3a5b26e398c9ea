/**
 * The engine as the page sees it: one worker, behind Comlink. An Engine that failed is disposed of and a new one made.
 *
 * Errors have the kind as their `name` ("DeviceLostError", "GGUFError", ...). Where the message is written for the user
 * there is no `stack` (user_error.js).
 */
import * as Comlink from '../vendor/comlink.mjs';
import './stream_transfer.js';
import { Learning } from '../learning/client.js';
import { Memory } from '../memory/client.js';
import { ownScript } from '../common/own_script.js';
import { userError } from '../common/user_error.js';

export class Engine {
  #worker;
  #remote;
  #died;

  constructor() {
    this.#worker = new Worker(ownScript(new URL('./worker.js', import.meta.url)), { type: 'module', name: 'sonata-engine' });
    this.#died = new Promise((_, reject) => {
      this.#worker.addEventListener('error', (event) => {
        event.preventDefault();
        reject(userError('WorkerError', 'The engine could not be started. Check your connection, then load again.'));
      });
    });
    this.#died.catch(() => {});
    this.#remote = Comlink.wrap(this.#worker);
    this.memory = new Memory((call, given, data) => this.#ask('memory', call, given, data));
    this.learning = new Learning((call, given) => this.#ask('learning', call, given, null));
  }

  /**
   * Load Python, the model and what runs it.
   * @param {{model: object, backend: 'auto'|'webgpu'|'wasm'|'numpy', workers: number|null,
   *   precision: 'precise'|'fast', patience: number, context: number|null, maxTokens: number|null, autotune: boolean, routing: boolean}} options `model` as storage/model_list.js
   *   tells it; `workers`, `precision` and `patience` (ms of silence after which a worker counts as dead) are those of wasm
   * @param {(progress: {stage: 'python'|'model'|'routing'|'setup'|'device', done?: number, total?: number|null,
   *   complete?: boolean}) => void} onProgress bytes, but of 'setup' whatever the backend counts; also later, where the
   *   GPU was lost: a new device is opened ('device') and the model brought there ('model')
   * @returns {Promise<{backend: string, adapter: string, software: boolean, features: string[], reason: string|null, model: string,
   *   contextLength: number, need: string|null, longestPrompt: number|null, notice: string|null}>} `need`: a sentence on the
   *   memory that a context takes that was asked for; `longestPrompt`: bytes that no prompt goes beyond
   *   (chat/message_length.js); `notice`: a sentence for the user where the model is not kept
   */
  start(options, onProgress) {
    return this.#alive(this.#remote.start(options, Comlink.proxy(onProgress), Comlink.proxy(() => this.memory.tell())));
  }

  /**
   * Whether a model could run in place of this one: by the header of its files alone, before they are copied.
   * @param {File[]} files one, or all parts in their order. Rejects with a userError that says why not
   */
  checkModel(files) {
    return this.#alive(this.#remote.checkModel(files));
  }

  /**
   * Keep an adapter (storage/adapter_store.js) of the user's for the model that runs.
   * @param {File[]} files one, or the two that PEFT writes
   * @param {{sha256: string, title: string}} base the model
   * @returns {Promise<import('../storage/adapter_store.js').AdapterFacts>} Rejects with a userError that says why not
   */
  addAdapter(files, base) {
    return this.#alive(this.#remote.addAdapter(files, base));
  }

  /**
   * Answer with an adapter from the next message on.
   * @param {import('../storage/adapter_store.js').AdapterFacts|null} facts null: without one
   * @param {{sha256: string}|null} base the model, where the browser keeps it. Rejects where the adapter is for another one
   * @returns {Promise<string>} a sentence on what the model leaves out for it, or ""
   */
  useAdapter(facts, base) {
    return this.#alive(this.#remote.useAdapter(facts, base));
  }

  /** An adapter was deleted: an answer that it gives ends. @param {string} name */
  forgetAdapter(name) {
    return this.#alive(this.#remote.forgetAdapter(name));
  }

  /**
   * Let the model that runs be taught, once the memory and the routing are there. What the learning api tells says
   * whether that failed.
   * @param {string|null} base the sha256 of the model's file; null where it is not known
   * @param {number|null} idle after so many seconds in which nobody did anything it may learn; null: the usual number
   */
  openLearning(base, idle = null) {
    return this.#alive(this.#remote.openLearning(base ?? '', idle));
  }

  /** Somebody does something: what is learned in idle times stands still for some seconds. */
  noteActivity() {
    return this.#alive(this.#remote.noteActivity());
  }

  /** @param {number} level 0 to 1 @param {boolean} charging */
  noteBattery(level, charging) {
    return this.#alive(this.#remote.noteBattery(level, charging));
  }

  /**
   * @param {string} text
   * @param {boolean} [again] another answer to the last message, which this text is, in place of the one there is
   * @returns {Promise<AsyncIterator<object>>} of {type: 'reading', done, total} (tokens of the prompt), {type: 'route', id, text, agent, title, confidence, ranked, neighbours, ms}
   *   where it was routed (app/routing_service.py: route_entry), {type: 'learned', id, question, answer, ms, nllBefore, nllAfter} where the
   *   message asked to remember something (app/turn_details.py: taught_details), {type: 'lesson', id, question, answer, confidence, ms,
   *   considered} where a lesson answers (app/learning_service.py: lesson_entry), {type: 'thought', text} ... of a model that thinks before
   *   it answers, {type: 'delta', text} ..., then one {type: 'done', reason, promptTokens, newTokens, prefillTokS, decodeTokS,
   *   forgottenTurns, thoughtSeconds, text, thought} (text, thought: of an answer that repeated itself, what is left) or {type: 'error', kind, message, details} (details: null where the message is written for the user),
   *   and {type: 'stored', chat, turns, answer, request}: the id of the stored conversation, how many turns it has now,
   *   the text of the last, and its id
   */
  respond(text, again = false) {
    return this.#alive(this.#remote.respond(text, again));
  }

  /** End the running answer after the present token. */
  stop() {
    return this.#alive(this.#remote.stop());
  }

  /** Forget the conversation. */
  newChat() {
    return this.#alive(this.#remote.newChat());
  }

  /** Go on with a stored conversation. @returns {Promise<{role: string, content: string, created: number, agent: string|null}[]>} what was said */
  resume(id) {
    return this.#alive(this.#remote.resume(id));
  }

  /**
   * One prompt beside the conversation, as `sonata generate` does on the command line. `raw`: no chat template, special
   * tokens parsed.
   * @returns {Promise<{prompt_tokens: number[], tokens: number[], text: string, backend: string, adapter: string,
   *   prefill_tok_s: number, decode_tok_s: number, reason: string}>}
   */
  generate(prompt, { raw = false, maxTokens = 128, temperature = 0, seed = 0 } = {}) {
    return this.#alive(this.#remote.generate(prompt, { raw, maxTokens, temperature, seed }));
  }

  /** The logits after a prompt's last token. @returns {Promise<Float32Array>} */
  logits(prompt, { raw = false } = {}) {
    return this.#alive(this.#remote.logits(prompt, raw));
  }

  /**
   * Measure each kernel of a token on the GPU, after the running answer.
   * @param {(done: number) => void} onProgress from 0, when its turn has come, to 1
   * @returns {Promise<any>} app.bench.profile_report's
   */
  profile(onProgress) {
    return this.#alive(this.#remote.profile(Comlink.proxy(onProgress)));
  }

  /** End the measurement that is running, if any. */
  stopProfile() {
    return this.#alive(this.#remote.stopProfile());
  }

  /** Python's memory, which never shrinks. @returns {Promise<number>} */
  pythonHeapBytes() {
    return this.#alive(this.#remote.pythonHeapBytes());
  }

  /** Change the number of workers on the CPU, also in the middle of an answer. @returns {Promise<number>} there are now */
  setWorkers(count) {
    return this.#alive(this.#remote.setWorkers(count));
  }

  /** Make the GPU go away, as a driver reset would. */
  loseDevice() {
    return this.#alive(this.#remote.loseDevice());
  }

  /** Make a worker on the CPU go away without a word. */
  killWorker(index) {
    return this.#alive(this.#remote.killWorker(index));
  }

  /** Make a worker on the CPU never answer again. */
  hangWorker(index) {
    return this.#alive(this.#remote.hangWorker(index));
  }

  dispose() {
    this.#worker.terminate();
  }

  /** @returns {Promise<any>} what a call of an api gives (app/page_calls.py). Rejects with its error */
  async #ask(api, call, given, data) {
    return valueOf(await this.#alive(this.#remote.ask(api, call, given, data)));
  }

  #alive(promise) {
    return Promise.race([promise, this.#died]);
  }
}

/** @param {Uint8Array|{value?: any, error?: any}} answer */
function valueOf(answer) {
  if (answer instanceof Uint8Array) return answer;
  if (!answer.error) return answer.value;
  const { kind, message, details, reason, field } = answer.error;
  throw Object.assign(userError(kind, message), { reason, field, stack: details ?? '' });
}
