/**
 * Sonata for other pages of its origin: the engine behind OpenAI's API, without a server.
 *
 *   import { Sonata } from './sonata/sonata.js';
 *   const sonata = await Sonata.load();
 *   for await (const part of await sonata.chat.completions.create({ messages, stream: true })) ...
 *
 * Tabs share one engine, also with the chat, if they want the same model in the same way (engine/model_tabs.js).
 * docs/guide/api.md says what a page needs; sonata.d.ts has the types.
 */
import { APIError, APIUserAbortError } from './api/errors.js';
import { Client, Stream } from './api/client.js';
import { answerRequests } from './api/worker_door.js';
import { allowedHosts } from './downloads/added_hosts.js';
import { Engine } from './engine/engine.js';
import { ModelTabs } from './engine/model_tabs.js';
import { loadLanguage } from './i18n/i18n.js';
import { said } from './i18n/engine_texts.js';
import { RunSettings } from './panels/settings/run_settings.js';
import { engineKey, readOptions } from './shell/options.js';
import { usesMultilingual } from './shell/multilingual.js';
import { chosenModel } from './storage/model_choice.js';
import { chooseModel } from './storage/model_list.js';
import { storedModels } from './storage/model_store.js';

export { APIError, APIUserAbortError, Stream };

const SITE = new URL('./', import.meta.url);
const WORKERS_PATIENCE = 1000 / 6; // of the patience in seconds, as in main.js
const STAGES = ['python', 'model', 'setup'];

/** @typedef {import('./sonata.d.ts').LoadOptions} LoadOptions */

export class Sonata extends Client {
  /** @type {any} */
  info = null;
  #options;
  #settings;
  #tabs;
  #engine = /** @type {Engine|null} */ (null);
  #ready = /** @type {Promise<Engine>|null} */ (null);
  #learns = /** @type {Promise<void>|null} */ (null); // once it can be taught
  #asked = /** @type {Set<import('./engine/event_queue.js').EventQueue>} */ (new Set()); // answers that come

  /** @param {LoadOptions} [options] @returns {Promise<import('./sonata.d.ts').Sonata>} */
  static async load(options = {}) {
    options.signal?.throwIfAborted();
    await loadLanguage();
    const sonata = new Sonata(options, await siteVersion());
    const closed = () => sonata.close();
    options.signal?.addEventListener('abort', closed);
    try {
      await sonata.#loaded();
      options.signal?.throwIfAborted();
    } catch (error) {
      sonata.close();
      throw options.signal?.aborted ? options.signal.reason : error;
    } finally {
      options.signal?.removeEventListener('abort', closed);
    }
    answerRequests(() => sonata.#ready && sonata.#loaded().then(() => (asked) => sonata.#request(asked)));
    return sonata;
  }

  /** True if the model lies in this browser. @param {Pick<LoadOptions, 'model'>} [options] */
  static async isKept({ model } = {}) {
    const { sha256 } = /** @type {{sha256?: string}} */ (await modelOf(model));
    return (await storedModels()).some((one) => one.sha256 === sha256 && one.complete);
  }

  /** @private @param {LoadOptions} options @param {string|undefined} version of the site */
  constructor(options, version) {
    super((asked) => this.#request(asked));
    const { model, backend = null, precision = null, workers = null, context = null, memory = null, routing = true } = options;
    const usual = { ...readOptions(''), backend, precision, workers, context, memory, routing };
    const modelUrl = typeof model === 'string' ? model : model ? `file:${crypto.randomUUID()}` : null;
    const shared = { ...usual, modelUrl, multilingual: usesMultilingual() };
    this.#options = { ...options, patience: usual.patience, shared };
    this.#settings = new RunSettings(usual, () => {});
    this.#tabs = new ModelTabs(engineKey(shared, version), { patience: usual.patience, onMoved: (take) => this.#start(take) });
    this.#start(false);
  }

  /** Remember an answer. Requests with `sonata: { memory: 'default' }`, and the chat, give it from then on. */
  async teach({ question, answer }) {
    const engine = await this.#loaded();
    await this.#learns;
    return engine.learning.teach({ question, answer });
  }

  /** Release the model; another tab that shares it keeps it. */
  close() {
    this.#ready = null;
    this.#tabs.close();
    this.#leave('Sonata was closed: load it again.');
  }

  /** @type {import('./api/client.js').Door} */
  async #request(asked) {
    const engine = await this.#loaded();
    if (asked.body.includes('"sonata"')) await this.#learns;
    const parts = /** @type {any} */ (await engine.api.request(asked));
    if (engine !== this.#engine) return this.#request(asked);
    this.#asked.add(parts);
    const forget = (step) => {
      if (step.done) this.#asked.delete(parts);
      return step;
    };
    return { [Symbol.asyncIterator]: () => ({ next: () => parts.next().then(forget), return: () => parts.return().then(forget) }) };
  }

  /** @returns {Promise<Engine>} */
  async #loaded() {
    for (;;) {
      const ready = this.#ready;
      if (!ready) throw new APIError(503, { message: 'Sonata was closed: load it again.' });
      try {
        return await ready;
      } catch (error) {
        if (ready === this.#ready) throw error; // else the tab that ran the model was closed, and another one loads it
      }
    }
  }

  /** The engine is gone, and with it the answers that come. @param {string} why */
  #leave(why) {
    this.#engine?.dispose();
    for (const parts of this.#asked) parts.fail(new APIError(503, { message: why }));
    this.#asked.clear();
  }

  /** @param {boolean} take run the model in this tab, whichever tab did before */
  #start(take) {
    if (this.#engine && !this.#ready) return; // it was closed
    this.#leave('The tab that ran the model was closed: ask again.');
    const engine = new Engine(this.#tabs.connect({ take }));
    this.#engine = engine;
    this.#ready = this.#run(engine);
    this.#ready.catch(() => {});
  }

  /** @param {Engine} engine */
  async #run(engine) {
    const { onProgress = () => {}, maxTokens = null, patience, shared } = this.#options;
    const model = await modelOf(this.#options.model);
    const options = {
      model, ...this.#settings.choice, maxTokens, autotune: true, tiers: false, patience: patience * WORKERS_PATIENCE,
      routing: shared.routing, multilingual: shared.multilingual,
    };
    const info = await engine.start(options, ({ stage, done = 0, total = null, complete = false }) => {
      if (STAGES.includes(stage)) onProgress({ stage, loaded: done, total, complete });
    });
    this.#learns = engine.model.openLearning({ base: info.runs?.sha256 ?? '' });
    this.#learns.catch(() => {});
    const { backend, adapter, contextLength, parameters, reason } = info;
    this.info = { model: info.model, backend, adapter, contextLength, parameters, reason: reason && said(reason) };
    return engine;
  }
}

/** The model as Engine.start takes it. @param {LoadOptions['model']} model */
async function modelOf(model) {
  if (model === undefined) return chooseModel(chosenModel());
  if (typeof model !== 'string') return chooseModel([model].flat());
  if (/^[0-9a-f]{64}$/.test(model)) return chooseModel(model);
  const { href, host, protocol } = new URL(model, location.href);
  const own = protocol === 'https:' ? host : `http://${host}`; // the page's program names it, no link does
  return { title: null, url: href, hosts: [...await allowedHosts(), own] };
}

/** The version of the site, with which tabs find each other. @returns {Promise<string|undefined>} */
async function siteVersion() {
  const page = await fetch(new URL('index.html', SITE)).then((answer) => answer.text(), () => '');
  return page.match(/name="sonata-version" content="(\w+)"/)?.[1];
}
