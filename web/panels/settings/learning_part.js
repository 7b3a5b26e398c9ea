/** Settings, Learning: a switch for each way of learning. Their results are shown under Learned. */
import { html, render } from '../../vendor/lit-html/lit-html.js';
import { live } from '../../vendor/lit-html/directives/live.js';
import { t } from '../../i18n/i18n.js';
import { ProblemLine } from '../../common/dom.js';

export class LearningPart {
  #root;
  /** @type {import('../../learning/client.js').Learning} */ #learning;
  #problem = new ProblemLine();
  #loops = /** @type {{name: string, on: boolean}[]} */ ([]);
  #words = ''; // why nothing can be learned now

  /**
   * @param {HTMLElement} root @param {any} _memory
   * @param {{learning: import('../../learning/client.js').Learning}} parts of the panel
   */
  constructor(root, _memory, { learning }) {
    this.#root = root;
    this.#learning = learning;
  }

  show() {
    return this.refresh();
  }

  hide() {}

  async refresh() {
    const { problem, loops } = await this.#learning.overview();
    this.#loops = loops;
    this.#words = problem ?? '';
    this.#draw();
  }

  #draw() {
    render(html`
      <p class="panel-lead">${t('loops.lead')} <a href="#panel=learned/learning" data-panel="learned/learning">${t('loops.seeLearned')}</a></p>
      <p class="panel-lead" role="status" ?hidden=${!this.#words}>${this.#words}</p>
      ${this.#problem.element}
      <form class="settings-form" @submit=${(event) => event.preventDefault()}>
        ${this.#loops.map(({ name, on }) => html`
          <label class="choice">
            <input type="checkbox" role="switch" name=${name} .checked=${live(on)} aria-labelledby=${`loop-${name}-title`}
              aria-describedby=${`loop-${name}-about`} @change=${(event) => this.#switch(name, event.target.checked)}>
            <span><b id=${`loop-${name}-title`}>${t(`loops.${name}`)}</b><small id=${`loop-${name}-about`}>${t(`loops.${name}About`)}</small></span>
          </label>`)}
        <p class="panel-lead">${t('loops.when')}</p>
      </form>`, this.#root);
  }

  async #switch(name, on) {
    this.#problem.say(null);
    try {
      await this.#learning.setLoop({ name, on });
      await this.refresh();
    } catch (error) {
      this.#problem.say(error);
      this.#draw();
    }
  }
}
