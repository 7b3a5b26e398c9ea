/**
 * Python in a worker of its own (python_worker.js), seen from the page: it starts, runs code, takes and gives files, and is ended.
 * Whatever comes from there is data: the code may send what it likes.
 */
import { fetchFile } from '../common/file_fetch.js';
import { message } from '../common/message.js';
import { ownScript } from '../common/own_script.js';
import { userError } from '../common/user_error.js';
import { t } from '../i18n/i18n.js';

const SECONDS = 60; // of a run
const GRACE_MS = 1000; // after a run should have ended: then the worker is ended
const START_MS = 60_000;
const MOST_MESSAGES = 5000; // of a run
const MOST_PICTURE = 20e6; // characters
const MOST_PIXELS = 30e6;
const FILES = {
  worker: 'interpreter/python_worker.js', session: 'interpreter/session.py', rest: 'interpreter/stdlib_rest.zip',
  pyodide: 'pyodide/pyodide.mjs', module: 'pyodide/pyodide.asm.mjs', wasm: 'pyodide/pyodide.asm.wasm',
  zip: 'pyodide/python_stdlib.zip', lock: 'pyodide/pyodide-lock.json',
};

/**
 * An output of app/interpreter/session.py.
 * @typedef {{type: 'text', stream: string, text: string}|{type: 'value', text: string}|{type: 'cut', most: number}
 *   |{type: 'table', columns: string[], numeric: boolean[], rows: string[][], row_count: number, column_count: number}
 *   |{type: 'picture', data: string}|{type: 'files', files: [string, number][]}
 *   |{type: 'error', kind: string, message: string, lines: [number|null, string][], reason: string}} Output
 */

export const part = (path) => fetchFile(new URL(`../${path}`, import.meta.url), message('part.python', 'A part of Python'));

export class Interpreter {
  #host;
  #port;
  #waiting = /** @type {{resolve: (value: any) => void, reject: (error: any) => void}|null} */ (null);
  #onOutput = (/** @type {Output} */ _output) => {};
  #isRunning = false;
  #messages = 0;
  #timer = 0;
  #why = ''; // it must end

  /** @param {Record<string, Uint8Array<ArrayBuffer>>} files */
  constructor(files) {
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    this.#port.onmessage = ({ data }) => this.#take(data);
    const address = new URL('../interpreter/host_worker.js', import.meta.url);
    this.#host = new Worker(ownScript(address), { type: 'module', name: 'host of Python' });
    this.#host.onmessage = this.#host.onerror = () => this.end('died');
    this.#host.postMessage({ port: port2, files }, [port2, ...Object.values(files).map(({ buffer }) => buffer)]);
  }

  /** @returns {Promise<Interpreter>} rejects with a sentence */
  static async start() {
    const names = Object.keys(FILES);
    const found = await Promise.all(names.map((name) => part(FILES[name])));
    const made = new Interpreter(Object.fromEntries(names.map((name, at) => [name, found[at]])));
    const { open, ready } = await made.#answer(START_MS).catch(() => ({ open: false, ready: false }));
    if (ready) return made;
    made.end('died');
    throw userError('PythonError', t(open ? 'python.notIsolated' : 'python.notStarted'));
  }

  /** True if it can run code. */
  get isAlive() {
    return this.#why === '';
  }

  /**
   * Run code. @param {string} code @param {(output: Output) => void} onOutput @returns {Promise<void>} whatever the code does is
   * an output
   */
  async run(code, onOutput) {
    this.#messages = 0;
    this.#onOutput = onOutput;
    this.#isRunning = true;
    try {
      await this.#ask({ run: code, seconds: SECONDS }, [], 1000 * SECONDS + GRACE_MS);
    } catch (error) {
      const deep = String(error.message).includes('call stack'); // of the browser: this Python cannot be used any more
      this.end(deep ? 'recursion' : 'died');
      for (const reason of [this.#why, 'lost']) onOutput({ type: 'error', kind: '', message: '', lines: [], reason });
    } finally {
      clearTimeout(this.#timer);
      this.#isRunning = false;
      this.#onOutput = () => {};
    }
  }

  /**
   * Call a function of app/tools/dropped_file.py, which `install` has put there.
   * @param {'declared'|'load'|'call'} name @param {string[]} given @returns {Promise<any>} what its JSON says, made up by the
   *   file as it may be; null if it is none. Rejects if Python had to end
   */
  async tools(name, ...given) {
    const said = await this.#limited({ tools: name, given });
    try {
      return JSON.parse(said);
    } catch {
      return null;
    }
  }

  /**
   * Install a wheel of pure Python. @param {Uint8Array<ArrayBuffer>} wheel
   * @returns {Promise<string>} "", or why it cannot be: "broken", "compiled" or "disk". Rejects if Python had to end
   */
  async installWheel(wheel) {
    const why = await this.#limited({ wheel }, [wheel.buffer]);
    return ['', 'compiled', 'disk'].includes(why) ? why : 'broken';
  }

  /** Ask for something that takes as long as a run at most. */
  async #limited(request, transfer = []) {
    this.#isRunning = true;
    try {
      return await this.#ask({ ...request, seconds: SECONDS }, transfer, 1000 * SECONDS + GRACE_MS);
    } catch (error) {
      this.end('died');
      throw error;
    } finally {
      this.#isRunning = false;
    }
  }

  /** Stop the code, if it runs. Its variables are lost if it does not end by itself. */
  stop() {
    if (!this.#isRunning) return;
    this.#port.postMessage({ stop: true });
    this.#limit(GRACE_MS, 'stopped');
  }

  /** The packages that code imports. @param {string} code @returns {Promise<string[]>} */
  async needs(code) {
    const found = await this.#ask({ needs: code });
    return Array.isArray(found) ? found.map(String) : [];
  }

  /** @param {string} name @param {Uint8Array<ArrayBuffer>} bytes */
  put(name, bytes) {
    return this.#ask({ put: name.replaceAll('/', '_'), bytes }, [bytes.buffer]);
  }

  /** A file that code wrote. @param {string} name @returns {Promise<Uint8Array<ArrayBuffer>>} */
  async read(name) {
    const bytes = await this.#ask({ read: name });
    if (!(bytes instanceof Uint8Array)) throw userError('PythonError', t('python.fileGone', { name }));
    return /** @type {Uint8Array<ArrayBuffer>} */ (bytes);
  }

  /** Put the members of zips where Python finds packages. @param {Uint8Array<ArrayBuffer>[]} zips */
  install(zips) {
    return this.#ask({ install: zips }, zips.map(({ buffer }) => buffer));
  }

  /** @param {string} [why] the reason of what runs */
  end(why = 'stopped') {
    if (!this.isAlive) return;
    this.#why = why;
    clearTimeout(this.#timer);
    this.#host.terminate();
    this.#port.close();
    this.#waiting?.reject(new Error(why));
  }

  #ask(request, transfer = [], patience = START_MS) {
    if (!this.isAlive) return Promise.reject(new Error(this.#why));
    this.#port.postMessage(request, transfer);
    return this.#answer(patience);
  }

  async #answer(patience) {
    this.#limit(patience, 'time');
    try {
      const answer = await new Promise((resolve, reject) => { this.#waiting = { resolve, reject }; });
      if ('error' in answer) throw new Error(answer.error);
      return 'end' in answer ? answer.end : answer;
    } finally {
      this.#waiting = null;
      clearTimeout(this.#timer);
    }
  }

  #limit(ms, why) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.end(why), ms);
  }

  #take(data) {
    if (typeof data !== 'object' || data === null) return;
    if (!('output' in data)) return this.#waiting?.resolve(data);
    this.#messages += 1;
    if (this.#messages > MOST_MESSAGES) return this.end('died');
    const output = outputOf(data.output);
    if (output) this.#onOutput(output);
  }
}

const isText = (value) => typeof value === 'string';
const isCount = (value) => Number.isFinite(value);
const isList = (value, of) => Array.isArray(value) && value.every(of);
/** The fields of each kind of output. The code may have made up the message. */
const SHAPES = {
  text: ({ stream, text }) => isText(stream) && isText(text),
  value: ({ text }) => isText(text),
  cut: ({ most }) => isCount(most),
  table: ({ columns, numeric, rows, row_count, column_count }) => isList(columns, isText) && Array.isArray(numeric)
    && isList(rows, (row) => isList(row, isText)) && isCount(row_count) && isCount(column_count),
  picture: ({ data }) => isText(data) && /^[A-Za-z0-9+/]+={0,2}$/.test(data) && isSmall(data),
  files: ({ files }) => isList(files, (file) => Array.isArray(file) && isText(file[0]) && isCount(file[1])),
  error: ({ kind, message: words, lines, reason }) => [kind, words, reason].every(isText)
    && isList(lines, (line) => Array.isArray(line) && (line[0] === null || isCount(line[0])) && isText(line[1])),
};

/** True for a PNG that can be shown: few bytes may unpack to gigabytes. @param {string} png in base64 */
function isSmall(png) {
  const head = Uint8Array.from(atob(png.slice(0, 32)), (letter) => letter.charCodeAt(0));
  if (head.length < 24 || png.length > MOST_PICTURE) return false;
  const view = new DataView(head.buffer);
  return view.getUint32(16) * view.getUint32(20) <= MOST_PIXELS;
}

/** @returns {Output|null} */
function outputOf(json) {
  try {
    const output = JSON.parse(json);
    return Object.hasOwn(SHAPES, output.type) && SHAPES[output.type](output) ? output : null;
  } catch {
    return null;
  }
}
