/** The line in the header that says what runs the model. */
import { formatRate } from './format.js';

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

  /** Show what `Engine.start` returned, and the name of the adapter that the model answers with. */
  showInfo({ backend, adapter, software, features, reason, model, answersWith = null }) {
    const name = { webgpu: `WebGPU, ${adapter}`, numpy: `the CPU, ${adapter}`, wasm: `the CPU, ${features}` }[backend];
    this.show('ready', `${model}${answersWith ? ` with ${answersWith}` : ''} on ${name}`);
    const slowly = backend === 'numpy' || (backend === 'webgpu' && software);
    this.#root.dataset.slow = String(slowly);
    const note = reason || (slowly && 'This GPU is emulated by software, which is slow. The CPU answers faster.');
    this.#reason.textContent = note || '';
    this.#reason.hidden = !note;
  }

  showRate(tokensPerSecond) {
    this.#rate.textContent = tokensPerSecond ? formatRate(tokensPerSecond) : '';
  }
}
