/** Settings, Model: works whatever the memory's state is, and also where no model could be loaded. */
import { element } from '../page/dom.js';
import { RunSection } from './run_section.js';

export class ModelPart {
  #run;

  /**
   * @param {HTMLElement} root @param {any} _memory
   * @param {{page: {run: import('./run_settings.js').RunSettings}}} parts what stays while models come and go
   */
  constructor(root, _memory, { page: { run } }) {
    const place = element('div');
    root.append(place);
    this.#run = new RunSection(place, run);
  }

  show() {
    this.#run.show();
  }

  hide() {}
}
