/** The adapters in Settings, Model: which one the model answers with, and what can be done with each. */
import { nothing } from '../../vendor/lit-html/lit-html.js';
import { repeat } from '../../vendor/lit-html/directives/repeat.js';
import { formatBytes, formatShare } from '../../common/format.js';
import { t } from '../../i18n/i18n.js';
import { readAdapter } from '../../storage/adapter_store.js';
import { saveFile } from '../../common/file_download.js';
import { listRow } from './list_row.js';

export class AdaptersSection {
  #adapters;
  #draw;
  #try;
  #list = /** @type {any[]|null} */ (null); // null: not known yet

  /**
   * @param {import('./adapters.js').Adapters} adapters
   * @param {() => void} draw draws the rows
   * @param {(run: () => Promise<void>) => Promise<void>} tryTo shows errors
   */
  constructor(adapters, draw, tryTo) {
    this.#adapters = adapters;
    this.#draw = draw;
    this.#try = tryTo;
  }

  async show() {
    this.#list = await this.#adapters.list();
    this.#draw();
  }

  get rows() {
    if (!this.#list) return nothing;
    const { current } = this.#adapters;
    const none = listRow({
      title: t('models.noAdapter'), about: t('models.noAdapterAbout'), inUse: current === null, use: () => this.#use(null),
    });
    return [none, repeat(this.#list, ({ sha256 }) => sha256, (facts) => this.#row(facts, current))];
  }

  #row(facts, current) {
    const isForThis = this.#adapters.isForThis(facts);
    const about = [
      formatBytes(facts.bytes), isForThis ? null : t('models.forModel', { title: facts.base.title || t('models.another') }),
      facts.lost ? t('models.smaller', { share: formatShare(facts.lost) }) : null,
    ];
    return listRow({
      title: facts.name, about: about.filter(Boolean).join(' · '), inUse: facts.sha256 === current?.sha256,
      use: isForThis ? () => this.#use(facts) : null,
      save: () => this.#try(async () => saveFile(await readAdapter(facts), `${facts.name}.safetensors`)),
      remove: () => this.#try(async () => {
        await this.#adapters.remove(facts);
        await this.show();
      }),
    });
  }

  #use(facts) {
    this.#try(async () => {
      await this.#adapters.use(facts);
      await this.show();
    });
  }
}
