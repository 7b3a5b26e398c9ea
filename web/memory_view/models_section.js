/** The model files that this browser keeps. */
import { element } from '../page/dom.js';
import { formatBytes } from '../page/format.js';
import { removeModel, storedModels } from '../storage/model_store.js';
import { userError } from '../common/user_error.js';
import { RecordList } from './record_list.js';
import { actions, facts } from './record_row.js';

export class ModelsSection {
  #list = new RecordList({
    nouns: ['model file', 'model files'],
    empty: 'No model is kept in this browser: it is downloaded each time.',
    load: async ({ offset, limit }) => {
      const models = await storedModels();
      return { total: models.length, items: models.slice(offset, offset + limit) };
    },
    key: ({ sha256, name }) => `${sha256}/${name}`,
    render: ({ name, bytes, complete }, row) => [
      element('p', 'record-title', name),
      facts(formatBytes(bytes), complete ? null : 'not all of it is here yet'),
      actions(row.deleteAction('Delete this model? It is downloaded again when it is needed.')),
    ],
    remove: async ([key]) => {
      if (await removeModel(key.split('/')[0])) return;
      throw userError('BusyError', 'This model is being downloaded just now, maybe in another tab. Delete it when that is over.');
    },
  });
  element = this.#list.element;

  refresh() {
    return this.#list.refresh();
  }
}
