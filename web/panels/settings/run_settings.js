/**
 * How the model runs: the backend, the number of CPU threads, the length of a conversation, the memory that it may take. The
 * choices are in localStorage, because they are needed before the memory opens. The address of the page (page/options.js) takes
 * precedence, until something is chosen on the page: then it is removed from the address.
 */
import { changeAddress } from '../../chat/address.js';
import { local } from '../../common/web_storage.js';

export const BACKENDS = {
  auto: { backend: 'auto', precision: 'precise' },
  webgpu: { backend: 'webgpu', precision: 'precise' },
  wasm: { backend: 'wasm', precision: 'precise' },
  'wasm-fast': { backend: 'wasm', precision: 'fast' },
};
export const MOST_WORKERS = 16; // as in backends/wasm/kernel_pool.js
const MOST_CONTEXT = 2 ** 20;
const MOST_MEMORY = 2 ** 20; // MB
const KEYS = { backend: 'sonata.backend', context: 'sonata.context', memory: 'sonata.memory', workers: 'sonata.workers' };
const IN_ADDRESS = { backend: ['backend', 'precision'], context: ['context'], memory: ['memory'], workers: ['workers'] };

/** @typedef {'backend'|'context'|'memory'|'workers'} Name */
/** @typedef {{backend: string, context: number|null, memory: number|null, workers: number|null}} Values null: automatic; memory in MB */

/**
 * @param {(key: string) => string|null} read of localStorage
 * @returns {Values} the choices; an invalid value counts as no choice
 */
export function readChoices(read) {
  const backend = read(KEYS.backend);
  return {
    backend: backend !== null && Object.hasOwn(BACKENDS, backend) ? backend : 'auto',
    context: wholeNumber(read(KEYS.context), MOST_CONTEXT),
    memory: wholeNumber(read(KEYS.memory), MOST_MEMORY),
    workers: wholeNumber(read(KEYS.workers), MOST_WORKERS),
  };
}

/** @param {string|null} text @returns {number|null} */
function wholeNumber(text, most) {
  if (text === null || !/^\d{1,9}$/.test(text)) return null;
  const value = Number(text);
  return value >= 1 && value <= most ? value : null;
}

export class RunSettings {
  /** The running configuration, as `Engine.start` reports it, with the model's title; null while none runs. */
  runs = /** @type {any} */ (null);
  #values;
  #address; // {backend, precision, context, memory, workers}, each null if the address does not set it
  #onChange;
  #listeners = /** @type {Set<() => void>} */ (new Set());

  /**
   * @param {{backend: string|null, precision: string|null, context: number|null, memory: number|null, workers: number|null}} address
   * @param {() => void} onChange called after a change: the model has to be loaded again
   */
  constructor({ backend, precision, context, memory, workers }, onChange) {
    this.#address = { backend, precision, context, memory, workers };
    this.#values = readChoices(fromStorage);
    this.#onChange = onChange;
  }

  /** @returns {{backend: 'auto'|'webgpu'|'wasm'|'numpy', precision: 'precise'|'fast', context: number|null, memory: number|null, workers: number|null}} */
  get choice() {
    const { backend, context, memory, workers } = this.values;
    const { precision, ...chosen } = BACKENDS[backend] ?? { backend: 'numpy', precision: 'precise' };
    return { ...chosen, precision: this.#address.precision ?? precision, context, memory, workers };
  }

  /** The effective values. `backend` is a name of `BACKENDS`, or numpy, which only the address can set. @returns {Values} */
  get values() {
    const { backend, precision, context, memory, workers } = this.#address;
    return {
      backend: backend ? nameOf(backend, precision) : this.#values.backend,
      context: context ?? this.#values.context,
      memory: memory ?? this.#values.memory,
      workers: workers ?? this.#values.workers,
    };
  }

  /** @param {Name} name @returns {string|null} what the address sets for it, such as "backend=wasm&precision=fast" */
  inAddress(name) {
    const said = IN_ADDRESS[name].filter((one) => this.#address[one] !== null).map((one) => `${one}=${this.#address[one]}`);
    return said.length ? said.join('&') : null;
  }

  /** Set a value from now on, and remove it from the address. @param {Name} name @param {string|number|null} value */
  choose(name, value) {
    this.#set(name, value);
    for (const one of IN_ADDRESS[name]) removeFromAddress(one);
    this.#store(name, value);
    this.#onChange();
  }

  /** Automatic from the next load on, unless the address sets it. @param {Name} name */
  reset(name) {
    const value = name === 'backend' ? 'auto' : null;
    this.#values = { ...this.#values, [name]: value };
    this.#store(name, value);
  }

  /** Use the CPU for now, without remembering it. */
  useCpu() {
    this.#set('backend', 'wasm');
  }

  /** Another tab may have changed the choices since. */
  reread() {
    this.#values = readChoices(fromStorage);
  }

  /** @param {any} runs as `runs` */
  tell(runs) {
    this.runs = runs;
    for (const listener of this.#listeners) listener();
  }

  /** @param {() => void} listener called when another model runs, another backend runs it, or none runs any more */
  onTell(listener) {
    this.#listeners.add(listener);
  }

  #store(name, value) {
    if (value === null || value === 'auto') local.removeItem(KEYS[name]);
    else local.setItem(KEYS[name], String(value));
  }

  #set(name, value) {
    this.#values = { ...this.#values, [name]: value };
    for (const one of IN_ADDRESS[name]) this.#address[one] = null;
  }
}

function nameOf(backend, precision) {
  return backend === 'wasm' && precision === 'fast' ? 'wasm-fast' : backend;
}

function removeFromAddress(name) {
  const url = new URL(location.href);
  if (!url.searchParams.has(name)) return;
  url.searchParams.delete(name);
  changeAddress(url);
}

function fromStorage(key) {
  return local.getItem(key);
}
