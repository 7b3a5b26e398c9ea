/**
 * The Memory view: what the page has learned and logged, in a dialog with tabs. Each panel is a class in a file of its own,
 * loaded when its tab is first chosen:
 *
 *   new Panel(root: HTMLElement, memory, {onResume, learning})   show(): each time it is chosen   hide(): each time it is left
 *   refresh(): optional; the memory has changed while the panel is seen
 *
 * While the memory is locked, every panel is a form that unlocks it, except those that work without.
 */
import { button, element, ProblemLine } from '../page/dom.js';
import { loadStyles } from '../page/load_file.js';
import { userError } from '../common/user_error.js';
import { passphraseInput } from '../page/edit_form.js';
import { SectionForm } from './section_form.js';

/** @type {{name: string, title: string, whileLocked?: boolean, load: () => Promise<any>}[]} */
const TABS = [
  { name: 'learned', title: 'Learned', load: async () => (await import('./learned_panel.js')).LearnedPanel },
  { name: 'learning', title: 'Learning', load: async () => (await import('../learning_view/learning_panel.js')).LearningPanel },
  { name: 'routing', title: 'Routing', load: async () => (await import('./routing_panel.js')).RoutingPanel },
  { name: 'conversations', title: 'Conversations', load: async () => (await import('./conversations_panel.js')).ConversationsPanel },
  { name: 'log', title: 'Log', load: async () => (await import('./log_panel.js')).LogPanel },
  { name: 'agents', title: 'Agents', load: async () => (await import('./agents_panel.js')).AgentsPanel },
  { name: 'map', title: 'Map', load: async () => (await import('./map_panel.js')).MapPanel },
  { name: 'storage', title: 'Storage', whileLocked: true, load: async () => (await import('./storage_panel.js')).StoragePanel },
];
const CHANGES_PAUSE_MS = 400;

export class MemoryFrame {
  #dialog = element('dialog', 'memory');
  #tabs = new Map(); // name -> {tab, root, panel}
  #current = TABS[0].name;
  #shown = /** @type {any} */ (null); // the panel that is seen
  #run = 0; // of which choosing there is news
  #memory = /** @type {any} */ (null);
  #learning = /** @type {any} */ (null);
  #unwatch = () => {};
  #timer = 0;
  #onResume;
  #status = element('p', 'memory-status');
  #problem = new ProblemLine();
  #unlock = element('section', 'memory-unlock');
  #body = element('div', 'memory-body');

  /** @param {{onResume?: (id: string) => Promise<void>}} [callbacks] go on with a conversation; without it none is offered */
  constructor({ onResume } = {}) {
    this.#onResume = onResume && (async (id) => {
      await onResume(id);
      this.#dialog.close();
    });
    this.#status.setAttribute('role', 'status');
    const head = element('div', 'memory-head');
    const title = element('h2', '', 'Memory');
    title.id = 'memory-title';
    const close = button('×', 'memory-close', () => this.#dialog.close());
    close.setAttribute('aria-label', 'Close');
    head.append(title, close);
    this.#body.append(this.#status, this.#problem.element, this.#unlock);
    this.#dialog.setAttribute('aria-labelledby', title.id);
    this.#dialog.append(head, this.#tabList(), this.#body);
    this.#dialog.addEventListener('close', () => this.#leave());
    document.body.append(this.#dialog);
  }

  /** @param {import('../engine/engine.js').Engine} engine */
  async open(engine) {
    await loadStyles('memory_view/memory.css');
    this.use(engine);
    if (!this.#dialog.open) this.#dialog.showModal();
    this.#tabs.get(this.#current).tab.focus();
    await this.#choose(this.#current);
    this.#unlock.querySelector('input')?.focus();
  }

  /** Show another engine's memory: it was started again. */
  use({ memory, learning }) {
    if (memory === this.#memory) return;
    this.#leave();
    this.#memory = memory;
    this.#learning = learning;
    for (const entry of this.#tabs.values()) {
      entry.panel = null;
      entry.root.replaceChildren();
    }
    this.#unlock.replaceChildren();
    if (this.#dialog.open) this.#choose(this.#current);
  }

  #tabList() {
    const list = element('div', 'memory-tabs');
    list.setAttribute('role', 'tablist');
    list.setAttribute('aria-label', 'Parts of the memory');
    for (const { name, title } of TABS) {
      const tab = button(title, 'memory-tab', () => this.#choose(name));
      tab.id = `memory-tab-${name}`;
      tab.setAttribute('role', 'tab');
      tab.setAttribute('aria-controls', `memory-panel-${name}`);
      const root = element('section', 'memory-panel');
      root.id = `memory-panel-${name}`;
      root.setAttribute('role', 'tabpanel');
      root.setAttribute('aria-labelledby', tab.id);
      root.hidden = true;
      this.#tabs.set(name, { tab, root, panel: null });
      this.#body.append(root);
      list.append(tab);
    }
    list.addEventListener('keydown', (event) => this.#onTabKey(event));
    return list;
  }

  #onTabKey(event) {
    const names = TABS.map(({ name }) => name);
    const now = names.indexOf(this.#current);
    const next = { ArrowRight: now + 1, ArrowLeft: now - 1 + names.length, Home: 0, End: names.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const name = names[next % names.length];
    this.#tabs.get(name).tab.focus();
    this.#choose(name);
  }

  async #choose(name) {
    if (name === this.#current && this.#shown) return;
    this.#leave();
    this.#current = name;
    for (const [other, { tab, root }] of this.#tabs) {
      tab.setAttribute('aria-selected', String(other === name));
      tab.tabIndex = other === name ? 0 : -1;
      root.hidden = true;
    }
    this.#body.scrollTop = 0;
    this.#unwatch = this.#memory.onChange(() => this.#onChange());
    await this.#update();
  }

  /** Nothing is seen any more. */
  #leave() {
    this.#run += 1;
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#unwatch();
    this.#unwatch = () => {};
    this.#shown?.hide();
    this.#shown = null;
  }

  /** Many changes come at once: look when there was time for some. */
  #onChange() {
    this.#timer ||= setTimeout(() => {
      this.#timer = 0;
      this.#update();
    }, CHANGES_PAUSE_MS);
  }

  /** Show the chosen panel as the state of the memory allows; one that is seen already is refreshed. */
  async #update() {
    const run = (this.#run += 1);
    const name = this.#current;
    const entry = this.#tabs.get(name);
    try {
      const info = await this.#memory.info();
      if (run !== this.#run) return;
      this.#problem.say(null);
      this.#showState(info);
      const { load, whileLocked } = TABS.find((tab) => tab.name === name) ?? TABS[0];
      const seen = info.state === 'ready' || (info.state === 'locked' && whileLocked === true);
      entry.root.hidden = !seen;
      if (!seen) {
        this.#shown?.hide();
        this.#shown = null;
        return;
      }
      if (!entry.panel) {
        const Panel = await load().catch(() => {
          throw userError('LoadError', 'This tab could not be loaded. Check your connection, then select the tab again.');
        });
        if (run !== this.#run) return;
        entry.panel ??= new Panel(entry.root, this.#memory, { onResume: this.#onResume, learning: this.#learning });
      }
      if (this.#shown === entry.panel) return void (await entry.panel.refresh?.());
      this.#shown = entry.panel;
      await entry.panel.show();
    } catch (error) {
      if (run === this.#run) this.#problem.say(error);
    }
  }

  #showState({ state, problem, routing }) {
    const opening = state === 'opening' ? 'Opening the memory…' : '';
    const words = routing === 'failed' || routing === 'off' ? 'Search by meaning is not available. Search finds words only.' : '';
    const text = opening || problem || words;
    if (this.#status.textContent !== text) this.#status.textContent = text;
    this.#status.hidden = !text;
    if (state !== 'locked') this.#unlock.replaceChildren();
    else if (!this.#unlock.hasChildNodes()) this.#unlock.append(...this.#unlockForm());
  }

  #unlockForm() {
    const passphrase = passphraseInput('current-password');
    const form = new SectionForm('Unlock', async () => {
      await this.#memory.unlock(passphrase.value);
      await this.#update();
      return '';
    }, 'primary');
    form.addField('Passphrase', passphrase);
    const what = element('p', '', 'You can chat while the memory is locked. What Sonata learns is added when you unlock it.');
    return [element('h3', '', 'Unlock the memory'), what, form.element];
  }
}
