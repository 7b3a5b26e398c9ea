/** Export the whole memory to a file, and import it. */
import { html } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { formatBytes, formatNumber } from '../../common/format.js';
import { userError } from '../../common/user_error.js';
import { ask } from '../../common/confirmation.js';
import { saveFile } from '../../common/file_download.js';
import { labelled } from '../../common/edit_form.js';
import { SectionForm } from '../../common/section_form.js';

export class ExportSection {
  element;
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #form;

  /** @param {import('../../memory/client.js').Memory} memory */
  constructor(memory) {
    this.#memory = memory;
    this.#form = new SectionForm(t('stored.exportTo'), ({ passphrase }) => this.#export(passphrase));
    this.element = this.#form.element;
  }

  refresh({ encrypted }) {
    this.#form.show(html`
      <p class="panel-lead">${t('stored.exportAbout', { without: t(encrypted ? 'stored.exportSame' : 'stored.exportPlain') })}</p>
      ${labelled(t('stored.exportPassphrase'), html`<input type="password" name="passphrase" autocomplete="new-password">`)}`);
  }

  async #export(passphrase) {
    const bytes = await this.#memory.exportFile({ passphrase: passphrase || null });
    const name = `sonata-memory-${new Date().toISOString().slice(0, 10)}.sonata`;
    saveFile(new Blob([bytes], { type: 'application/octet-stream' }), name);
    this.#form.input('passphrase').value = '';
    const { unreadable } = await this.#memory.info();
    return t('stored.exported', { name, size: formatBytes(bytes.byteLength) }) + leftOut(unreadable);
  }
}

export class ImportSection {
  element;
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #form;

  /** @param {import('../../memory/client.js').Memory} memory */
  constructor(memory) {
    this.#memory = memory;
    this.#form = new SectionForm(t('stored.import'), ({ mode, passphrase }) => this.#import(/** @type {'merge'|'replace'} */ (mode), passphrase));
    this.element = this.#form.element;
    this.#show(false);
  }

  refresh() {}

  /** @param {boolean} asksPassphrase */
  #show(asksPassphrase) {
    this.#form.show(html`
      <p class="panel-lead">${t('stored.importAbout')}</p>
      ${labelled(t('stored.importFile'), html`<input type="file" name="file" required @change=${() => this.#askPassphrase(false)}>`)}
      ${labelled(t('stored.importHow'), html`<select name="mode">
        <option value="merge">${t('stored.importMerge')}</option><option value="replace">${t('stored.importReplace')}</option></select>`)}
      <label class="field" ?hidden=${!asksPassphrase}><span>${t('stored.importPassphrase')}</span>
        <input type="password" name="passphrase" autocomplete="off" ?required=${asksPassphrase}></label>`);
  }

  /** @param {'merge'|'replace'} mode @param {string} passphrase */
  async #import(mode, passphrase) {
    const { files } = this.#form.input('file');
    const [file] = files ?? [];
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
      const imported = await this.#memory.importFile({ data: new Uint8Array(bytes), mode, passphrase: passphrase || null });
      this.#form.input('file').value = '';
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
    this.#show(asked);
    const passphrase = this.#form.input('passphrase');
    if (asked) passphrase.select();
    else passphrase.value = '';
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
