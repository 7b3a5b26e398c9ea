/**
 * What the address of the page can set, for tests and developers:
 *   ?model=URL          a GGUF file instead of the first one in models.json
 *   ?backend=NAME       webgpu, wasm or numpy, in place of what Settings say (settings/run_settings.js)
 *   ?precision=NAME     precise or fast, of wasm; likewise
 *   ?workers=N          how many workers wasm has (default: as many as the machine has cores, at most 8); likewise
 *   ?context=N          the most tokens of a conversation; likewise, and the page says what memory they take
 *   ?memory=MB          the most memory that the model and its conversations take; likewise
 *   ?max_tokens=N       the most tokens of one answer
 *   ?autotune=off       does not measure which shapes of the kernels are the fastest on this GPU
 *   ?tiers=on           keys and values of long conversations take fewer bits as they grow old
 *   ?routing=off        every message is for the plain assistant
 *   ?idle=SECONDS       after so long in which nobody did anything the page may learn
 *   ?patience=SECONDS   how long the engine may be silent before the page says so (default 60)
 */
export function readOptions(search = location.search) {
  const query = new URLSearchParams(search);
  return {
    modelUrl: query.get('model'),
    backend: oneOf(['auto', 'webgpu', 'wasm', 'numpy'], query.get('backend')),
    precision: oneOf(['precise', 'fast'], query.get('precision')),
    workers: positive(query.get('workers')),
    routing: query.get('routing') !== 'off',
    autotune: query.get('autotune') !== 'off',
    tiers: query.get('tiers') === 'on',
    context: positive(query.get('context')),
    memory: positive(query.get('memory')),
    maxTokens: positive(query.get('max_tokens')),
    idle: positive(query.get('idle')),
    patience: positive(query.get('patience')) ?? 60,
  };
}

/**
 * What tabs that share a worker have in common (engine/model_tabs.js): what their addresses ask of it, and the version of
 * the site. What is chosen in a menu is for all of them.
 * @param {ReturnType<typeof readOptions>} options
 */
export function engineKey({ patience: _, ...options }) {
  const version = document.querySelector('meta[name="sonata-version"]')?.getAttribute('content');
  return JSON.stringify([version, options]);
}

function oneOf(names, text) {
  return names.includes(text) ? text : null;
}

function positive(text) {
  const value = Number(text);
  return Number.isFinite(value) && value > 0 ? value : null;
}
