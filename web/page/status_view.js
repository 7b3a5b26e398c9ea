/** The line in the header that says what runs the model, and the panel that shows how loading goes on. */
import { formatProgress, formatRate } from './format.js';

export class StatusView {
  #root;
  #line;
  #rate;
  #reason;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#root = root;
    this.#line = root.querySelector('.status-line');
    this.#rate = root.querySelector('.status-rate');
    this.#reason = root.querySelector('.status-reason');
  }

  /** @param {'loading'|'ready'|'failed'} state @param {string} text */
  show(state, text) {
    this.#root.dataset.state = state;
    this.#line.textContent = text;
    this.#rate.textContent = '';
    this.#reason.textContent = '';
    this.#reason.hidden = true;
  }

  /** What `Engine.start` told. */
  showInfo({ backend, adapter, software, features, reason, model }) {
    const name = { webgpu: `WebGPU, ${adapter}`, numpy: `the CPU, ${adapter}`, wasm: `the CPU, ${features}` }[backend];
    this.show('ready', `${model} on ${name}`);
    const slowly = backend === 'numpy' || (backend === 'webgpu' && software);
    this.#root.dataset.slow = String(slowly);
    const note = reason || (slowly && 'This is a software adapter, which is slow. The CPU answers faster.');
    this.#reason.textContent = note || '';
    this.#reason.hidden = !note;
  }

  showRate(tokensPerSecond) {
    this.#rate.textContent = tokensPerSecond ? formatRate(tokensPerSecond) : '';
  }
}

export class LoadingView {
  #root;
  #bar;
  #bytes;
  #stages;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#root = root;
    this.#bar = root.querySelector('progress');
    this.#bytes = root.querySelector('.loading-bytes');
    this.#stages = Object.fromEntries([...root.querySelectorAll('[data-stage]')].map((li) => [li.dataset.stage, li]));
  }

  begin() {
    for (const li of Object.values(this.#stages)) li.dataset.state = 'waiting';
    this.#stages.python.dataset.state = 'running';
    this.#stages.model.dataset.state = 'running';
    this.#bar.removeAttribute('value');
    this.#bytes.textContent = '';
    this.#root.hidden = false;
  }

  /** @param {{stage: 'python'|'model'|'ready', done: number, total: number|null}} progress */
  progress({ stage, done, total }) {
    const complete = Boolean(total) && done >= total;
    this.#stages[stage].dataset.state = complete ? 'done' : 'running';
    if (stage !== 'model') return;
    this.#bytes.textContent = formatProgress(done, total);
    if (!total) return;
    this.#bar.max = total;
    this.#bar.value = done;
  }

  end() {
    this.#root.hidden = true;
  }
}
