/** The whole memory to a file, and from one. */
import { element } from '../page/dom.js';
import { formatBytes, formatCount } from '../page/format.js';
import { userError } from '../common/user_error.js';
import { ask } from './ask.js';
import { passphraseInput } from './edit_form.js';
import { SectionForm } from './section_form.js';

export class ExportSection {
  element;
  #memory;
  #form;
  #passphrase = passphraseInput('new-password');
  #hint = element('p', 'memory-lead');

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
      ? 'Without a passphrase of its own the file has that of the memory.'
      : 'Without a passphrase anyone who has the file can read it.';
    this.#hint.textContent = `Everything that was learned and logged, in one file. ${without}`;
  }

  async #export() {
    const bytes = await this.#memory.exportFile(this.#passphrase.value || null);
    const name = `sonata-memory-${new Date().toISOString().slice(0, 10)}.sonata`;
    download(bytes, name);
    this.#passphrase.value = '';
    return `${name}, ${formatBytes(bytes.byteLength)}, went to your downloads.`;
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
      new Option('Merge: of both the newer one stays', 'merge'),
      new Option('Replace: what is here is deleted', 'replace'),
    );
    this.#form.addField('A file that Sonata exported', this.#file);
    this.#form.addField('What is here already', this.#mode);
    this.#passphraseField = this.#form.addField('Passphrase of the file', this.#passphrase);
    this.#askPassphrase(false);
    this.#file.addEventListener('change', () => this.#askPassphrase(false));
    this.element = this.#form.element;
  }

  refresh() {}

  async #import() {
    const [file] = this.#file.files;
    const mode = this.#mode.value;
    const sure = mode === 'merge' || (await ask({
      title: 'Replace the memory?',
      paragraphs: ['What is here now is deleted, and what is in the file takes its place. This cannot be undone.'],
      yes: 'Replace',
    }));
    if (!sure) return '';
    const bytes = await file.arrayBuffer().catch(() => {
      throw userError('FileError', 'The file cannot be read any more. Choose it again.');
    });
    try {
      const records = await this.#memory.importFile(new Uint8Array(bytes), mode, this.#passphrase.value || null);
      this.#file.value = '';
      this.#askPassphrase(false);
      return records ? `${formatCount(records, 'record')} came in.` : 'There was nothing new in it.';
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

function download(bytes, name) {
  const url = URL.createObjectURL(new Blob([bytes], { type: 'application/octet-stream' }));
  const link = Object.assign(document.createElement('a'), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser may still be asking where to put it
}
