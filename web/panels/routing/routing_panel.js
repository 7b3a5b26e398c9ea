/** The learned patterns of requests: corrections and examples, each with the agent that such requests are for. */
import { html, render } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { button } from '../../common/dom.js';
import { formatDate, formatShare } from '../../common/format.js';
import { labelled } from '../../common/edit_form.js';
import { RecordList } from '../record_list.js';
import { facts } from '../record_row.js';

const SHIPPED = 'example';

export class RoutingPanel {
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #list;
  #agents = [];

  /** @param {HTMLElement} root @param {import('../../memory/client.js').Memory} memory */
  constructor(root, memory) {
    this.#memory = memory;
    this.#list = new RecordList({
      texts: 'patterns',
      searchLabel: t('patterns.search'),
      empty: t('patterns.empty'),
      selectable: true,
      load: ({ search, offset, limit }) => this.#load({ search, offset, limit }),
      key: ({ id }) => id,
      render: (pattern, row) => this.#render(pattern, row),
      remove: (ids) => memory.removePatterns({ ids }),
    });
    render(html`<p class="panel-lead">${t('patterns.lead')}</p>${this.#list.element}`, root);
  }

  show() {
    return this.refresh();
  }

  refresh() {
    return this.#list.refresh();
  }

  hide() {}

  async #load({ search, offset, limit }) {
    ({ agents: this.#agents } = await this.#memory.info());
    return this.#memory.patterns({ search, offset, limit });
  }

  #render(pattern, row) {
    const { text, agent, source, weight, uses, created, lastUsed, similarity } = pattern;
    const isShipped = source === SHIPPED;
    return html`
      <p class="record-text">${text}</p>
      ${facts(
        html`<b class="record-agent">${this.#title(agent)}</b>`,
        similarity === null ? null : t('records.similar', { share: formatShare(similarity) }),
        t(`patterns.source_${source}`),
        weightOf(weight),
        isShipped ? null : usedOf(uses, lastUsed),
        t(isShipped ? 'patterns.since' : 'patterns.learned', { date: formatDate(created) }),
      )}
      <div class="record-actions">
        ${isShipped ? row.deleteAction(t('patterns.resetAsk'), t('patterns.reset'))
          : [button(t('records.edit'), 'quiet', () => this.#edit(pattern, row)), row.deleteAction()]}
      </div>`;
  }

  #edit({ id, text, agent }, row) {
    const fields = [
      labelled(t('patterns.request'), html`<textarea name="text" required .value=${text}></textarea>`),
      labelled(t('patterns.agent'), agentMenu(this.#agents, agent)),
    ];
    row.edit(fields, (typed) => this.#memory.editPattern({ id, text: typed.text.trim(), agent: typed.agent }));
  }

  #title(agent) {
    return this.#agents.find(({ id }) => id === agent)?.title ?? agent;
  }
}

/** How much a pattern's vote counts: a weight of 1 is usual (py_core/routing/patterns.py). */
function weightOf(weight) {
  const change = weight - 1;
  if (Math.abs(change) < 0.005) return t('patterns.usual');
  return t(change > 0 ? 'patterns.more' : 'patterns.less', { share: formatShare(Math.abs(change)) });
}

function usedOf(count, lastUsed) {
  if (!count) return t('records.unused');
  return lastUsed ? t('records.usedLast', { count, date: formatDate(lastUsed) }) : t('records.used', { count });
}

/** @param {{id: string, title: string}[]} agents @param {string} chosen may be an agent that no longer exists */
function agentMenu(agents, chosen) {
  const known = agents.some(({ id }) => id === chosen) ? agents : [{ id: chosen, title: chosen }, ...agents];
  return html`<select name="agent">${known.map(({ id, title }) => html`<option value=${id} ?selected=${id === chosen}>${title}</option>`)}</select>`;
}
