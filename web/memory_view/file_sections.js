/** The whole memory to a file, and from one. */
import { element } from '../page/dom.js';
import { formatBytes, formatCount } from '../page/format.js';
import { userError } from '../common/user_error.js';
import { ask } from '../page/ask.js';
import { saveFile } from '../page/save_file.js';
import { passphraseInput } from '../page/edit_form.js';
import { SectionForm } from './section_form.js';

export class ExportSection {
  element;
  #memory;
  #form;
  #passphrase = passphraseInput('new-password');
  #hint = element('p', 'panel-lead');

  constructor(memory) {
    this.#memory = memory;
    this.#form = new SectionForm('Export to a file', () => this.#export());
    this.#form.add(this.#hint);
    this.#passphrase.required = false;
    this.#form.addField('Passphrase of the file (optional)', this.#passphrase);
    this.element = this.#form.element;
  }

  refresh({ encrypted }) {
    const without = encrypted
      ? 'Without a passphrase of its own, the file has the passphrase of the memory.'
      : 'Without a passphrase, anyone who has the file can read it.';
    this.#hint.textContent = `Saves everything that Sonata has learned and logged to one file. ${without} Each adapter is a file of its own, which you can save under Models.`;
  }

  async #export() {
    const bytes = await this.#memory.exportFile(this.#passphrase.value || null);
    const name = `sonata-memory-${new Date().toISOString().slice(0, 10)}.sonata`;
    saveFile(new Blob([bytes], { type: 'application/octet-stream' }), name);
    this.#passphrase.value = '';
    const { unreadable } = await this.#memory.info();
    return `${name} (${formatBytes(bytes.byteLength)}) was downloaded.${leftOut(unreadable)}`;
  }
}

export class ImportSection {
  element;
  #memory;
  #form;
  #file = element('input');
  #mode = element('select');
  #passphrase = passphraseInput('off');
  #passphraseField;

  constructor(memory) {
    this.#memory = memory;
    this.#form = new SectionForm('Import', () => this.#import());
    Object.assign(this.#file, { type: 'file', required: true });
    this.#mode.append(
      new Option('Merge (keep the newer version)', 'merge'),
      new Option('Replace (delete everything here first)', 'replace'),
    );
    this.#form.addField('Exported file', this.#file);
    this.#form.addField('How to import', this.#mode);
    this.#passphraseField = this.#form.addField('Passphrase of the file', this.#passphrase);
    this.#askPassphrase(false);
    this.#file.addEventListener('change', () => this.#askPassphrase(false));
    this.element = this.#form.element;
  }

  refresh() {}

  async #import() {
    const [file] = this.#file.files ?? [];
    const mode = this.#mode.value;
    const sure = mode === 'merge' || (await ask({
      title: 'Replace the memory?',
      paragraphs: ['Everything here is deleted, and the file takes its place. This cannot be undone.'],
      yes: 'Replace',
    }));
    if (!sure) return '';
    const bytes = await file.arrayBuffer().catch(() => {
      throw userError('FileError', 'The browser cannot read the file. Choose it again.');
    });
    try {
      const imported = await this.#memory.importFile(new Uint8Array(bytes), mode, this.#passphrase.value || null);
      this.#file.value = '';
      this.#askPassphrase(false);
      const what = imported.written ? `Imported ${formatCount(imported.written, 'item')}.` : 'The file has nothing new.';
      return what + leftOut(imported.leftOut);
    } catch (error) {
      if (error.reason === 'locked' || error.reason === 'passphrase') this.#askPassphrase(true);
      throw error;
    }
  }

  #askPassphrase(asked) {
    this.#passphraseField.hidden = !asked;
    this.#passphrase.required = asked;
    if (asked) this.#passphrase.select();
    else this.#passphrase.value = '';
  }
}

function leftOut(count) {
  return count ? ` ${count.toLocaleString('en')} could not be read and ${count === 1 ? 'was' : 'were'} left out.` : '';
}
