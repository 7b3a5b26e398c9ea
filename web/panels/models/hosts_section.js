/** The hosts that models may come from: those of the site's list, and those that the user allows. */
import { html, nothing } from '../../vendor/lit-html/lit-html.js';
import { addedHosts, addHost, removeHost } from '../../downloads/added_hosts.js';
import { readCatalog } from '../../downloads/hub.js';
import { t } from '../../i18n/i18n.js';
import { named } from './list_row.js';

export class HostsSection {
  #draw;
  #try;
  #listed = /** @type {string[]} */ ([]);

  /** @param {() => void} draw draws the template @param {(run: () => Promise<void>) => Promise<void>} tryTo shows errors */
  constructor(draw, tryTo) {
    this.#draw = draw;
    this.#try = tryTo;
  }

  get template() {
    const added = addedHosts();
    const remove = (entry) => this.#try(async () => {
      removeHost(entry);
      this.#draw();
    });
    const allow = (event) => {
      event.preventDefault();
      const host = event.target.querySelector('input');
      this.#try(async () => {
        addHost(host.value);
        host.value = '';
        this.#draw();
      });
    };
    const look = ({ target }) => target.open && this.#try(async () => {
      ({ hosts: this.#listed } = await readCatalog());
      this.#draw();
    });
    return html`
      <details class="models-hosts" @toggle=${look}>
        <summary>${t('models.hosts')}</summary>
        <ul aria-label=${t('models.hostList')}>
          ${this.#listed.filter((entry) => !added.includes(entry)).map((entry) => row(entry))}
          ${added.map((entry) => row(entry, named(t('models.remove'), entry, () => remove(entry))))}
        </ul>
        ${addressForm('models-host', t('models.host'), t('models.hostExample'), t('models.allow'), allow)}
      </details>`;
  }
}

/** A form of one line. @param {(event: any) => void} submit */
export function addressForm(id, label, example, action, submit) {
  return html`
    <form @submit=${submit}>
      <label for=${id}>${label}</label>
      <input id=${id} type="text" placeholder=${example} autocomplete="off" autocapitalize="off" spellcheck="false" required>
      <button class="quiet" type="submit">${action}</button>
    </form>`;
}

/** @param {string} entry @param {unknown} [action] a template */
function row(entry, action = nothing) {
  const words = entry.startsWith('*.') ? t('models.everyHost', { host: entry.slice(2) }) : entry;
  return html`<li><div class="models-words">${words}</div>${action}</li>`;
}
