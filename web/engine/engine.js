/**
 * The engine as the page sees it: a worker, of this tab or of another one (model_tabs.js), behind Comlink. An Engine that
 * failed is disposed of and a new one made.
 *
 * Errors have the kind as their `name` ("DeviceLostError", "GGUFError", ...). Where the message is written for the user
 * there is no `stack` (user_error.js).
 */
import * as Comlink from '../vendor/comlink.mjs';
import './stream_transfer.js';
import { Files } from '../files/client.js';
import { Learning } from '../learning/client.js';
import { Memory } from '../memory/client.js';
import { userError } from '../common/user_error.js';
import { said } from '../i18n/engine_texts.js';

export class Engine {
  /** @type {Promise<import('./model_tabs.js').Link>} */
  #link;

  /** @param {Promise<import('./model_tabs.js').Link>} link of ModelTabs.connect */
  constructor(link) {
    this.#link = link;
    link.catch(() => {});
    this.memory = new Memory((call, given, data) => this.#ask('memory', call, given, data));
    this.files = new Files((call, given, data) => this.#ask('files', call, given, data));
    this.learning = new Learning((call, given) => this.#ask('learning', call, given, null));
  }

  /**
   * Load Python, the model and what runs it.
   * @param {{model: object, backend: 'auto'|'webgpu'|'wasm'|'numpy', workers: number|null,
   *   precision: 'precise'|'fast', patience: number, context: number|null, memory: number|null, maxTokens: number|null, autotune: boolean, tiers: boolean, routing: boolean}} options `model` as storage/model_list.js
   *   tells it; `workers`, `precision` and `patience` (ms of silence after which a worker counts as dead) are those of wasm;
   *   `memory`: MB that the model may take at most, null to leave that to the machine
   * @param {(progress: {stage: 'python'|'model'|'routing'|'setup'|'device', done?: number, total?: number|null,
   *   complete?: boolean}) => void} onProgress bytes, but of 'setup' whatever the backend counts; also later, where the
   *   GPU was lost: a new device is opened ('device') and the model brought there ('model')
   * @returns {Promise<{backend: string, adapter: string, software: boolean, features: string[], reason: string|null, model: string,
   *   parameters: number, contextLength: number, need: string, fit: {trained: number, weights: number, pages: number,
   *   scratch: number, contexts: number[][]}, longestPrompt: number|null, notice: string|null,
   *   runs?: {sha256: string|null, title: string|null}}>} `need`: a sentence on the
   *   memory that this context takes; `fit`: the same in bytes, and what other lengths take, [tokens, bytes]; `longestPrompt`: bytes that no prompt goes beyond
   *   (chat/message_length.js); `notice`: a sentence for the user where the model is not kept; `runs`: which
   *   model it is, where another tab runs it
   */
  start(options, onProgress) {
    return this.#call((remote) => remote.start(options, Comlink.proxy(onProgress), Comlink.proxy(() => this.memory.tell())));
  }

  /**
   * Whether a model could run in place of this one: by the header of its files alone, before they are copied.
   * @param {File[]} files one, or all parts in their order @param {string} stem of their name
   * @returns {Promise<{title: string, licence: string}>} what people call it. Rejects with a userError that says why not
   */
  checkModel(files, stem) {
    return this.#call((remote) => remote.checkModel(files, stem));
  }

  /**
   * Keep an adapter (storage/adapter_store.js) of the user's for the model that runs.
   * @param {File[]} files one, or the two that PEFT writes
   * @param {{sha256: string, title: string}} base the model
   * @returns {Promise<import('../storage/adapter_store.js').AdapterFacts>} Rejects with a userError that says why not
   */
  addAdapter(files, base) {
    return this.#call((remote) => remote.addAdapter(files, base));
  }

  /**
   * Answer with an adapter from the next message on.
   * @param {import('../storage/adapter_store.js').AdapterFacts|null} facts null: without one
   * @param {{sha256: string}|null} base the model, where the browser keeps it. Rejects where the adapter is for another one
   * @returns {Promise<string>} a sentence on what the model leaves out for it, or ""
   */
  useAdapter(facts, base) {
    return this.#call((remote) => remote.useAdapter(facts, base)).then(said);
  }

  /** An adapter was deleted: an answer that it gives ends. @param {string} name */
  forgetAdapter(name) {
    return this.#call((remote) => remote.forgetAdapter(name));
  }

  /**
   * Let the model that runs be taught, once the memory and the routing are there. What the learning api tells says
   * whether that failed.
   * @param {string|null} base the sha256 of the model's file; null where it is not known
   * @param {number|null} idle after so many seconds in which nobody did anything it may learn; null: the usual number
   */
  openLearning(base, idle = null) {
    return this.#call((remote) => remote.openLearning(base ?? '', idle));
  }

  /** Somebody does something: what is learned in idle times stands still for some seconds. */
  noteActivity() {
    return this.#call((remote) => remote.noteActivity());
  }

  /** @param {number} level 0 to 1 @param {boolean} charging */
  noteBattery(level, charging) {
    return this.#call((remote) => remote.noteBattery(level, charging));
  }

  /**
   * Answer a message, behind the last one that is shown.
   * @param {string} text
   * @param {{again?: boolean, after?: number|null, agent?: string, choice?: string|null}} [asked] `again`: another answer to a message of before,
   *   which is stored as a variant: that with the number `after`, or else the last one; `text` is not used. Without `again`
   *   the text goes behind the turn `after`: an edited message has the `after` of the one that was edited (null where
   *   that was the first). `agent`: the id of who must answer, where the router does not choose; `choice`: who answers in
   *   a chat that is not stored yet (Memory.chooseAgent), null where nobody was chosen
   * @returns {Promise<AsyncIterator<import('../protocol.js').Event>>} 'done' or 'failure', and what comes before it: after a
   *   failure of the kinds 'ContextFullError', 'CannotAnswerError', 'StoreError' and 'AgentError' nothing was changed, and the
   *   engine answers the next message. Then 'stored', where it was, and 'offer'
   */
  respond(text, asked = {}) {
    return this.#call((remote) => remote.respond(text, asked));
  }

  /**
   * Go on with the last answer, which was stopped, cut off at a limit, interrupted, or repeated itself.
   * @returns {Promise<AsyncIterator<import('../protocol.js').Event>>} events as of `respond`: 'thought' and 'delta' with what is
   *   new, 'replacement' with all of it, and 'stored' with the number that the answer had before. 'failure' if there is nothing
   *   to go on with (kind 'CannotAnswerError', with a sentence for the user)
   */
  continueAnswer() {
    return this.#call((remote) => remote.respond('', { goesOn: true }));
  }

  /**
   * Ask a lesson's question again, beside the conversation: nothing of it is kept.
   * @param {string} id of the lesson @param {boolean} learned with all that was learned; else the plain model
   * @returns {Promise<AsyncIterator<import('../protocol.js').Event>>} events as of `respond`. Whoever
   *   leaves before the end stops it; there is one at a time
   */
  tryLesson(id, learned) {
    return this.#call((remote) => remote.tryLesson(id, learned));
  }

  /** End the running answer after the present token. */
  stop() {
    return this.#call((remote) => remote.stop());
  }

  /** Forget the conversation. */
  newChat() {
    return this.#call((remote) => remote.newChat());
  }

  /**
   * Go on with a stored conversation.
   * @returns {Promise<import('../protocol.js').StoredTurn[]>} what is shown of it
   */
  resume(id) {
    return this.#call((remote) => remote.resume(id));
  }

  /**
   * One prompt beside the conversation, as `sonata generate` does on the command line. `raw`: no chat template, special
   * tokens parsed.
   * @returns {Promise<{prompt_tokens: number[], tokens: number[], text: string, backend: string, adapter: string,
   *   prefill_tok_s: number, decode_tok_s: number, reason: string}>}
   */
  generate(prompt, { raw = false, maxTokens = 128, temperature = 0, seed = 0 } = {}) {
    return this.#call((remote) => remote.generate(prompt, { raw, maxTokens, temperature, seed }));
  }

  /** The logits after a prompt's last token. @returns {Promise<Float32Array>} */
  logits(prompt, { raw = false } = {}) {
    return this.#call((remote) => remote.logits(prompt, raw));
  }

  /**
   * Measure each kernel of a token on the GPU, after the running answer.
   * @param {(done: number) => void} onProgress from 0, when its turn has come, to 1
   * @returns {Promise<any>} app.generation.speed.profile_report's
   */
  profile(onProgress) {
    return this.#call((remote) => remote.profile(Comlink.proxy(onProgress)));
  }

  /** End the measurement that is running, if any. */
  stopProfile() {
    return this.#call((remote) => remote.stopProfile());
  }

  /**
   * What the model's memory holds now, in bytes.
   * @returns {Promise<{weights: number, adapters: number, scratch: number, total: number,
   *   limit: number|null, pages: Record<string, {conversations: number, kept: number, free: number}>}>} pages: by tier;
   *   limit: what all of it may take, null where nobody said so
   */
  memoryUse() {
    return this.#call((remote) => remote.memoryUse());
  }

  /** Python's memory, which never shrinks. @returns {Promise<number>} */
  pythonHeapBytes() {
    return this.#call((remote) => remote.pythonHeapBytes());
  }

  /** Change the number of workers on the CPU, also in the middle of an answer. @returns {Promise<number>} there are now */
  setWorkers(count) {
    return this.#call((remote) => remote.setWorkers(count));
  }

  /** Whether tokens are guessed and run together; answers are the same with and without. @param {boolean} isOn */
  setSpeculation(isOn) {
    return this.#call((remote) => remote.setSpeculation(isOn));
  }

  /** Make the GPU go away, as a driver reset would. */
  loseDevice() {
    return this.#call((remote) => remote.loseDevice());
  }

  /** Make a worker on the CPU go away without a word. */
  killWorker(index) {
    return this.#call((remote) => remote.killWorker(index));
  }

  /** Make a worker on the CPU never answer again. */
  hangWorker(index) {
    return this.#call((remote) => remote.hangWorker(index));
  }

  /** Nobody uses this engine any more. */
  dispose() {
    this.#link.then((link) => link.close(), () => {});
  }

  /** @returns {Promise<any>} what a call of an api gives (app/page/calls.py). Rejects with its error */
  async #ask(api, call, given, data) {
    return valueOf(await this.#call((remote) => remote.ask(api, call, given, data)));
  }

  /** @param {(remote: any) => Promise<any>} ask */
  async #call(ask) {
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
