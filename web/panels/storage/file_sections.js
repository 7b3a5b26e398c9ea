/** Export the whole memory to a file, and import it. */
import { t } from '../../i18n/i18n.js';
import { element } from '../../common/dom.js';
import { formatBytes, formatNumber } from '../../common/format.js';
import { userError } from '../../common/user_error.js';
import { ask } from '../../common/confirmation.js';
import { saveFile } from '../../common/file_download.js';
import { passphraseInput } from '../../common/edit_form.js';
import { SectionForm } from '../../common/section_form.js';

export class ExportSection {
  element;
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #form;
  #passphrase = passphraseInput('new-password');
  #hint = element('p', 'panel-lead');

  /** @param {import('../../memory/client.js').Memory} memory */
  constructor(memory) {
    this.#memory = memory;
    this.#form = new SectionForm(t('stored.exportTo'), () => this.#export());
    this.#form.add(this.#hint);
    this.#passphrase.required = false;
    this.#form.addField(t('stored.exportPassphrase'), this.#passphrase);
    this.element = this.#form.element;
  }

  refresh({ encrypted }) {
    this.#hint.textContent = t('stored.exportAbout', { without: t(encrypted ? 'stored.exportSame' : 'stored.exportPlain') });
  }

  async #export() {
    const bytes = await this.#memory.exportFile({ passphrase: this.#passphrase.value || null });
    const name = `sonata-memory-${new Date().toISOString().slice(0, 10)}.sonata`;
    saveFile(new Blob([bytes], { type: 'application/octet-stream' }), name);
    this.#passphrase.value = '';
    const { unreadable } = await this.#memory.info();
    return t('stored.exported', { name, size: formatBytes(bytes.byteLength) }) + leftOut(unreadable);
  }
}

export class ImportSection {
  element;
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #form;
  #file = element('input');
  #mode = element('select');
  #passphrase = passphraseInput('off');
  #passphraseField;

  /** @param {import('../../memory/client.js').Memory} memory */
  constructor(memory) {
    this.#memory = memory;
    this.#form = new SectionForm(t('stored.import'), () => this.#import());
    Object.assign(this.#file, { type: 'file', required: true });
    this.#form.add(element('p', 'panel-lead', t('stored.importAbout')));
    this.#mode.append(
      new Option(t('stored.importMerge'), 'merge'),
      new Option(t('stored.importReplace'), 'replace'),
    );
    this.#form.addField(t('stored.importFile'), this.#file);
    this.#form.addField(t('stored.importHow'), this.#mode);
    this.#passphraseField = this.#form.addField(t('stored.importPassphrase'), this.#passphrase);
    this.#askPassphrase(false);
    this.#file.addEventListener('change', () => this.#askPassphrase(false));
    this.element = this.#form.element;
  }

  refresh() {}

  async #import() {
    const [file] = this.#file.files ?? [];
    const mode = /** @type {'merge'|'replace'} */ (this.#mode.value);
    const sure = mode === 'merge' || (await ask({
      title: t('stored.replaceTitle'),
      paragraphs: [t('stored.replaceAbout')],
      yes: t('stored.replace'),
    }));
    if (!sure) return '';
    const bytes = await file.arrayBuffer().catch(() => {
      throw userError('FileError', t('stored.fileUnreadable'));
    });
    try {
      const imported = await this.#memory.importFile({ data: new Uint8Array(bytes), mode, passphrase: this.#passphrase.value || null });
      this.#file.value = '';
      this.#askPassphrase(false);
      if ('chats' in imported) return toldChats(imported);
      const what = imported.written ? t('stored.imported', { count: imported.written }) : t('stored.nothingNew');
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

function toldChats({ chats, messages, leftOut: parts, unread }) {
  const told = [t('stored.nothingNew')];
  if (chats) told[0] = t('stored.importedChats', { chats: counted('session', chats), messages: counted('turn', messages) });
  if (parts) told.push(t('stored.partsLeftOut', { count: parts }));
  if (unread) told.push(t('stored.unreadChats', { count: unread }));
  return told.join(' ');
}

function counted(kind, count) {
  return `${formatNumber(count)} ${t(`kinds.${kind}`, { count })}`;
}

function leftOut(count) {
  return count ? ` ${t('stored.leftOut', { count })}` : '';
}
