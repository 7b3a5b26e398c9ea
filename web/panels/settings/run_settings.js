/**
 * What runs the model: which backend, how many threads the CPU gives, how long a conversation may be, how much memory it
 * takes. The choices are in localStorage, for they are needed before the memory opens. What the address of the page says (page/options.js) comes
 * first, until something is chosen on the page: then the address says it no more.
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
 * @returns {Values} what was chosen; what is no valid choice counts as none
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
  /** What runs, as `Engine.start` tells it, with the model's title; null while nothing does. */
  runs = /** @type {any} */ (null);
  #values;
  #address; // {backend, precision, context, memory, workers}, each null where the address does not say
  #onChange;
  #listeners = /** @type {Set<() => void>} */ (new Set());

  /**
   * @param {{backend: string|null, precision: string|null, context: number|null, memory: number|null, workers: number|null}} address
   * @param {() => void} onChange something else was chosen: the model has to be loaded again
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

  /** What counts. `backend` is a name of `BACKENDS`, or numpy, which only the address can say. @returns {Values} */
  get values() {
    const { backend, precision, context, memory, workers } = this.#address;
    return {
      backend: backend ? nameOf(backend, precision) : this.#values.backend,
      context: context ?? this.#values.context,
      memory: memory ?? this.#values.memory,
      workers: workers ?? this.#values.workers,
    };
  }

  /** @param {Name} name @returns {string|null} what the address says of it, such as "backend=wasm&precision=fast" */
  inAddress(name) {
    const said = IN_ADDRESS[name].filter((one) => this.#address[one] !== null).map((one) => `${one}=${this.#address[one]}`);
    return said.length ? said.join('&') : null;
  }

  /** From now on; the address does not say it any more. @param {Name} name @param {string|number|null} value */
  choose(name, value) {
    this.#set(name, value);
    for (const one of IN_ADDRESS[name]) removeFromAddress(one);
    this.#store(name, value);
    this.#onChange();
  }

  /** Automatic from the next load on, unless the address says otherwise. @param {Name} name */
  reset(name) {
    const value = name === 'backend' ? 'auto' : null;
    this.#values = { ...this.#values, [name]: value };
    this.#store(name, value);
  }

  /** For now, without remembering it. */
  useCpu() {
    this.#set('backend', 'wasm');
  }

  /** Another tab may have chosen since. */
  reread() {
    this.#values = readChoices(fromStorage);
  }

  /** @param {any} runs as `runs` */
  tell(runs) {
    this.runs = runs;
    for (const listener of this.#listeners) listener();
  }

  /** @param {() => void} listener another model runs, on something else, or none any more */
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
