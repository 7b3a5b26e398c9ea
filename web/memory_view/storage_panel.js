/** Where everything is kept and how much there is; each section is about one thing that can be done with it. */
import { element } from '../page/dom.js';
import { formatBytes, formatCount } from '../page/format.js';
import { ExportSection, ImportSection } from './file_sections.js';
import { DeleteSection } from './delete_section.js';
import { ModelsSection } from './models_section.js';
import { PassphraseSection } from './passphrase_section.js';
import { PoliciesSection } from './policies_section.js';

export class StoragePanel {
  #memory;
  #place = element('p');
  #counts = element('dl', 'counts');
  #room = element('p', 'memory-lead');
  #sections;

  constructor(root, memory) {
    this.#memory = memory;
    const about = section('What is kept, and where');
    about.append(this.#place, this.#counts, this.#room);
    this.#sections = [
      { title: 'Passphrase', part: new PassphraseSection(memory) },
      { title: 'Export', part: new ExportSection(memory) },
      { title: 'Import', part: new ImportSection(memory) },
      { title: 'Policies', part: new PoliciesSection(memory) },
      { title: 'Models', part: new ModelsSection(), whileLocked: true },
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
    this.#say(info);
    for (const { part, whileLocked, element: made } of this.#sections) {
      made.hidden = info.state === 'locked' && whileLocked !== true;
      if (!made.hidden) part.refresh(info);
    }
    const { usage } = (await navigator.storage?.estimate?.().catch(() => null)) ?? {};
    this.#room.textContent = usage ? `This page takes ${formatBytes(usage)} in this browser, models included.` : '';
  }

  hide() {}

  #say({ state, persistent, place, encrypted, counts }) {
    const lasts = persistent
      ? 'It is still there after a restart.'
      : 'It is gone when this tab is closed: export it if you want to keep it.';
    const cipher = encrypted ? ' It is encrypted with your passphrase.' : '';
    this.#place.textContent = `Kept in ${place}. ${lasts}${cipher}`;
    this.#counts.hidden = state === 'locked';
    const rows = [
      [counts.pattern, 'pattern'], [counts.session, 'conversation'], [counts.witness, 'log entry', 'log entries'],
      [counts.policy, 'policy', 'policies'],
    ];
    this.#counts.replaceChildren(...rows.map(([count, ...nouns]) => {
      const [number, ...words] = formatCount(count ?? 0, ...nouns).split(' ');
      const row = element('div');
      row.append(element('dt', '', words.join(' ')), element('dd', '', number));
      return row;
    }));
  }
}

function section(title) {
  const made = element('section', 'storage-section');
  made.append(element('h3', '', title));
  return made;
}
