/** The list of conversations, and one of them to read. */
import { AnswerView } from '../chat/answer_view.js';
import { button, element, ProblemLine } from '../page/dom.js';
import { formatCount, formatDate, formatShare } from '../page/format.js';
import { askingButton } from '../page/ask.js';
import { labelled } from '../page/edit_form.js';
import { RecordList } from './record_list.js';
import { actions, facts } from './record_row.js';

export class ConversationsPanel {
  #memory;
  #onResume;
  #list;
  #reader = element('article', 'reader');
  #problem = new ProblemLine();
  #titles = new Map(); // agent's id -> what people read

  /**
   * @param {HTMLElement} root
   * @param {import('../memory/client.js').Memory} memory
   * @param {{onResume?: (id: string) => Promise<void>}} callbacks
   */
  constructor(root, memory, { onResume }) {
    this.#memory = memory;
    this.#onResume = onResume;
    this.#list = new RecordList({
      nouns: ['conversation', 'conversations'],
      searchLabel: 'Search conversations',
      empty: 'There are no conversations yet.',
      selectable: true,
      load: ({ search, offset, limit }) => memory.conversations({ search, offset, limit }),
      key: ({ id }) => id,
      render: (conversation, row) => this.#render(conversation, row),
      remove: (ids) => memory.removeConversations(ids),
    });
    this.#reader.hidden = true;
    root.append(this.#list.element, this.#problem.element, this.#reader);
  }

  show() {
    return this.refresh();
  }

  /** One that is being read stays as it was opened. */
  refresh() {
    return this.#list.refresh();
  }

  hide() {}

  #render(conversation, row) {
    const { id, title, turns, created, updated, similarity, snippet } = conversation;
    const open = row.action('Read', () => this.#open(id));
    return [
      element('p', 'record-title', title || 'Untitled'),
      ...(snippet ? [found(snippet)] : []),
      facts(
        similarity === null ? null : `${formatShare(similarity)} similar`,
        formatCount(turns, 'message'),
        formatDate(updated),
        updated - created > 60 ? `started ${formatDate(created)}` : null,
      ),
      actions(open, ...this.#continueButton(id), row.action('Rename', () => this.#rename(conversation, row)), row.deleteAction()),
    ];
  }

  #continueButton(id) {
    if (!this.#onResume) return [];
    return [button('Continue', 'quiet', async () => {
      this.#problem.say(null);
      await this.#onResume(id).catch((error) => this.#problem.say(error));
    })];
  }

  #rename({ id, title }, row) {
    const name = element('input');
    Object.assign(name, { value: title, required: true, autocomplete: 'off' });
    row.edit([labelled('Title', name)], () => this.#memory.renameConversation(id, name.value.trim()));
  }

  async #open(id) {
    this.#problem.say(null);
    try {
      const [conversation, { agents }] = await Promise.all([this.#memory.conversation(id), this.#memory.info()]);
      this.#titles = new Map(agents.map((agent) => [agent.id, agent.title]));
      this.#read(conversation);
    } catch (error) {
      this.#problem.say(error);
    }
  }

  #read({ id, title, turns }) {
    const head = element('h3', '', title || 'Untitled');
    head.tabIndex = -1;
    const line = actions(button('Back to the list', 'quiet', () => this.#back()));
    line.append(...this.#continueButton(id), askingButton('Delete', () => 'Delete this conversation?', 'Delete', () => {
      this.#back();
      this.#list.remove([id]);
    }));
    this.#reader.replaceChildren(line, head, ...turns.map((turn) => this.#turn(turn)));
    this.#show(true);
    head.focus({ preventScroll: true });
    this.#reader.scrollIntoView({ block: 'start' });
  }

  #turn({ role, content, created, agent }) {
    const mine = role === 'user';
    const made = element('section', `message ${mine ? 'question' : 'answer'}`);
    const body = element(mine ? 'p' : 'div', 'body', mine ? content : '');
    made.append(element('h4', 'visually-hidden', mine ? 'You' : 'Sonata'), body);
    if (!mine) {
      const view = new AnswerView(body);
      view.append(content);
      view.finish();
    }
    made.append(facts(agent ? this.#titles.get(agent) ?? agent : null, formatDate(created)));
    return made;
  }

  #back() {
    this.#show(false);
    this.#reader.replaceChildren();
    this.#list.element.querySelector('button')?.focus();
  }

  #show(reading) {
    this.#reader.hidden = !reading;
    this.#list.element.hidden = reading;
  }
}

/** The message that a search found, around the words that it found. @param {{role: string, parts: [string, boolean][]}} snippet */
function found({ role, parts }) {
  const line = element('p', 'record-snippet', role === 'user' ? 'You: ' : 'Sonata: ');
  line.append(...parts.map(([text, isMatch]) => (isMatch ? element('mark', '', text) : text)));
  return line;
}
