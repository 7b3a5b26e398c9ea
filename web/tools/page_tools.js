/**
 * The tools that this page runs for the model. A source (a dropped file, a server) offers its tools as long as it has
 * them; app/page/offered_tools.py asks for each call, of the tab whose answer calls.
 */
import { describe, fromError } from '../shell/problems.js';
import { showCall } from './call_views.js';

/**
 * @typedef {{name: string, description: string, parameters: object}} Definition `parameters`: the JSON Schema of an object
 * @typedef {{text: string}|{failed: string}} Result what the model reads; `failed`: a sentence on why there is no result
 * @typedef {(name: string, given: Record<string, any>, signal: AbortSignal, show: (element: HTMLElement) => void) =>
 *   Promise<Result>} Run runs a call. `signal` aborts it if nobody waits for its result any more: the user stopped the
 *   answer, or its time is up. `show` puts an element below the call's line, such as a question to the user
 * @typedef {{definitions: Definition[], run: Run, seconds: number|null}} Source
 */

export class PageTools {
  #sources = /** @type {Map<string, Source>} */ (new Map());
  #running = /** @type {Map<string, AbortController>} */ (new Map()); // by the id of what was asked
  #engine = /** @type {import('../engine/engine.js').Engine|null} */ (null);

  /**
   * Offer tools, instead of those that the source had.
   * @param {string} source @param {Definition[]} definitions @param {Run} run
   * @param {number|null} [seconds] of a call, if a minute does not fit
   * @returns {Promise<void>} rejects with a userError if they cannot be used, such as by another tool of the same name
   */
  async offer(source, definitions, run, seconds = null) {
    const before = this.#sources.get(source);
    this.#sources.set(source, { definitions, run, seconds }); // an engine that comes meanwhile gets them, too
    try {
      await this.#engine?.tools.offer({ source, definitions, seconds });
    } catch (error) {
      if (before) this.#sources.set(source, before);
      else this.#sources.delete(source);
      throw error;
    }
  }

  /** @param {string} source */
  async withdraw(source) {
    if (this.#sources.delete(source)) await this.#engine?.tools.offer({ source, definitions: [] });
  }

  /** The engine is gone: nobody waits for its calls any more. */
  leave() {
    for (const running of this.#running.values()) running.abort();
    this.#running.clear();
    this.#engine = null;
  }

  /** Offer everything to an engine that has begun, and run its calls until another one is used. @param {import('../engine/engine.js').Engine} engine */
  async use(engine) {
    this.leave();
    this.#engine = engine;
    const asks = await engine.tools.asks();
    for (const [source, { definitions, seconds }] of this.#sources) {
      if (definitions.length) engine.tools.offer({ source, definitions, seconds }).catch(() => {}); // it is gone: the next one gets them
    }
    for await (const ask of asks) {
      if (engine !== this.#engine) return;
      if (ask.isOver) this.#running.get(ask.id)?.abort();
      else this.#take(engine, ask).catch(() => {}); // the engine is gone: nobody waits
    }
  }

  /** @param {import('../engine/engine.js').Engine} engine @param {import('../protocol_calls.js').ToolAsk} ask */
  async #take(engine, { id, source, name, arguments: given }) {
    const ending = new AbortController();
    this.#running.set(id, ending);
    const result = await this.#run(source, name, given, ending.signal);
    if (this.#running.get(id) === ending) this.#running.delete(id);
    if (ending.signal.aborted) return;
    const failed = 'failed' in result;
    await engine.tools.answer({ id, text: failed ? result.failed : result.text, failed });
  }

  /** @returns {Promise<Result>} */
  async #run(source, name, given, signal) {
    const found = this.#sources.get(source);
    if (!found) return { failed: `The tool ${name} is no longer there.` };
    try {
      return await found.run(name, given, signal, (element) => showCall(name, given, element));
    } catch (error) {
      return { failed: describe(fromError(error)).message };
    }
  }
}
