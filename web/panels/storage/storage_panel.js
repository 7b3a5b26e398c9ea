/** Where everything is stored, and its size; each section is about one action. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { button, ProblemLine } from '../../common/dom.js';
import { formatBytes, formatNumber } from '../../common/format.js';
import { ExportSection, ImportSection } from './file_sections.js';
import { storedAdapters } from '../../storage/adapter_store.js';
import { storedModels } from '../../storage/model_store.js';
import { askingButton } from '../../common/confirmation.js';
import { DeleteSection } from './delete_section.js';
import { ModelsSection } from './models_section.js';
import { PassphraseSection } from './passphrase_section.js';

export class StoragePanel {
  #root;
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #info = /** @type {any} */ (null);
  #counts = /** @type {[string, number][]} */ ([]);
  #sizes = '';
  #kept = /** @type {any} */ ({ bytes: 0 });
  #problems = { kept: new ProblemLine(), unreadable: new ProblemLine(), suspicion: new ProblemLine() };
  #sections;

  /** @param {HTMLElement} root @param {import('../../memory/client.js').Memory} memory @param {{page: {lock: () => void}}} given `lock`: forget the key */
  constructor(root, memory, { page }) {
    this.#root = root;
    this.#memory = memory;
    this.#sections = [
      { title: t('stored.passphrase'), part: new PassphraseSection(memory, page.lock) },
      { title: t('stored.export'), part: new ExportSection(memory) },
      { title: t('stored.import'), part: new ImportSection(memory) },
      { title: t('stored.models'), part: new ModelsSection(() => this.#measure()), whileLocked: true },
      { title: t('deletion.delete'), part: new DeleteSection(memory), whileLocked: true },
    ];
    this.#draw();
  }

  show() {
    return this.refresh();
  }

  /** Sections keep their input. */
  async refresh() {
    const [info, counts] = await Promise.all([this.#memory.info(), this.#memory.counts()]);
    this.#info = info;
    this.#counts = Object.entries(counts);
    this.#draw();
    for (const section of this.#sections) if (this.#isShown(section)) section.part.refresh(info);
    await this.#measure();
  }

  hide() {}

  async #measure() {
    const [sizes, kept] = await Promise.all([storageSizes(), this.#memory.keptPages()]);
    this.#kept = kept;
    this.#sizes = describeSizes(sizes, kept.bytes);
    this.#draw();
  }

  #isShown({ whileLocked = false }) {
    return this.#info?.state !== 'locked' || whileLocked;
  }

  #draw() {
    const { state = '', uncompacted = null } = this.#info ?? {};
    render(html`
      <section class="storage-section">
        <h3>${t('stored.title')}</h3>
        <p>${this.#info ? describePlace(this.#info) : ''}</p>
        <dl class="counts" ?hidden=${state === 'locked'}>${this.#counts.map(([kind, count]) => html`
          <div><dt>${t(`kinds.${kind}`, { count })}</dt><dd>${formatNumber(count)}</dd></div>`)}</dl>
        <div class="record-actions">${this.#suspicion()}</div>
        <div class="record-actions">${this.#unreadable()}</div>
        <p class="panel-lead" ?hidden=${!uncompacted}>${uncompacted ?? ''}</p>
        <p class="panel-lead">${this.#sizes}</p>
        <div class="record-actions">${this.#keptPages()}</div>
      </section>
      ${this.#sections.map((section) => html`
        <section class="storage-section" ?hidden=${!this.#isShown(section)}><h3>${section.title}</h3>${section.part.element}</section>`)}`, this.#root);
  }

  #suspicion() {
    const { suspicion = null } = this.#info ?? {};
    const accept = () => this.#try('suspicion', () => this.#memory.accept());
    return suspicion ? [html`<p>${suspicion}</p>`, button(t('stored.acceptSuspicion'), 'quiet', accept), this.#problems.suspicion.element] : nothing;
  }

  #unreadable() {
    const { unreadable: count = 0 } = this.#info ?? {};
    if (!count) return nothing;
    const run = () => this.#try('unreadable', () => this.#memory.removeUnreadable());
    const asked = { label: t('stored.unreadableDelete'), question: t('stored.unreadableAsk', { count }), yes: t('forms.delete'), run };
    return [html`<p>${t('stored.unreadable', { count })}</p>`, askingButton(asked), this.#problems.unreadable.element];
  }

  #keptPages() {
    const { bytes, most } = this.#kept;
    if (!bytes) return nothing;
    const run = () => this.#try('kept', () => this.#memory.removeKeptPages().then(() => this.#measure()));
    const asked = { label: t('stored.keptDelete'), question: t('stored.keptAsk'), yes: t('forms.delete'), run };
    return [
      html`<p>${t('stored.kept', { size: formatBytes(bytes), most: formatBytes(most) })}</p>`, askingButton(asked), this.#problems.kept.element,
    ];
  }

  /** @param {'kept'|'unreadable'|'suspicion'} name @param {() => Promise<unknown>} run */
  async #try(name, run) {
    this.#problems[name].say(null);
    await run().catch((error) => this.#problems[name].say(error));
  }
}

/** Bytes of each part. The browser's own sum may omit the models' files; it lists its parts in Chromium only. */
async function storageSizes() {
  const estimate = async () => navigator.storage.estimate();
  const [models, adapters, { usage = 0, usageDetails = null }] = await Promise.all([
    storedModels().catch(() => []), storedAdapters().catch(() => []), /** @type {Promise<any>} */ (estimate().catch(() => ({}))),
  ]);
  const weights = models.map((model) => ({ bytes: model.weights }));
  const modelBytes = [...models, ...weights, ...adapters].reduce((sum, { bytes }) => sum + bytes, 0);
  const rest = Math.max(usage - modelBytes, 0);
  return { models: modelBytes, memory: usageDetails?.indexedDB ?? null, page: usageDetails?.caches ?? null, rest };
}

/** @param {any} sizes @param {number|null} kept bytes of the kept model states, which the memory's size includes */
function describeSizes({ models, memory, page, rest }, kept) {
  const parts = [t('stored.sizeModels', { size: formatBytes(models) })];
  if (memory === null) parts.unshift(t('stored.sizeAll', { size: formatBytes(Math.max(rest - (kept ?? 0), 0)) }));
  else parts.unshift(t('stored.sizeMemory', { size: formatBytes(Math.max(memory - (kept ?? 0), 0)) }));
  if (page) parts.push(t('stored.sizePage', { size: formatBytes(page) }));
  return parts.join(' ');
}

/** @param {{place: string, persistent: boolean, encrypted: boolean}} info of the memory */
function describePlace({ place, persistent, encrypted }) {
  const lasts = t(persistent ? 'stored.stays' : 'stored.lost');
  const cipher = encrypted ? ` ${t('stored.encrypted')}` : '';
  return `${t('stored.place', { place: placeOf(place) })} ${lasts}${cipher}`;
}

/** @param {string} place as a store of py_core/store calls it */
function placeOf(place) {
  const [, database] = place.match(/^this browser's database (.*)$/) ?? [];
  return database ? t('stored.place_database', { name: database }) : place === 'memory only' ? t('stored.place_volatile') : place;
}
