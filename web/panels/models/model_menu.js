/** The models that this browser has, in the menu behind the chip: one click runs another one. The whole list is in Settings. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { iconAddress } from '../../common/icon.js';
import { formatBytes } from '../../common/format.js';
import { readCatalog } from '../../downloads/hub.js';
import { siteModel } from '../../storage/model_list.js';
import { broughtModels } from '../../storage/model_store.js';

/** @typedef {{title: string, bytes: number, sha256: string|null}} Choice sha256: null of the site's model */

export class ModelMenu {
  #menu;
  #root;
  #models;
  #good = /** @type {import('../../downloads/hub.js').Entry[]} */ ([]);

  /** @param {HTMLElement} menu a popover @param {HTMLElement} root in it @param {import('./models.js').Models} models */
  constructor(menu, root, models) {
    this.#menu = menu;
    this.#root = root;
    this.#models = models;
    menu.addEventListener('toggle', (event) => /** @type {ToggleEvent} */ (event).newState === 'open' && this.#show());
  }

  async #show() {
    const [site, brought, catalog] = await Promise.all([
      siteModel().catch(() => null), broughtModels().catch(() => []), readCatalog().catch(() => null),
    ]);
    this.#good = catalog?.models ?? this.#good;
    const own = brought.filter(({ complete }) => complete);
    this.#draw([...(site ? [{ ...site, sha256: null }] : []), ...own]);
  }

  /** @param {Choice[]} choices */
  #draw(choices) {
    render(html`
      <ul aria-label=${t('models.kept')}>${choices.map((choice) => this.#row(choice))}</ul>
      <label class="model-file"><input type="file" multiple class="visually-hidden" @change=${(event) => this.#add(event.target)}>
        <svg class="icon" aria-hidden="true"><use href=${iconAddress('plus')}></use></svg>${t('models.addFile')}</label>`, this.#root);
  }

  /** @param {Choice} choice */
  #row({ title, bytes, sha256 }) {
    const runs = !this.#models.address.isNamed && sha256 === this.#models.chosen;
    const good = this.#good.find((entry) => title.startsWith(entry.title))?.good_at;
    return html`
      <li><button type="button" aria-current=${runs ? 'true' : nothing} @click=${() => this.#choose(sha256, runs)}>
        <span><strong>${title}</strong><small>${[formatBytes(bytes), good].filter(Boolean).join(' · ')}</small></span>
        ${runs ? html`<svg class="icon" role="img" aria-label=${t('models.inUse')}><use href=${iconAddress('check')}></use></svg>` : nothing}
      </button></li>`;
  }

  #choose(sha256, runs) {
    this.#menu.hidePopover();
    if (!runs) this.#models.use(sha256);
  }

  /** @param {HTMLInputElement} field */
  async #add(field) {
    const files = [...field.files ?? []];
    field.value = '';
    if (!files.length) return;
    this.#menu.hidePopover();
    await this.#models.open();
    this.#models.view?.openFiles(files);
  }
}
