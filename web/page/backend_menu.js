/**
 * The menu that says what runs the model: automatic, the GPU, or the CPU in one of two precisions. The choice is
 * remembered. What the address of the page says (options.js) comes first, until the menu is used.
 */
const KEY = 'sonata.backend';
const CHOICES = {
  auto: { backend: 'auto', precision: 'precise' },
  webgpu: { backend: 'webgpu', precision: 'precise' },
  wasm: { backend: 'wasm', precision: 'precise' },
  'wasm-fast': { backend: 'wasm', precision: 'fast' },
};

export class BackendMenu {
  #select;
  #fromAddress; // {backend, precision}, each null where the address does not say

  /**
   * @param {HTMLSelectElement} select
   * @param {{backend: string|null, precision: string|null}} fromAddress
   * @param {() => void} onChange
   */
  constructor(select, { backend, precision }, onChange) {
    this.#select = select;
    this.#fromAddress = { backend, precision };
    if (backend === 'numpy') select.add(new Option('CPU (numpy)', 'numpy')); // slow, so it is not offered
    select.value = backend ? nameOf(backend, precision) : remembered();
    select.addEventListener('change', () => {
      this.#fromAddress = {};
      forgetAddress();
      remember(select.value);
      onChange();
    });
  }

  /** @returns {{backend: 'auto'|'webgpu'|'wasm'|'numpy', precision: 'precise'|'fast'}} */
  get choice() {
    const { backend, precision } = CHOICES[this.#select.value] ?? { backend: 'numpy', precision: 'precise' };
    return { backend, precision: this.#fromAddress.precision ?? precision };
  }

  /** Another tab may have chosen since. */
  reread() {
    if (!this.#fromAddress.backend) this.#select.value = remembered();
  }

  /** For now, without remembering it. */
  useCpu() {
    this.#fromAddress = {};
    this.#select.value = 'wasm';
  }
}

function nameOf(backend, precision) {
  return backend === 'wasm' && precision === 'fast' ? 'wasm-fast' : backend;
}

function forgetAddress() {
  const url = new URL(location.href);
  for (const name of ['backend', 'precision']) url.searchParams.delete(name);
  history.replaceState(null, '', url);
}

// A browser may forbid the page to store anything.
function remembered() {
  try {
    const name = localStorage.getItem(KEY);
    return name !== null && Object.hasOwn(CHOICES, name) ? name : 'auto';
  } catch {
    return 'auto';
  }
}

function remember(name) {
  try {
    localStorage.setItem(KEY, name);
  } catch { /* then not */ }
}
