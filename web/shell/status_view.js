/** Shows what runs the model: a chip in the header with its name, and a menu behind it with the rest. */
import { said } from '../i18n/engine_texts.js';
import { t } from '../i18n/i18n.js';
import { part } from '../common/dom.js';
import { formatRate } from '../common/format.js';

export class StatusView {
  #root;
  #chip;
  #name;
  #line;
  #rate;
  #reason;
  #tabs;

  /** @param {HTMLElement} root in the menu @param {HTMLElement} chip */
  constructor(root, chip) {
    this.#root = root;
    this.#chip = chip;
    this.#name = part(chip, '.chip-name', HTMLElement);
    this.#line = root.querySelector('.status-line');
    this.#rate = root.querySelector('.status-rate');
    this.#reason = root.querySelector('.status-reason');
    this.#tabs = part(root, '.status-tabs', HTMLElement);
    this.#tabs.textContent = t('tabs.elsewhere');
  }

  /** @param {'loading'|'ready'|'failed'} state @param {string} text */
  show(state, text) {
    this.#root.dataset.state = this.#chip.dataset.state = state;
    if (state !== 'ready') this.#name.textContent = t(`header.${state}`);
    this.#line.textContent = text;
    this.#rate.textContent = '';
    this.#reason.textContent = '';
    this.#reason.hidden = this.#tabs.hidden = true;
  }

  /** Show what `Engine.start` returned, the adapter that the model answers with, and whether another tab runs it. */
  showInfo({ backend, adapter, software, features, reason, model, diffusion = false, answersWith = null, isElsewhere = false }) {
    const name = { webgpu: `WebGPU, ${adapter}`, numpy: t('status.cpu', { kind: adapter }), wasm: t('status.cpu', { kind: features }) }[backend];
    const line = t('status.on', { model: answersWith ? t('status.withAdapter', { model, adapter: answersWith }) : model, device: name });
    this.show('ready', diffusion ? `${line}. ${t('status.diffusion')}` : line);
    const slowly = backend === 'numpy' || (backend === 'webgpu' && software);
    this.#name.textContent = model;
    this.#root.dataset.slow = this.#chip.dataset.slow = String(slowly);
    const note = reason || (slowly && t('status.software'));
    this.#reason.textContent = note ? said(note) : '';
    this.#reason.hidden = !note;
    this.#tabs.hidden = !isElsewhere;
  }

  showRate(tokensPerSecond) {
    this.#rate.textContent = tokensPerSecond ? formatRate(tokensPerSecond) : '';
  }
}
