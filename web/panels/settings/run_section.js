/** Settings, Model: the backend, the number of threads, the memory, and the length of a conversation. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { live } from '../../vendor/lit-html/directives/live.js';
import { findAdapter, isSoftware } from '../../backends/webgpu/adapter.js';
import { said } from '../../i18n/engine_texts.js';
import { t } from '../../i18n/i18n.js';
import { formatBytes, formatNumber } from '../../common/format.js';
import { BACKENDS, MOST_WORKERS } from './run_settings.js';

const USUAL_WORKERS = 8; // at most, as in backends/wasm/kernel_pool.js
const MEMORY_SIZES = [250, 500, 1000, 2000, 3000, 4000, 6000, 8000, 12000, 16000, 24000, 32000, 48000]; // MB
const SHOWN = { auto: 'run.auto', webgpu: 'run.webgpu', wasm: 'run.precise', 'wasm-fast': 'run.fast', numpy: 'run.numpy' };

export class RunSection {
  #root;
  #run;
  #there = ''; // a sentence about the GPU

  /** @param {HTMLElement} root @param {import('./run_settings.js').RunSettings} run */
  constructor(root, run) {
    this.#root = root;
    this.#run = run;
    run.onTell(() => this.show());
    wordsOfGpu().then((words) => {
      this.#there = words;
      this.show();
    });
  }

  show() {
    render(html`
      <form class="settings-form" @submit=${(event) => event.preventDefault()}>
        ${this.#backend()}
        ${this.#context()}
        ${this.#memory()}
        ${this.#workers()}
      </form>`, this.#root);
  }

  #backend() {
    const { values: { backend }, runs } = this.#run;
    const names = [...Object.keys(BACKENDS), ...backend === 'numpy' ? ['numpy'] : []]; // slow, so it is not offered
    const why = runs && (runs.reason ? said(runs.reason) : t(backend === 'auto' ? 'run.whyGpu' : 'run.whyChosen'));
    return this.#field('backend', t('run.backend'), names.map((name) => [name, t(SHOWN[name])]), backend, html`
      <small id="backend-about">${t('run.backendAbout')}</small>
      <small class="run-why">${[this.#there, why].filter(Boolean).join(' ')}</small>`);
  }

  #context() {
    const { values: { context }, runs } = this.#run;
    const fit = runs?.fit;
    const told = new Map((fit?.contexts ?? []).map(([tokens, bytes]) => [tokens, bytes]));
    const lengths = [...new Set([...told.keys(), ...context ? [context] : []])].sort((one, other) => one - other);
    const options = lengths.map((tokens) => {
      const bytes = told.get(tokens);
      const words = t('answers.tokens', { count: tokens });
      return [String(tokens), bytes ? t('run.lengthTakes', { words, size: formatBytes(bytes) }) : words];
    });
    return this.#field('context', t('run.context'), [['', t('run.auto')], ...options], context === null ? '' : String(context), html`
      <small id="context-about">${t('run.contextAbout')}</small>
      ${fit ? html`<small class="run-cost">${t('run.contextCost', {
        tokens: runs.contextLength, total: formatBytes(fit.weights + fit.pages + fit.scratch), weights: formatBytes(fit.weights),
        pages: formatBytes(fit.pages), scratch: formatBytes(fit.scratch), trained: fit.trained,
      })}</small>` : nothing}`);
  }

  #memory() {
    const { values: { memory }, runs } = this.#run;
    const { weights = 0, pages = 0, scratch = 0 } = runs?.fit ?? {};
    const sizes = new Set(MEMORY_SIZES.filter((size) => size * 1e6 >= weights + pages + scratch));
    if (memory) sizes.add(memory);
    const options = [...sizes].sort((one, other) => one - other).map((size) => [String(size), t('run.memoryMost', { size: formatBytes(size * 1e6) })]);
    return this.#field('memory', t('run.memory'), [['', t('run.auto')], ...options], memory === null ? '' : String(memory), html`
      <small id="memory-about">${t('run.memoryAbout')}</small>`);
  }

  #workers() {
    const { values: { workers } } = this.#run;
    const cores = navigator.hardwareConcurrency || 1;
    const most = crossOriginIsolated ? Math.min(cores, MOST_WORKERS) : 1;
    const counts = Array.from({ length: most }, (_, at) => at + 1);
    if (workers && !counts.includes(workers)) counts.push(workers);
    const usual = Math.min(most, USUAL_WORKERS);
    const options = [['', t('run.autoOf', { count: usual })], ...counts.map((count) => [String(count), formatNumber(count)])];
    return this.#field('workers', t('run.workers'), options, workers === null ? '' : String(workers), html`
      <small id="workers-about">${t('run.workersAbout', { count: cores })}</small>
      ${crossOriginIsolated ? nothing : html`<small>${t('run.workersAlone')}</small>`}`);
  }

  /** @param {import('./run_settings.js').Name} name @param {string[][]} options value and label */
  #field(name, title, options, chosen, about) {
    const said = this.#run.inAddress(name);
    return html`
      <label class="field settings-number">
        <span id=${`${name}-title`}>${title}</span>
        <select id=${name} autocomplete="off" aria-labelledby=${`${name}-title`}
          aria-describedby=${`${name}-about`} @change=${(event) => this.#choose(name, event.target.value)}>
          ${options.map(([value, words]) => html`<option value=${value} .selected=${live(value === chosen)}>${words}</option>`)}
        </select>
        ${about}
        ${said ? html`<small class="run-address">${t('run.inAddress', { said })}</small>` : nothing}
      </label>`;
  }

  #choose(name, value) {
    this.#run.choose(name, name === 'backend' ? value : value === '' ? null : Number(value));
    this.show();
  }
}

/** A sentence about the available WebGPU. */
async function wordsOfGpu() {
  const adapter = await findAdapter().catch(() => null);
  if (!adapter) return t('run.noGpu');
  const { description, vendor, architecture } = adapter.info;
  const name = description || [vendor, architecture].filter(Boolean).join(' ') || 'WebGPU';
  return t(isSoftware(adapter) ? 'run.softwareGpu' : 'run.gpu', { name });
}
