/** Where everything is kept and how much there is; each section is about one thing that can be done with it. */
import { button, element, ProblemLine } from '../page/dom.js';
import { formatBytes, formatCount } from '../page/format.js';
import { ExportSection, ImportSection } from './file_sections.js';
import { storedAdapters } from '../storage/adapter_store.js';
import { storedModels } from '../storage/model_store.js';
import { askingButton } from '../page/ask.js';
import { DeleteSection } from './delete_section.js';
import { ModelsSection } from './models_section.js';
import { PassphraseSection } from './passphrase_section.js';
import { PoliciesSection } from './policies_section.js';

const SEE_HERE = ' See Settings, Storage.';

export class StoragePanel {
  #memory;
  #place = element('p');
  #counts = element('dl', 'counts');
  #sizes = element('p', 'panel-lead');
  #unreadable = element('div', 'record-actions');
  #uncompacted = element('p', 'panel-lead');
  #suspicion = element('div', 'record-actions');
  #sections;

  constructor(root, memory) {
    this.#memory = memory;
    const about = section('Stored items');
    about.append(this.#place, this.#counts, this.#suspicion, this.#unreadable, this.#uncompacted, this.#sizes);
    this.#sections = [
      { title: 'Passphrase', part: new PassphraseSection(memory) },
      { title: 'Export', part: new ExportSection(memory) },
      { title: 'Import', part: new ImportSection(memory) },
      { title: 'Policies', part: new PoliciesSection(memory) },
      { title: 'Models', part: new ModelsSection(() => this.#measure()), whileLocked: true },
      { title: 'Delete everything', part: new DeleteSection(memory), whileLocked: true },
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

  /** Sections keep what is being typed in them. */
  async refresh() {
    const info = await this.#memory.info();
    this.#showInfo(info);
    for (const { part, whileLocked, element: made } of this.#sections) {
      made.hidden = info.state === 'locked' && whileLocked !== true;
      if (!made.hidden) part.refresh(info);
    }
    await this.#measure();
  }

  async #measure() {
    this.#sizes.textContent = describeSizes(await storageSizes());
  }

  hide() {}

  #showTrouble({ unreadable, uncompacted, suspicion }) {
    const items = unreadable ? formatCount(unreadable, 'item') : '';
    warn(this.#unreadable, items && `${items} cannot be read.`, (problem) => {
      const remove = () => this.#memory.removeUnreadable().catch((error) => problem.say(error));
      return askingButton('Delete unreadable items', () => `Delete ${items}?`, 'Delete', remove);
    });
    warn(this.#suspicion, (suspicion ?? '').replace(SEE_HERE, ''), (problem) => {
      const accept = () => this.#memory.accept().catch((error) => problem.say(error));
      return button('Do not warn again', 'quiet', accept);
    });
    this.#uncompacted.textContent = uncompacted ?? '';
    this.#uncompacted.hidden = !uncompacted;
  }

  #showInfo({ state, persistent, place, encrypted, counts, nouns, unreadable, uncompacted, suspicion }) {
    const lasts = persistent
      ? 'It stays after a restart.'
      : 'It is lost when you close this tab. To keep it, export it.';
    const cipher = encrypted ? ' Your passphrase encrypts it.' : '';
    this.#place.textContent = `The memory is in ${place}. ${lasts}${cipher}`;
    this.#counts.hidden = state === 'locked';
    this.#showTrouble({ unreadable, uncompacted, suspicion });
    this.#counts.replaceChildren(...Object.entries(nouns).map(([kind, [one, several]]) => {
      const [number, ...words] = formatCount(counts[kind] ?? 0, one, several).split(' ');
      const row = element('div');
      row.append(element('dt', '', words.join(' ')), element('dd', '', number));
      return row;
    }));
  }
}

/** Bytes of each part. The browser's own sum may leave out the models' files; it names its parts in Chromium only. */
async function storageSizes() {
  const estimate = async () => (await navigator.storage?.estimate?.().catch(() => null)) ?? {};
  const [models, adapters, { usage = 0, usageDetails = null }] = await Promise.all([
    storedModels().catch(() => []), storedAdapters().catch(() => []), /** @type {Promise<any>} */ (estimate()),
  ]);
  const modelBytes = [...models, ...adapters].reduce((sum, { bytes }) => sum + bytes, 0);
  const rest = Math.max(usage - modelBytes, 0);
  return { models: modelBytes, memory: usageDetails?.indexedDB ?? null, page: usageDetails?.caches ?? null, rest };
}

function describeSizes({ models, memory, page, rest }) {
  const parts = [`Models and adapters: ${formatBytes(models)}.`];
  if (memory === null) parts.unshift(`Chat memory and this page: ${formatBytes(rest)}.`);
  else parts.unshift(`Chat memory: ${formatBytes(memory)}.`);
  if (page) parts.push(`This page, stored for offline use: ${formatBytes(page)}.`);
  return parts.join(' ');
}

/** A sentence and what can be done about it. An empty sentence takes both away. */
function warn(place, sentence, control) {
  if (place.dataset.said === sentence) return; // a question that is being asked stays
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
