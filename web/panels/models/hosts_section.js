/** The hosts that models may come from: those of the site's list, and those that the user allows. */
import { addedHosts, addHost, removeHost } from '../../downloads/added_hosts.js';
import { readCatalog } from '../../downloads/hub.js';
import { t } from '../../i18n/i18n.js';
import { button, element, part } from '../../common/dom.js';

export class HostsSection {
  #list;
  #root;
  #try;
  #listed = /** @type {string[]} */ ([]);

  /** @param {HTMLDetailsElement} root @param {(run: () => Promise<void>) => Promise<void>} tryTo shows errors */
  constructor(root, tryTo) {
    this.#root = root;
    this.#try = tryTo;
    this.#list = part(root, 'ul', HTMLElement);
    const form = part(root, 'form', HTMLFormElement), host = part(root, 'input', HTMLInputElement);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      tryTo(async () => {
        addHost(host.value);
        host.value = '';
        this.show();
      });
    });
    root.addEventListener('toggle', () => root.open && tryTo(async () => {
      ({ hosts: this.#listed } = await readCatalog());
      this.show();
    }));
  }

  show() {
    if (!this.#root.open) return;
    const added = addedHosts();
    const rows = [...this.#listed.filter((entry) => !added.includes(entry)).map((entry) => row(entry)), ...added.map((entry) => {
      const remove = button(t('models.remove'), 'quiet', () => this.#try(async () => {
        removeHost(entry);
        this.show();
      }));
      remove.setAttribute('aria-label', `${t('models.remove')} ${entry}`);
      return row(entry, remove);
    })];
    this.#list.replaceChildren(...rows);
  }
}

/** @param {string} entry @param {HTMLElement} [action] */
function row(entry, action) {
  const made = element('li');
  const words = element('div', 'models-words');
  words.append(entry.startsWith('*.') ? t('models.everyHost', { host: entry.slice(2) }) : entry);
  made.append(words, ...action ? [action] : []);
  return made;
}
