/** Delete what was learned and logged, after saying what will be deleted. */
import { html, render } from '../../vendor/lit-html/lit-html.js';
import { currentLanguage, t } from '../../i18n/i18n.js';
import { formatNumber } from '../../common/format.js';
import { button, element, ProblemLine } from '../../common/dom.js';
import { session } from '../../common/web_storage.js';
import { ask } from '../../common/confirmation.js';
import { removeAdapters, storedAdapters } from '../../storage/adapter_store.js';

export class DeleteSection {
  element = element('div');
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #problem = new ProblemLine();

  /** @param {import('../../memory/client.js').Memory} memory */
  constructor(memory) {
    this.#memory = memory;
    this.#say('');
  }

  refresh() {}

  #say(outcome) {
    render(html`
      <p class="panel-lead">${t('deletion.about')}</p>
      ${button(t('deletion.deleteAsk'), 'danger', () => this.#delete())}
      <p class="outcome" role="status">${outcome}</p>
      ${this.#problem.element}`, this.element);
  }

  async #delete() {
    this.#problem.say(null);
    this.#say('');
    try {
      const sure = await ask({ title: t('deletion.title'), paragraphs: await this.#whatGoes(), yes: t('deletion.delete') });
      if (!sure) return;
      await this.#memory.deleteAll();
      await removeAdapters();
      session.clear();
      this.#say(t('deletion.done'));
    } catch (error) {
      this.#problem.say(error);
    }
  }

  async #whatGoes() {
    return whatGoes(...await Promise.all([this.#memory.info(), this.#memory.counts(), storedAdapters()]));
  }
}

/** @param {any} info of the memory @param {Record<string, number>} counts @param {object[]} adapters */
function whatGoes({ state }, counts, adapters) {
  const ofAdapters = adapters.length ? [counted(adapters.length, 'adapter')] : [];
  if (state === 'locked') {
    return [
      t('deletion.locked'), ofAdapters.length ? t('deletion.lockedAdapters', { adapters: ofAdapters[0] }) : t('deletion.modelsStay'),
    ];
  }
  const stored = Object.entries(counts).flatMap(([kind, count]) => count ? [counted(count, kind)] : []);
  const what = [...stored, ...ofAdapters, t('deletion.agents')];
  return [
    t('deletion.what', { what: new Intl.ListFormat(currentLanguage()).format(what) }),
    t(ofAdapters.length ? 'deletion.finalAdapters' : 'deletion.final'),
    t('deletion.stays'),
  ];
}

function counted(count, kind) {
  return `${formatNumber(count)} ${t(`kinds.${kind}`, { count })}`;
}
