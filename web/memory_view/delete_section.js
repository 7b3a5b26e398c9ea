/** Delete what was learned and logged, after saying what goes. */
import { button, element, ProblemLine } from '../page/dom.js';
import { formatCount } from '../page/format.js';
import { ask } from './ask.js';

export class DeleteSection {
  element = element('div');
  #memory;
  #outcome = element('p', 'outcome');
  #problem = new ProblemLine();

  constructor(memory) {
    this.#memory = memory;
    this.#outcome.setAttribute('role', 'status');
    const lead = 'All that was learned and logged: patterns, conversations, the log, policies and your changes to agents, in this browser.';
    this.element.append(
      element('p', 'memory-lead', lead),
      button('Delete everything…', 'danger', () => this.#delete()),
      this.#outcome,
      this.#problem.element,
    );
  }

  refresh() {}

  async #delete() {
    this.#problem.say(null);
    this.#outcome.textContent = '';
    try {
      const sure = await ask({ title: 'Delete everything?', paragraphs: whatGoes(await this.#memory.info()), yes: 'Delete everything' });
      if (!sure) return;
      await this.#memory.deleteAll();
      this.#outcome.textContent = 'Everything was deleted.';
    } catch (error) {
      this.#problem.say(error);
    }
  }
}

function whatGoes({ state, counts }) {
  if (state === 'locked') {
    return [
      'All that is locked will be deleted, with its passphrase. This cannot be undone: without the passphrase it cannot be exported.',
      'The models stay.',
    ];
  }
  const what = [
    formatCount(counts.pattern ?? 0, 'pattern'), formatCount(counts.session ?? 0, 'conversation'),
    formatCount(counts.witness ?? 0, 'log entry', 'log entries'), formatCount(counts.policy ?? 0, 'policy', 'policies'),
  ];
  return [
    `${what.join(', ')}, and your changes to agents, will be deleted.`,
    'This cannot be undone: export the memory first if you may want it again.',
    'The models, and a passphrase if you have set one, stay.',
  ];
}
