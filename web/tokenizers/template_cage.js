/**
 * Runs the page's chat templates in a worker with nothing but web/kernels/jinja, which is terminated if it takes too long.
 *
 * A template comes from a stranger's file. It gets a copy of the conversation and returns text; the module's memory has a
 * maximum. The worker is started in advance, and restarted after it was terminated.
 */
import { message } from '../common/message.js';
import { fetchFile } from '../common/file_fetch.js';
import { ownScript } from '../common/own_script.js';

const COSTLY = 3; // of web/kernels/jinja

// Time is counted in ticks. A late tick counts as two at most: either the machine was busy or asleep, and so was the template,
// or this worker was, and an answer may wait in its queue.
const TICK_MS = 50;

export class TemplateCage {
  #module;
  #worker = /** @type {Worker|null} */ (null);
  #turn = /** @type {Promise<unknown>} */ (Promise.resolve()); // one template at a time
  #begin = () => {};
  #end = /** @type {(answer: object) => void} */ (() => {});

  constructor() {
    this.#module = fetchFile(new URL('../kernels/jinja.wasm', import.meta.url), message('part.templates', 'The renderer of chat templates'))
      .then((bytes) => WebAssembly.compile(bytes));
    this.#module.then((module) => this.#start(module), () => {}); // reported to the caller that runs a template
  }

  /**
   * @param {Uint8Array} request what py_core/tokenizers/template_renderer.py encodes
   * @param {boolean} check only parse the template, render nothing
   * @param {number} milliseconds after which the template is ended; the start of its worker does not count
   * @returns {Promise<({text: Uint8Array}|{kind: number, words?: string})&{spent: number}>} the text, or the error: `kind` is
   *   that of web/kernels/jinja; without `words` the template took too long. spent: the milliseconds that it took. Rejects with
   *   a DownloadError if the module cannot be fetched
   */
  run(request, check, milliseconds) {
    const answer = this.#turn.then(() => this.#run(request, check, milliseconds));
    this.#turn = answer.catch(() => {});
    return answer;
  }

  async #run(request, check, milliseconds) {
    const module = await this.#module;
    const worker = this.#worker ?? this.#start(module);
    let timer = 0, spent = 0, last = 0;
    const count = () => {
      const now = performance.now();
      if (last) spent += Math.min(now - last, 2 * TICK_MS);
      last = now;
    };
    try {
      const answer = await new Promise((resolve) => {
        this.#end = resolve;
        this.#begin = () => {
          count();
          timer = setInterval(() => {
            if (spent >= milliseconds) { // since the last tick: everything that arrived before it was handled
              this.#stop();
              resolve({ kind: COSTLY });
            }
            count();
          }, TICK_MS);
        };
        worker.postMessage({ request, check }, [request.buffer]);
      });
      count();
      return { ...answer, spent };
    } finally {
      clearInterval(timer);
      this.#begin = () => {};
      if (!this.#worker) this.#start(module);
    }
  }

  #start(module) {
    const worker = this.#worker = new Worker(
      ownScript(new URL('./template_worker.js', import.meta.url)), { type: 'module', name: 'sonata-templates' },
    );
    worker.onmessage = ({ data }) => (data.begins ? this.#begin() : this.#end(data));
    worker.onerror = (event) => {
      event.preventDefault();
      this.#stop();
      this.#end({ kind: COSTLY, words: 'it takes too much memory' });
    };
    worker.postMessage({ module });
    return worker;
  }

  #stop() {
    this.#worker?.terminate();
    this.#worker = null;
  }
}
