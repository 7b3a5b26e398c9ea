/** The model files that this browser keeps. */
import { element } from '../page/dom.js';
import { formatBytes } from '../page/format.js';
import { removeModel, storedModels } from '../storage/model_store.js';
import { userError } from '../common/user_error.js';
import { RecordList } from './record_list.js';
import { actions, facts } from './record_row.js';

export class ModelsSection {
  #onRemove;
  #list = new RecordList({
    nouns: ['model file', 'model files'],
    empty: 'This browser stores no model. Sonata downloads it each time.',
    load: async ({ offset, limit }) => {
      const models = await storedModels();
      return { total: models.length, items: models.slice(offset, offset + limit) };
    },
    key: ({ sha256, name }) => `${sha256}/${name}`,
    render: ({ name, bytes, complete }, row) => [
      element('p', 'record-title', name),
      facts(formatBytes(bytes), complete ? null : 'download is incomplete'),
      actions(row.deleteAction('Delete this model? Sonata downloads it again when you need it.')),
    ],
    remove: async ([key]) => {
      if (await removeModel(key.split('/')[0])) return void (await this.#onRemove());
      throw userError('BusyError', 'A tab is downloading or loading this model. Wait until it has finished, then delete it.');
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
