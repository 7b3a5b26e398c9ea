/** The learned patterns of requests: corrections and examples, each with the agent that such requests are for. */
import { t } from '../../i18n/i18n.js';
import { element } from '../../common/dom.js';
import { formatDate, formatShare } from '../../common/format.js';
import { agentSelect, labelled } from '../../common/edit_form.js';
import { RecordList } from '../record_list.js';
import { actions, facts } from '../record_row.js';

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
    root.append(element('p', 'panel-lead', t('patterns.lead')), this.#list.element);
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
    const to = element('b', 'record-agent', this.#title(agent));
    const used = usedOf(uses, lastUsed);
    return [
      element('p', 'record-text', text),
      facts(
        to,
        similarity === null ? null : t('records.similar', { share: formatShare(similarity) }),
        t(`patterns.source_${source}`),
        weightOf(weight),
        source === SHIPPED ? null : used,
        t(source === SHIPPED ? 'patterns.since' : 'patterns.learned', { date: formatDate(created) }),
      ),
      source === SHIPPED
        ? actions(row.deleteAction(t('patterns.resetAsk'), t('patterns.reset')))
        : actions(row.action(t('records.edit'), () => this.#edit(pattern, row)), row.deleteAction()),
    ];
  }

  #edit({ id, text, agent }, row) {
    const words = element('textarea');
    words.value = text;
    words.required = true;
    const select = agentSelect(this.#agents, agent);
    row.edit(
      [labelled(t('patterns.request'), words), labelled(t('patterns.agent'), select)],
      () => this.#memory.editPattern({ id, text: words.value.trim(), agent: select.value }),
    );
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
