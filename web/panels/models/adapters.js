/** The adapter that the model answers with, and those that this browser keeps. adapters_section.js shows them. */
import { said } from '../../i18n/engine_texts.js';
import { t } from '../../i18n/i18n.js';
import { chosenAdapter, rememberAdapter } from '../../storage/adapter_choice.js';
import { onAdapters, removeAdapter, storedAdapters } from '../../storage/adapter_store.js';
import { userError } from '../../common/user_error.js';

/** @typedef {import('../../storage/adapter_store.js').AdapterFacts} AdapterFacts */

export class Adapters {
  /** The adapter that the model answers with; null: none. */
  current = /** @type {AdapterFacts|null} */ (null);
  /** The running model; null if nothing is kept of it. */
  base = /** @type {{sha256: string, title: string}|null} */ (null);
  #engine = /** @type {import('../../engine/engine.js').Engine|null} */ (null);
  #listeners = /** @type {Set<() => void>} */ (new Set());
  #notices;

  /** @param {import('../../shell/notices.js').Notices} notices */
  constructor(notices) {
    this.#notices = notices;
    onAdapters(async () => {
      const { current } = this;
      if (current && !(await storedAdapters()).some(({ sha256 }) => sha256 === current.sha256)) {
        await this.#stopUsing(current).catch(() => {}); // the engine failed: the page says so
        this.#notices.say('adapter', t('models.adapterNotKept'));
      }
      this.#tell();
    });
  }

  /** @param {() => void} listener called when another adapter is used, or one was added or deleted, also by another tab */
  onChange(listener) {
    this.#listeners.add(listener);
  }

  /**
   * A model was loaded: it answers with the adapter that was chosen for it, if it can.
   * @param {import('../../engine/engine.js').Engine} engine
   * @param {{sha256?: string, title: string|null}} model
   */
  async begin(engine, { sha256, title }) {
    this.#engine = engine;
    this.current = null;
    this.base = sha256 ? { sha256, title: title ?? '' } : null;
    const chosen = sha256 ? chosenAdapter(sha256) : null;
    let problem = /** @type {string|null} */ (null);
    if (chosen) {
      const facts = (await storedAdapters()).find((one) => one.sha256 === chosen);
      try {
        problem = facts ? await engine.useAdapter({ facts, base: this.base }) : t('models.adapterNotKept');
        if (engine === this.#engine) this.current = facts ?? null;
      } catch (error) {
        problem = said(error.said ?? error.message);
      }
    }
    this.#notices.say('adapter', problem || null);
    this.#tell();
  }

  /** The model is being loaded again, or another one: until `begin` no adapter can be used. */
  end() {
    this.#engine = null;
  }

  /** @returns {Promise<AdapterFacts[]>} the adapters of this model first */
  async list() {
    const stored = await storedAdapters();
    return [...stored.filter((one) => this.isForThis(one)), ...stored.filter((one) => !this.isForThis(one))];
  }

  isForThis({ base }) {
    return base.sha256 === this.base?.sha256;
  }

  /**
   * Use an adapter from the next message on. @param {AdapterFacts|null} facts null: none. Throws a userError if it cannot be
   * used
   */
  async use(facts) {
    const leftOut = await this.#running().useAdapter({ facts, base: this.base });
    this.current = facts;
    if (this.base) rememberAdapter(this.base.sha256, facts?.sha256 ?? null);
    this.#notices.say('adapter', leftOut || null);
    this.#tell();
  }

  /** Keep an adapter of the user's, and use it. @param {File[]} files one, or the two that PEFT writes */
  async add(files) {
    if (!this.base) throw userError('AdapterError', t('models.noBase'));
    await this.use(await this.#running().addAdapter({ files, base: this.base }));
  }

  /** Delete an adapter; an answer that uses it ends. @param {AdapterFacts} facts */
  async remove(facts) {
    await this.#stopUsing(facts);
    await removeAdapter(facts.sha256);
  }

  async #stopUsing(facts) {
    await this.#engine?.model.forgetAdapter({ name: facts.name });
    if (this.current?.sha256 !== facts.sha256) return;
    this.current = null;
    if (this.base) rememberAdapter(this.base.sha256, null);
  }

  #running() {
    if (!this.#engine) throw userError('BusyError', t('models.loading'));
    return this.#engine;
  }

  #tell() {
    for (const listener of this.#listeners) listener();
  }
}
