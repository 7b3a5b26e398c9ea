/**
 * Which model the page runs, and the button that opens the Models dialog, which is loaded when it is first asked for.
 * A model file can be dropped anywhere on the page.
 */
import { loadStyles } from '../page/load_file.js';
import { chooseModel } from '../storage/model_list.js';
import { chosenModel, rememberModel } from '../storage/model_choice.js';
import { splitModels } from '../files/split_models.js';
import { Adapters } from './adapters.js';
import { AddressModel } from './address_model.js';

const NOT_KEPT = 'The model that you chose is not in this browser any more, so the page runs its own.';
const LEAST_MEASURED = 16; // tokens of an answer whose speed says something

export class ModelsMenu {
  /** A model that the user brought, by its sha256, or files to be read as they are; null: the model of the site. */
  chosen = /** @type {string|File[]|null} */ (chosenModel());
  /** The model that the address of the page names. */
  address;
  /** What changes how the model answers. */
  adapters;
  #dialog;
  #notices;
  #check;
  #onChange;
  #view = /** @type {import('./models_dialog.js').ModelsDialog|null} */ (null);
  #bytes = 0; // of the model that runs, 0 if unknown
  #measured = /** @type {{tokS: number, bytes: number}|null} */ (null);

  /**
   * @param {HTMLElement} button @param {HTMLDialogElement} dialog
   * @param {import('../page/notices.js').Notices} notices
   * @param {{check: (files: File[]) => Promise<void>, onChange: () => void, attach: (files: File[]) => void}} page `check` throws where the engine could not
   *   run the model of these files; `onChange`: another model was chosen; `attach`: files that are no models were dropped
   */
  constructor(button, dialog, notices, { check, onChange, attach }) {
    this.#check = check;
    this.#dialog = dialog;
    this.#notices = notices;
    this.address = new AddressModel(notices);
    this.adapters = new Adapters(notices);
    this.#onChange = onChange;
    button.addEventListener('click', () => this.open());
    addEventListener('dragover', (event) => {
      if (event.dataTransfer?.types.includes('Files')) event.preventDefault();
    });
    addEventListener('drop', (event) => {
      const files = [...event.dataTransfer?.files ?? []];
      if (!files.length || event.defaultPrevented) return;
      event.preventDefault(); // or the browser would open it in place of the page
      const { models, others } = splitModels(files);
      if (models.length) this.#with((view) => view.openFiles(models));
      if (others.length) attach(others);
    });
  }

  /** Show the list of models. */
  open() {
    return this.#with((view) => view.open());
  }

  /** @param {string|File[]|null} chosen as `chosen` */
  use(chosen) {
    this.chosen = chosen;
    this.#measured = null;
    this.address.forget();
    rememberModel(typeof chosen === 'string' ? chosen : null);
    this.#onChange();
  }

  /** Another tab may have chosen since. */
  reread() {
    this.chosen = chosenModel();
  }

  /** The user's model, or that of the site, in place of the one that the address names. */
  leaveAddress() {
    this.address.forget();
    this.#onChange();
  }

  /** The model to load: what the address names, what was chosen, or that of the site; see model_list.js. */
  async model() {
    const model = /** @type {Awaited<ReturnType<typeof chooseModel>>} */ (await this.address.model() ?? await chooseModel(this.chosen));
    this.#bytes = model.bytes ?? 0;
    this.#notices.say('chosen', model.missing ? NOT_KEPT : null);
    return model;
  }

  /** How fast an answer was. */
  measure(tokens, tokS) {
    if (this.#bytes && tokens >= LEAST_MEASURED) this.#measured = { tokS, bytes: this.#bytes };
  }

  async #with(run) {
    try {
      const [{ ModelsDialog }] = await Promise.all([import('./models_dialog.js'), loadStyles('models_view/models.css')]);
      this.#view ??= new ModelsDialog(this.#dialog, {
        running: () => ({ chosen: this.chosen, measured: this.#measured }),
        check: this.#check,
        adapters: this.adapters,
        use: (chosen) => this.use(chosen),
      });
      this.#notices.say('models-view', null);
    } catch {
      this.#notices.say('models-view', 'The Models view could not be loaded. Check your connection, then try again.');
      return;
    }
    await run(this.#view);
  }
}
