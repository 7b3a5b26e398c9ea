/**
 * The model that the page runs, and the ways to the list of models in Settings (models_view.js). A model file can be dropped
 * anywhere on the page.
 */
import { t } from '../../i18n/i18n.js';
import { chooseModel } from '../../storage/model_list.js';
import { chosenModel, rememberModel } from '../../storage/model_choice.js';
import { splitModels } from '../../files/split_models.js';
import { Adapters } from './adapters.js';
import { AddressModel } from './address_model.js';

const LEAST_MEASURED = 16; // tokens of an answer that is long enough to measure the speed

export class Models {
  /** A model that the user brought, by its sha256, or files to read directly; null: the model of the site. */
  chosen = /** @type {string|File[]|null} */ (chosenModel());
  /** The measured speed of a model of this size; null: not known yet. */
  measured = /** @type {{tokS: number, bytes: number}|null} */ (null);
  /** The list of models, once it was opened. */
  view = /** @type {import('./models_view.js').ModelsView|null} */ (null);
  /** The model that the address of the page names. */
  address;
  /** The adapters, which change how the model answers. */
  adapters;
  /**
   * Returns the title of the model in these files, `stem` being that of their name; throws if the engine could not run it.
   * @type {(files: File[], stem: string) => Promise<{title: string, licence: string}>}
   */
  check;
  #notices;
  #onChange;
  #panel;
  #bytes = 0; // of the running model, 0 if unknown

  /**
   * @param {import('../../shell/notices.js').Notices} notices
   * @param {{check: Models['check'], onChange: () => void, attach: (files: File[]) => void, panel: {open: () => Promise<void>,
   *   leave: () => void}}} page `check` as above; `onChange`: another model was chosen; `attach`: files that are not models
   *   were dropped; `panel`: shows Settings, Model, and leaves it if it covers the chat
   */
  constructor(notices, { check, onChange, attach, panel }) {
    this.check = check;
    this.#notices = notices;
    this.#panel = panel;
    this.address = new AddressModel(notices);
    this.adapters = new Adapters(notices);
    this.#onChange = onChange;
    addEventListener('dragover', (event) => {
      if (event.dataTransfer?.types.includes('Files')) event.preventDefault();
    });
    addEventListener('drop', (event) => {
      const files = [...event.dataTransfer?.files ?? []];
      if (!files.length || event.defaultPrevented) return;
      event.preventDefault(); // or the browser would open it instead of the page
      splitModels(files).then(({ models, others }) => {
        if (models.length) this.open().then(() => this.view?.openFiles(models));
        if (others.length) attach(others);
      });
    });
  }

  /** Show the list of models. */
  open() {
    return this.#panel.open();
  }

  /** @param {string|File[]|null} chosen as `chosen` */
  use(chosen) {
    this.chosen = chosen;
    this.measured = null;
    this.#panel.leave();
    this.address.forget();
    rememberModel(typeof chosen === 'string' ? chosen : null);
    this.#onChange();
  }

  /** Another tab may have changed the choice since. */
  reread() {
    this.chosen = chosenModel();
  }

  /** Use the user's model, or that of the site, instead of the one that the address names. */
  leaveAddress() {
    this.address.forget();
    this.#onChange();
  }

  /** The model to load: the one that the address names, the chosen one, or that of the site; see model_list.js. */
  async model() {
    const model = /** @type {Awaited<ReturnType<typeof chooseModel>>} */ (await this.address.model() ?? await chooseModel(this.chosen));
    this.#bytes = model.bytes ?? 0;
    this.#notices.say('chosen', model.missing ? t('models.notKept') : null);
    return model;
  }

  /** Records the speed of an answer. */
  measure(tokens, tokS) {
    if (this.#bytes && tokens >= LEAST_MEASURED) this.measured = { tokS, bytes: this.#bytes };
  }
}
