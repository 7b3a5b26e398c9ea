/** The model files that this browser keeps. */
import { html } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { formatBytes } from '../../common/format.js';
import { removeModel, storedModels } from '../../storage/model_store.js';
import { userError } from '../../common/user_error.js';
import { RecordList } from '../record_list.js';
import { facts } from '../record_row.js';

export class ModelsSection {
  #onRemove;
  #list = new RecordList({
    texts: 'modelFiles',
    empty: t('modelFiles.empty'),
    load: async ({ offset, limit }) => {
      const models = await storedModels();
      return { total: models.length, items: models.slice(offset, offset + limit) };
    },
    key: ({ sha256, name }) => `${sha256}/${name}`,
    render: ({ name, bytes, weights, complete }, row) => html`
      <p class="record-title">${name}</p>
      ${facts(formatBytes(bytes + weights), complete ? null : t('modelFiles.incomplete'))}
      <div class="record-actions">${row.deleteAction()}</div>`,
    remove: async ([key]) => {
      if (await removeModel(key.split('/')[0])) return void (await this.#onRemove());
      throw userError('BusyError', t('modelFiles.inUse'));
    },
  });
  element = this.#list.element;

  /** @param {() => Promise<void>} onRemove */
  constructor(onRemove) {
    this.#onRemove = onRemove;
  }

  refresh() {
    return this.#list.refresh();
  }
}
