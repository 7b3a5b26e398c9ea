/**
 * Chrome's Prompt API on Sonata, for browsers that lack it: importing this module defines `LanguageModel` if there is none.
 *
 *   import './sonata/language_model.js';
 *   const session = await LanguageModel.create();
 *   await session.prompt('Write a haiku.');
 *
 * https://webmachinelearning.github.io/prompt-api/. What is not there: other inputs than text, a prefix of the answer, tools
 * without `execute`, sampling modes; `temperature` and `topK` count. The model is the one that Sonata.load() gives.
 */
import { APIError, APIUserAbortError, Sonata } from './sonata.js';

const PARAMS = { defaultTopK: 40, maxTopK: 128, defaultTemperature: 0, maxTemperature: 2 };
const ROLES = ['system', 'user', 'assistant'];
const MESSAGE_TOKENS = 5; // what a template adds to a message, about
const ANSWER_TOKENS = 64; // of the window, which a prompt leaves to its answer at least

/** @typedef {{role: string, content: string|{type: string, value: any}[], prefix?: boolean}} Message */
/** @typedef {{name: string, description: string, inputSchema: object, execute: (args: any) => Promise<string>}} Tool */
/**
 * @typedef {{topK?: number, temperature?: number, tools?: Tool[], expectedInputs?: {type: string, languages?: string[]}[],
 *   expectedOutputs?: {type: string, languages?: string[]}[]}} CoreOptions
 * @typedef {CoreOptions & {signal?: AbortSignal, monitor?: (monitor: EventTarget) => void, initialPrompts?: Message[]}} CreateOptions
 * @typedef {{responseConstraint?: object, omitResponseConstraintInput?: boolean, signal?: AbortSignal}} PromptOptions
 */

let loading = /** @type {Promise<import('./sonata.d.ts').Sonata>|null} */ (null);
let isLoaded = false;
const monitors = /** @type {Set<EventTarget>} */ (new Set());

export class LanguageModel extends EventTarget {
  oncontextoverflow = /** @type {((event: Event) => void)|null} */ (null);
  onquotaoverflow = /** @type {((event: Event) => void)|null} */ (null);
  #sonata;
  #options;
  #messages; // as the API takes them
  #usage = 0;
  #gone = new AbortController();
  #turn = Promise.resolve(); // prompts of a session run one after the other

  /** @param {import('./sonata.d.ts').Sonata} sonata @param {{topK: number, temperature: number, tools: Tool[]}} options @param {any[]} messages */
  constructor(sonata, options, messages) {
    super();
    this.#sonata = sonata;
    this.#options = options;
    this.#messages = messages;
    for (const name of ['contextoverflow', 'quotaoverflow']) this.addEventListener(name, (event) => this[`on${name}`]?.(event));
  }

  /** @param {CoreOptions} [options] @returns {Promise<'unavailable'|'downloadable'|'downloading'|'available'>} */
  static async availability(options = {}) {
    if (!isKnown(options)) return 'unavailable';
    checked(options);
    if (isLoaded) return 'available';
    return loading ? 'downloading' : await Sonata.isKept() ? 'available' : 'downloadable';
  }

  static async params() {
    return { ...PARAMS };
  }

  /** @param {CreateOptions} [options] @returns {Promise<LanguageModel>} */
  static async create({ signal, monitor, initialPrompts = [], ...core } = {}) {
    signal?.throwIfAborted();
    if (!isKnown(core)) throw new DOMException('Sonata reads and writes text only.', 'NotSupportedError');
    const options = checked(core);
    const messages = initialPrompts.length ? messagesOf(initialPrompts, true) : [];
    const target = new EventTarget();
    monitor?.(target);
    monitors.add(target);
    try {
      const sonata = await untilAborted(load(), signal);
      const model = new LanguageModel(sonata, options, messages);
      model.#usage = await model.#tokens([...messages, ...options.tools.map((tool) => ({ content: JSON.stringify(tool) }))]);
      if (model.#usage > model.contextWindow) throw quotaExceeded(model.#usage, model.contextWindow);
      signal?.throwIfAborted();
      return model;
    } finally {
      monitors.delete(target);
    }
  }

  get contextWindow() { return this.#sonata.info.contextLength; }
  get contextUsage() { return this.#usage; }
  get inputQuota() { return this.contextWindow; }
  get inputUsage() { return this.#usage; }
  get topK() { return this.#options.topK; }
  get temperature() { return this.#options.temperature; }

  /** @param {string|Message[]} input @param {PromptOptions} [options] @returns {Promise<string>} */
  async prompt(input, options = {}) {
    let whole = '';
    for await (const text of this.#answer(input, options)) whole += text;
    return whole;
  }

  /** @param {string|Message[]} input @param {PromptOptions} [options] @returns {ReadableStream<string>} */
  promptStreaming(input, options = {}) {
    const left = new AbortController();
    const signal = AbortSignal.any([left.signal, ...options.signal ? [options.signal] : []]);
    const texts = this.#answer(input, { ...options, signal });
    return new ReadableStream({
      async pull(controller) {
        const { value, done } = await texts.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: () => left.abort(),
    });
  }

  /** @param {string|Message[]} input @param {{signal?: AbortSignal}} [options] */
  async append(input, { signal } = {}) {
    await this.#inTurn(signal, async () => { await this.#take(input); });
  }

  /** @param {string|Message[]} input @param {PromptOptions} [options] @returns {Promise<number>} about */
  async measureContextUsage(input, { signal } = {}) {
    this.#check(signal);
    return untilAborted(this.#tokens(messagesOf(input, false)), signal);
  }

  /** @param {string|Message[]} input @param {PromptOptions} [options] */
  measureInputUsage(input, options) { return this.measureContextUsage(input, options); }

  /** @param {{signal?: AbortSignal}} [options] @returns {Promise<LanguageModel>} */
  async clone({ signal } = {}) {
    this.#check(signal);
    const copy = new LanguageModel(this.#sonata, this.#options, [...this.#messages]);
    copy.#usage = this.#usage;
    return copy;
  }

  destroy() {
    this.#gone.abort(new DOMException('The session was destroyed.', 'AbortError'));
  }

  /** @param {AbortSignal} [signal] */
  #check(signal) {
    if (this.#gone.signal.aborted) throw new DOMException('The session was destroyed: create another one.', 'InvalidStateError');
    signal?.throwIfAborted();
  }

  /** @template T @param {AbortSignal|undefined} signal @param {(signal: AbortSignal) => Promise<T>} work @returns {Promise<T>} */
  #inTurn(signal, work) {
    this.#check(signal);
    const either = AbortSignal.any([this.#gone.signal, ...signal ? [signal] : []]);
    const done = this.#turn.then(() => {
      either.throwIfAborted();
      return work(either);
    });
    this.#turn = done.then(() => {}, () => {});
    return done;
  }

  /** Add messages, without the oldest ones if they would not fit. @returns {Promise<() => void>} takes all of it back */
  async #take(input) {
    const before = [this.#messages, this.#usage];
    const added = messagesOf(input, this.#messages.length === 0), asked = await this.#tokens(added);
    const room = this.contextWindow - Math.min(ANSWER_TOKENS, this.contextWindow / 4), kept = [...this.#messages];
    let usage = this.#usage;
    while (usage + asked > room) {
      const oldest = kept.findIndex(({ role }) => role !== 'system');
      if (oldest < 0) throw quotaExceeded(usage + asked, this.contextWindow);
      usage = Math.max(0, usage - await this.#tokens(kept.splice(oldest, 1)));
    }
    if (kept.length < this.#messages.length) for (const name of ['contextoverflow', 'quotaoverflow']) this.dispatchEvent(new Event(name));
    this.#messages = [...kept, ...added];
    this.#usage = usage + asked;
    return () => { [this.#messages, this.#usage] = /** @type {[any[], number]} */ (before); };
  }

  /** The texts of an answer. What an aborted or failed prompt asked is not in the conversation. */
  async* #answer(input, { responseConstraint, omitResponseConstraintInput = false, signal } = /** @type {PromptOptions} */ ({})) {
    if (omitResponseConstraintInput && !responseConstraint) throw new TypeError('There is no responseConstraint to leave out of the input.');
    const response_format = formatOf(responseConstraint);
    let end = () => {}, begin = (/** @type {any} */ _) => {};
    const begun = new Promise((resolve) => { begin = resolve; }), over = new Promise((resolve) => { end = () => resolve(null); });
    const turn = this.#inTurn(signal, async (either) => { begin(either); await over; });
    const either = await Promise.race([begun, turn]);
    let undo = () => {};
    try {
      undo = await this.#take(input);
      yield* this.#said(response_format, either);
      undo = () => {};
      either.throwIfAborted();
    } catch (error) {
      either.throwIfAborted();
      throw asException(error);
    } finally {
      undo();
      end();
    }
  }

  async* #said(response_format, signal) {
    const { topK: top_k, temperature, tools } = this.#options;
    const body = { messages: this.#messages, temperature, top_k, stream: true, stream_options: { include_usage: true }, max_tokens: this.contextWindow, response_format };
    const runner = tools.length ? this.#sonata.chat.completions.runTools({ ...body, tools: tools.map(runnable) }, { signal }) : null;
    const parts = runner ?? await this.#sonata.chat.completions.create(/** @type {any} */ (body), { signal });
    let whole = '', reason = /** @type {string|null} */ (null), tokens = this.#usage;
    for await (const { choices: [choice], usage } of parts) {
      tokens = usage?.total_tokens ?? tokens;
      reason = choice?.finish_reason ?? reason;
      if (!choice?.delta.content) continue;
      whole += choice.delta.content;
      yield choice.delta.content;
    }
    signal.throwIfAborted();
    if (response_format && reason === 'length') throw new DOMException('The answer ended before it had the form that was asked for.', 'SyntaxError');
    this.#messages = runner ? runner.messages : [...this.#messages, { role: 'assistant', content: whole }];
    this.#usage = tokens;
  }

  async #tokens(messages) {
    if (!messages.length) return 0;
    const body = JSON.stringify({ content: messages.map(({ content, tool_calls: calls }) => `${content ?? ''}${calls ? JSON.stringify(calls) : ''}`).join('\n') });
    const answer = await this.#sonata.fetch('/tokenize', { method: 'POST', body });
    return (await answer.json()).tokens.length + messages.length * MESSAGE_TOKENS;
  }
}

function load() {
  loading ??= Sonata.load({
    onProgress: ({ stage, loaded, total }) => stage === 'model' && total && tellMonitors(Math.min(loaded / total, 0.99)),
  }).then((sonata) => {
    isLoaded = true;
    return sonata;
  }, (error) => {
    loading = null;
    throw new DOMException(error.message, error.name === 'DownloadError' ? 'NetworkError' : 'OperationError');
  });
  tellMonitors(0);
  loading.then(() => tellMonitors(1), () => {});
  return loading;
}

/** @param {number} loaded from 0 to 1 */
function tellMonitors(loaded) {
  for (const monitor of monitors) monitor.dispatchEvent(new ProgressEvent('downloadprogress', { lengthComputable: true, loaded, total: 1 }));
}

/** @param {CoreOptions} options */
function isKnown({ expectedInputs = [], expectedOutputs = [] }) {
  const isText = (/** @type {string} */ more) => ({ type }) => type === 'text' || type === more;
  return expectedInputs.every(isText('tool-response')) && expectedOutputs.every(isText('tool-call'));
}

/** @param {CoreOptions} options */
function checked({ topK = PARAMS.defaultTopK, temperature = PARAMS.defaultTemperature, tools = [], expectedInputs = [], expectedOutputs = [] }) {
  if (!(topK >= 1)) throw new RangeError('topK is at least 1.');
  if (!(temperature >= 0)) throw new RangeError('temperature is at least 0.');
  for (const { languages = [] } of [...expectedInputs, ...expectedOutputs]) Intl.getCanonicalLocales(languages);
  for (const { name, execute } of tools) if (typeof execute !== 'function') throw new DOMException(`The tool ${name} has no execute: Sonata calls tools by it.`, 'NotSupportedError');
  return { topK: Math.floor(Math.min(topK, PARAMS.maxTopK)), temperature: Math.min(temperature, PARAMS.maxTemperature), tools };
}

/** @param {Tool} tool @returns {import('./sonata.d.ts').RunnableTool} */
function runnable({ name, description, inputSchema, execute }) {
  return { type: 'function', function: { name, description, parameters: inputSchema, parse: JSON.parse, function: (args) => execute(args) } };
}

/** @param {string|Message[]} input @param {boolean} isFirst whether a message of the system may come @returns {{role: string, content: string}[]} */
function messagesOf(input, isFirst) {
  if (!Array.isArray(input)) return [{ role: 'user', content: String(input) }];
  if (!input.length) throw new TypeError('A prompt has at least one message.');
  return input.map(({ role, content, prefix = false }, at) => {
    if (!ROLES.includes(role)) throw new TypeError(`The role ${role} is not system, user or assistant.`);
    if (role === 'system' && (at || !isFirst)) throw new TypeError('A message of the system is the first one of a session.');
    if (prefix && (role !== 'assistant' || at < input.length - 1)) throw new DOMException('Only the last message, of the assistant, may be a prefix.', 'SyntaxError');
    if (prefix) throw new DOMException('Sonata does not go on with a prefix.', 'NotSupportedError');
    return { role, content: typeof content === 'string' ? content : content.map(textOf).join('\n') };
  });
}

/** @param {{type: string, value: any}} part */
function textOf({ type, value }) {
  if (type !== 'text') throw new DOMException(`Sonata reads text only, no ${type}.`, 'NotSupportedError');
  if (typeof value !== 'string') throw new TypeError('The value of a text is a string.');
  return value;
}

/** @param {object|undefined} constraint a JSON schema or a RegExp */
function formatOf(constraint) {
  if (constraint === undefined || constraint === null) return undefined;
  if (typeof constraint !== 'object') throw new TypeError('A responseConstraint is a JSON schema or a RegExp.');
  if (!(constraint instanceof RegExp)) return { type: 'json_schema', json_schema: { name: 'answer', schema: constraint } };
  if (/[ims]/.test(constraint.flags)) throw new DOMException(`Sonata knows no flags ${constraint.flags} of a RegExp.`, 'NotSupportedError');
  return { type: 'regex', regex: constraint.source };
}

/** As the specification names them. */
function asException(error) {
  if (!(error instanceof APIError) || error instanceof APIUserAbortError) return error;
  if (error.code === 'context_length_exceeded') return quotaExceeded(NaN, NaN);
  return new DOMException(error.message, error.status === 400 ? 'NotSupportedError' : 'OperationError');
}

/** @param {number} requested @param {number} quota */
function quotaExceeded(requested, quota) {
  const message = 'The prompt does not fit into the context: shorten it, or create another session.';
  const { QuotaExceededError: Own } = /** @type {any} */ (globalThis);
  if (typeof Own === 'function' && !Number.isNaN(quota)) return new Own(message, { requested, quota });
  return Object.assign(new DOMException(message, 'QuotaExceededError'), { requested, quota });
}

/** @template T @param {Promise<T>} work @param {AbortSignal|undefined} signal @returns {Promise<T>} */
function untilAborted(work, signal) {
  if (!signal) return work;
  const aborted = new Promise((_, reject) => { signal.addEventListener('abort', () => reject(signal.reason), { once: true }); });
  return Promise.race([work, /** @type {Promise<never>} */ (aborted)]);
}

if (!('LanguageModel' in globalThis)) Object.assign(globalThis, { LanguageModel });
