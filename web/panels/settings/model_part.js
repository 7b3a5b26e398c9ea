/** Settings, Model: works in every state of the memory, and even if no model could be loaded. */
import { html, render } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { ModelsView } from '../models/models_view.js';
import { element } from '../../common/dom.js';
import { loadStyles } from '../../common/page_files.js';
import { GpuSpeed } from './gpu_speed.js';
import { RunSection } from './run_section.js';

export class ModelPart {
  #run;
  #gpu;
  #models;

  /**
   * @param {HTMLElement} root @param {any} _memory
   * @param {{page: {run: import('./run_settings.js').RunSettings, models: import('../models/models.js').Models, engine: () =>
   *   import('../../engine/engine.js').Engine}}} parts the parts that stay while models come and go
   */
  constructor(root, _memory, { page: { run, models, engine } }) {
    const form = element('div');
    this.#run = new RunSection(form, run);
    this.#gpu = new GpuSpeed(run, engine);
    this.#models = models.view = new ModelsView(models);
    render(html`${this.#models.element}<section class="model-run"><h3>${t('run.title')}</h3>${form}${this.#gpu.element}</section>`, root);
    run.onTell(() => run.runs && this.#models.refresh());
  }

  async show() {
    await loadStyles('panels/settings/model.css');
    this.#run.show();
    await this.#models.show();
  }

  hide() {
    this.#gpu.close();
  }
}
