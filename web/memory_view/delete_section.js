/** Delete what was learned and logged, after saying what goes. */
import { button, element, ProblemLine } from '../page/dom.js';
import { formatCount } from '../page/format.js';
import { ask } from '../page/ask.js';
import { removeAdapters, storedAdapters } from '../storage/adapter_store.js';

export class DeleteSection {
  element = element('div');
  #memory;
  #outcome = element('p', 'outcome');
  #problem = new ProblemLine();

  constructor(memory) {
    this.#memory = memory;
    this.#outcome.setAttribute('role', 'status');
    const lead = 'Deletes everything that Sonata has learned and logged: what you taught and what was trained on it, conversations, '
      + 'recorded answers, patterns, strategies, the log, policies, adapters and your changes to agents.';
    this.element.append(
      element('p', 'panel-lead', lead),
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
      const sure = await ask({ title: 'Delete everything?', paragraphs: whatGoes(await this.#memory.info(), await storedAdapters()), yes: 'Delete everything' });
      if (!sure) return;
      await this.#memory.deleteAll();
      await removeAdapters();
      this.#outcome.textContent = 'Everything was deleted.';
    } catch (error) {
      this.#problem.say(error);
    }
  }
}

/** @param {any} info of the memory @param {object[]} adapters */
function whatGoes({ state, counts, nouns }, adapters) {
  const ofAdapters = adapters.length ? [formatCount(adapters.length, 'adapter')] : [];
  if (state === 'locked') {
    return [
      'This deletes the locked memory and its passphrase. You cannot undo this, and you cannot export the memory without its passphrase.',
      ofAdapters.length ? `It also deletes ${ofAdapters[0]}, which you can save under Models. The models stay.` : 'The models stay.',
    ];
  }
  const stored = Object.entries(nouns).filter(([kind]) => counts[kind]).map(([kind, [one, several]]) => formatCount(counts[kind], one, several));
  const what = [...stored, ...ofAdapters, 'your changes to agents'];
  return [
    `This deletes ${what.slice(0, -1).join(', ')}${what.length > 1 ? ' and ' : ''}${what.at(-1)}.`,
    `You cannot undo this. If you may need the memory again, export it first${ofAdapters.length ? ', and save the adapters under Models' : ''}.`,
    'The models stay, and so does your passphrase.',
  ];
}
