/**
 * Options in the address of the page, for tests and developers:
 *   ?model=URL          a GGUF file instead of the first one in models.json
 *   ?backend=NAME       webgpu, wasm or numpy, instead of the value in Settings (settings/run_settings.js)
 *   ?precision=NAME     precise or fast, of wasm; likewise
 *   ?workers=N          the number of workers of wasm (default: one per core, at most 8); likewise
 *   ?context=N          the most tokens of a conversation; likewise, and the page says what memory they take
 *   ?memory=MB          the most memory that the model and its conversations may take; likewise
 *   ?max_tokens=N       the most tokens of one answer
 *   ?autotune=off       does not measure the fastest shapes of the kernels on this GPU
 *   ?tiers=on           keys and values of long conversations take fewer bits as they age
 *   ?routing=off        the plain assistant answers every message
 *   ?idle=SECONDS       idle time after which the page may learn
 *   ?patience=SECONDS   how long the engine may be silent before the page says so (default 60)
 * An invalid number (a fraction, below 1, or far too large) is ignored, and `refused` names it.
 */
const SECONDS = 86_400; // a day: a browser's timers count to 24 of them
const LEAST_SECONDS = 0.1;
const NUMBERS = {
  workers: { most: 16, isWhole: true }, // as in backends/wasm/kernel_pool.js
  context: { most: 2 ** 20, isWhole: true },
  memory: { most: 2 ** 20, isWhole: true },
  max_tokens: { most: 2 ** 20, isWhole: true },
  idle: { most: SECONDS, isWhole: false },
  patience: { most: SECONDS, isWhole: false },
};

/** @typedef {{said: string, name: string, most: number, isWhole: boolean}} Refused said: such as "workers=1.5" */

export function readOptions(search = location.search) {
  const query = new URLSearchParams(search);
  const refused = /** @type {Refused[]} */ ([]);
  const number = (/** @type {keyof typeof NUMBERS} */ name) => {
    const text = query.get(name);
    if (!text) return null;
    const { most, isWhole } = NUMBERS[name], value = Number(text);
    const isNumber = (isWhole ? /^\d+$/ : /^(?:\d+(?:\.\d+)?|\.\d+)$/).test(text);
    if (isNumber && value >= (isWhole ? 1 : LEAST_SECONDS) && value <= most) return value;
    refused.push({ said: `${name}=${text}`, name, most, isWhole });
    return null;
  };
  return {
    modelUrl: query.get('model'),
    backend: oneOf(['auto', 'webgpu', 'wasm', 'numpy'], query.get('backend')),
    precision: oneOf(['precise', 'fast'], query.get('precision')),
    workers: number('workers'),
    routing: query.get('routing') !== 'off',
    autotune: query.get('autotune') !== 'off',
    tiers: query.get('tiers') === 'on',
    context: number('context'),
    memory: number('memory'),
    maxTokens: number('max_tokens'),
    idle: number('idle'),
    patience: number('patience') ?? 60,
    refused,
  };
}

/**
 * The options that tabs which share a worker have in common (engine/model_tabs.js): those of their addresses, and the version
 * of the site. A choice in a menu applies to all of them.
 * @param {ReturnType<typeof readOptions> & {multilingual: boolean}} options
 * @param {string|null} [version] as index.html says it
 */
export function engineKey({ patience: _, refused: __, ...options }, version = document.querySelector('meta[name="sonata-version"]')?.getAttribute('content')) {
  return JSON.stringify([version, options]);
}

function oneOf(names, text) {
  return names.includes(text) ? text : null;
}
