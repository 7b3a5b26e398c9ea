/** Delete what was learned and logged, after saying what goes. */
import { button, element, ProblemLine } from '../page/dom.js';
import { formatCount } from '../page/format.js';
import { ask } from '../page/ask.js';

export class DeleteSection {
  element = element('div');
  #memory;
  #outcome = element('p', 'outcome');
  #problem = new ProblemLine();

  constructor(memory) {
    this.#memory = memory;
    this.#outcome.setAttribute('role', 'status');
    const lead = 'Deletes everything that Sonata has learned and logged: patterns, conversations, the log, policies and your changes to agents.';
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
      'This deletes the locked memory and its passphrase. You cannot undo this, and you cannot export the memory without its passphrase.',
      'The models stay.',
    ];
  }
  const what = [
    formatCount(counts.pattern ?? 0, 'pattern'), formatCount(counts.session ?? 0, 'conversation'),
    formatCount(counts.witness ?? 0, 'log entry', 'log entries'), formatCount(counts.policy ?? 0, 'policy', 'policies'),
  ];
  return [
    `This deletes ${what.join(', ')} and your changes to agents.`,
    'You cannot undo this. If you may need the memory again, export it first.',
    'The models stay, and so does your passphrase.',
  ];
}
