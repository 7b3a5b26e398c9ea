/** What was learned of requests: corrections and examples, each with the agent that such requests are for. */
import { element } from '../page/dom.js';
import { formatCount, formatDate, formatShare } from '../page/format.js';
import { agentSelect, labelled } from '../page/edit_form.js';
import { RecordList } from './record_list.js';
import { actions, facts } from './record_row.js';

const SHIPPED = 'example';
const SOURCES = { user: 'Your correction', agent: 'Example you gave', [SHIPPED]: 'Comes with Sonata' };

export class RoutingPanel {
  #memory;
  #list;
  #agents = [];

  constructor(root, memory) {
    this.#memory = memory;
    const lead = 'Sonata sends a message that is similar to one of these to its agent. To add one, correct the agent of an answer in the chat.';
    this.#list = new RecordList({
      nouns: ['pattern', 'patterns'],
      searchLabel: 'Search patterns',
      empty: 'There are no patterns yet. When the wrong agent answers, click its name above the answer and choose another.',
      selectable: true,
      load: ({ search, offset, limit }) => this.#load({ search, offset, limit }),
      key: ({ id }) => id,
      render: (pattern, row) => this.#render(pattern, row),
      remove: (ids) => memory.removePatterns(ids),
    });
    root.append(element('p', 'panel-lead', lead), this.#list.element);
  }

  show() {
    return this.refresh();
  }

  refresh() {
    return this.#list.refresh();
  }

  hide() {}

  async #load(asked) {
    ({ agents: this.#agents } = await this.#memory.info());
    return this.#memory.patterns({ agent: null, ...asked });
  }

  #render(pattern, row) {
    const { text, agent, source, weight, uses, created, lastUsed, similarity } = pattern;
    const to = element('b', 'record-agent', this.#title(agent));
    const used = uses ? `used ${formatCount(uses, 'time')}${lastUsed ? `, last ${formatDate(lastUsed)}` : ''}` : 'not used yet';
    return [
      element('p', 'record-text', text),
      facts(
        to,
        similarity === null ? null : `${formatShare(similarity)} similar`,
        SOURCES[source] ?? source,
        weightOf(weight),
        source === SHIPPED ? null : used,
        `${source === SHIPPED ? 'since' : 'learned'} ${formatDate(created)}`,
      ),
      source === SHIPPED
        ? actions(row.deleteAction('Reset its weight?', 'Reset'))
        : actions(row.action('Edit', () => this.#edit(pattern, row)), row.deleteAction()),
    ];
  }

  #edit({ id, text, agent }, row) {
    const words = element('textarea');
    words.value = text;
    words.required = true;
    const select = agentSelect(this.#agents, agent);
    row.edit(
      [labelled('Request', words), labelled('Agent', select)],
      () => this.#memory.editPattern(id, { text: words.value.trim(), agent: select.value }),
    );
  }

  #title(agent) {
    return this.#agents.find(({ id }) => id === agent)?.title ?? agent;
  }
}

/** How much a pattern's vote counts: a weight of 1 is the usual (py_core/memory/patterns.py). */
function weightOf(weight) {
  const change = weight - 1;
  if (Math.abs(change) < 0.005) return 'counts as usual';
  return `counts ${formatShare(Math.abs(change))} ${change > 0 ? 'more' : 'less'} than usual`;
}
