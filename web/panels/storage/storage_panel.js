/** Where everything is stored, and its size; each section is about one action. */
import { t } from '../../i18n/i18n.js';
import { button, element, ProblemLine } from '../../common/dom.js';
import { formatBytes, formatNumber } from '../../common/format.js';
import { ExportSection, ImportSection } from './file_sections.js';
import { storedAdapters } from '../../storage/adapter_store.js';
import { storedModels } from '../../storage/model_store.js';
import { askingButton } from '../../common/confirmation.js';
import { DeleteSection } from './delete_section.js';
import { ModelsSection } from './models_section.js';
import { PassphraseSection } from './passphrase_section.js';


export class StoragePanel {
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #place = element('p');
  #counts = element('dl', 'counts');
  #sizes = element('p', 'panel-lead');
  #kept = element('div', 'record-actions');
  #unreadable = element('div', 'record-actions');
  #uncompacted = element('p', 'panel-lead');
  #suspicion = element('div', 'record-actions');
  #sections;

  /** @param {HTMLElement} root @param {import('../../memory/client.js').Memory} memory @param {{page: {lock: () => void}}} given `lock`: forget the key */
  constructor(root, memory, { page }) {
    this.#memory = memory;
    const about = section(t('stored.title'));
    about.append(this.#place, this.#counts, this.#suspicion, this.#unreadable, this.#uncompacted, this.#sizes, this.#kept);
    this.#sections = [
      { title: t('stored.passphrase'), part: new PassphraseSection(memory, page.lock) },
      { title: t('stored.export'), part: new ExportSection(memory) },
      { title: t('stored.import'), part: new ImportSection(memory) },
      { title: t('stored.models'), part: new ModelsSection(() => this.#measure()), whileLocked: true },
      { title: t('deletion.delete'), part: new DeleteSection(memory), whileLocked: true },
    ].map(({ title, ...rest }) => {
      const made = section(title);
      made.append(rest.part.element);
      return { ...rest, element: made };
    });
    root.append(about, ...this.#sections.map((made) => made.element));
  }

  show() {
    return this.refresh();
  }

  /** Sections keep their input. */
  async refresh() {
    const [info, counts] = await Promise.all([this.#memory.info(), this.#memory.counts()]);
    this.#showInfo(info, counts);
    for (const { part, whileLocked, element: made } of this.#sections) {
      made.hidden = info.state === 'locked' && whileLocked !== true;
      if (!made.hidden) part.refresh(info);
    }
    await this.#measure();
  }

  async #measure() {
    const [sizes, kept] = await Promise.all([storageSizes(), this.#memory.keptPages()]);
    this.#sizes.textContent = describeSizes(sizes, kept.bytes);
    const shown = kept.bytes ? t('stored.kept', { size: formatBytes(kept.bytes), most: formatBytes(kept.most) }) : '';
    warn(this.#kept, shown, (problem) => {
      const remove = () => this.#memory.removeKeptPages().then(() => this.#measure()).catch((error) => problem.say(error));
      return askingButton(t('stored.keptDelete'), () => t('stored.keptAsk'), t('forms.delete'), remove);
    });
  }

  hide() {}

  #showTrouble({ unreadable, uncompacted, suspicion }) {
    warn(this.#unreadable, unreadable ? t('stored.unreadable', { count: unreadable }) : '', (problem) => {
      const remove = () => this.#memory.removeUnreadable().catch((error) => problem.say(error));
      return askingButton(t('stored.unreadableDelete'), () => t('stored.unreadableAsk', { count: unreadable }), t('forms.delete'), remove);
    });
    warn(this.#suspicion, suspicion ?? '', (problem) => {
      const accept = () => this.#memory.accept().catch((error) => problem.say(error));
      return button(t('stored.acceptSuspicion'), 'quiet', accept);
    });
    this.#uncompacted.textContent = uncompacted ?? '';
    this.#uncompacted.hidden = !uncompacted;
  }

  #showInfo({ state, persistent, place, encrypted, unreadable, uncompacted, suspicion }, counts) {
    const lasts = t(persistent ? 'stored.stays' : 'stored.lost');
    const cipher = encrypted ? ` ${t('stored.encrypted')}` : '';
    this.#place.textContent = `${t('stored.place', { place: placeOf(place) })} ${lasts}${cipher}`;
    this.#counts.hidden = state === 'locked';
    this.#showTrouble({ unreadable, uncompacted, suspicion });
    this.#counts.replaceChildren(...Object.entries(counts).map(([kind, count]) => {
      const row = element('div');
      row.append(element('dt', '', t(`kinds.${kind}`, { count })), element('dd', '', formatNumber(count)));
      return row;
    }));
  }
}

/** Bytes of each part. The browser's own sum may omit the models' files; it lists its parts in Chromium only. */
async function storageSizes() {
  const estimate = async () => navigator.storage.estimate();
  const [models, adapters, { usage = 0, usageDetails = null }] = await Promise.all([
    storedModels().catch(() => []), storedAdapters().catch(() => []), /** @type {Promise<any>} */ (estimate().catch(() => ({}))),
  ]);
  const modelBytes = [...models, ...adapters].reduce((sum, { bytes }) => sum + bytes, 0);
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

/** A sentence and the action for it. An empty sentence removes both. */
function warn(place, sentence, control) {
  if (place.dataset.said === sentence) return; // an open question stays
  place.dataset.said = sentence;
  place.replaceChildren();
  if (!sentence) return;
  const problem = new ProblemLine();
  place.append(element('p', '', sentence), control(problem), problem.element);
}

function section(title) {
  const made = element('section', 'storage-section');
  made.append(element('h3', '', title));
  return made;
}

/** @param {string} place as a store of py_core/store calls it */
function placeOf(place) {
  const [, database] = place.match(/^this browser's database (.*)$/) ?? [];
  return database ? t('stored.place_database', { name: database }) : place === 'memory only' ? t('stored.place_volatile') : place;
}
