/** The panel beside the chat: its head, the tabs of its parts, and the view while the memory opens or is locked. */
import { t } from '../i18n/i18n.js';
import { icon } from '../common/icon.js';
import { button, element, part, ProblemLine } from '../common/dom.js';
import { userError } from '../common/user_error.js';
import { passphraseInput } from '../common/edit_form.js';
import { SectionForm } from '../common/section_form.js';
import { PANELS } from './panels.js';
import { ownKeys } from '../shell/keyboard.js';

const CHANGES_PAUSE_MS = 400;
const FREE = { state: 'ready', problem: null, routing: '' }; // the memory's state, for parts that do not depend on it
const ALWAYS = new Set(Object.values(PANELS).flat().filter(({ always }) => always).map(({ name }) => name));

export class PanelFrame {
  #root;
  #title = element('h2');
  #tabList = element('div', 'panel-tabs');
  #entries = /** @type {Map<string, {root: HTMLElement, part: any}>} */ (new Map()); // by the part's name
  #panel = '';
  #current = '';
  #shown = /** @type {any} */ (null); // the visible part
  #run = 0; // number of the latest choice
  #engine = /** @type {import('../engine/engine.js').Engine} */ (/** @type {unknown} */ (null));
  #unwatch = () => {};
  #timer = 0;
  #onResume;
  #onChoose;
  #page;
  #status = element('p', 'panel-status');
  #problem = new ProblemLine();
  #unlock = element('section', 'panel-unlock');
  #body = element('div', 'panel-body');

  /**
   * @param {HTMLElement} root
   * @param {{onResume: (id: string) => Promise<void>, onClose: () => void, onChoose: (part: string) => void, page: object}}
   *   given continue a conversation; the user closes the panel; the user chose another part of it; what parts that are `always`
   *   there work with (panels.js)
   */
  constructor(root, { onResume, onClose, onChoose, page }) {
    this.#page = page;
    this.#root = root;
    this.#onResume = onResume;
    this.#onChoose = onChoose;
    this.#status.setAttribute('role', 'status');
    this.#title.id = 'panel-title';
    this.#title.tabIndex = -1;
    const head = element('div', 'panel-head');
    const close = button('', 'panel-close', onClose);
    close.append(icon('x'));
    close.setAttribute('aria-label', t('panel.close'));
    const covered = element('h1', 'visually-hidden', 'Sonata'); // if the panel covers that of the chat
    covered.hidden = true;
    head.append(covered, this.#title, close);
    this.#tabList.setAttribute('role', 'tablist');
    this.#tabList.setAttribute('aria-labelledby', this.#title.id);
    this.#tabList.addEventListener('keydown', ownKeys((event) => this.#onTabKey(event)));
    this.#body.append(this.#status, this.#problem.element, this.#unlock);
    root.setAttribute('aria-labelledby', this.#title.id);
    root.replaceChildren(head, this.#tabList, this.#body);
  }

  /** The name of the panel and its open part: "learned/map". */
  get address() {
    return this.#parts.length > 1 ? `${this.#panel}/${this.#current}` : this.#panel;
  }

  /** @param {string} panel @param {string} name of a part; '' or an unknown one: the first */
  async open(panel, name) {
    if (panel !== this.#panel) {
      this.#leave();
      this.#panel = panel;
      this.#title.textContent = t(`panel.${panel}`);
      this.#showTabs();
    }
    await this.#choose(this.#parts.some((one) => one.name === name) ? name : this.#parts[0].name);
  }

  /** Focus the element that takes the keys once the panel is open. */
  focus() {
    const first = this.#unlock.querySelector('input')
      ?? this.#tabList.querySelector('[aria-selected="true"]:not([hidden] *)') ?? this.#title;
    /** @type {HTMLElement} */ (first).focus();
  }

  /** The panel is hidden. */
  close() {
    this.#leave();
  }

  /** Show another engine's memory: it was started again. @param {import('../engine/engine.js').Engine} engine */
  use(engine) {
    if (engine === this.#engine) return;
    const stays = ALWAYS.has(this.#current);
    const isOpen = this.#shown !== null || this.#timer !== 0;
    if (!stays) this.#leave();
    this.#engine = engine;
    for (const [name, entry] of this.#entries) {
      if (ALWAYS.has(name)) continue;
      entry.part = null;
      entry.root.replaceChildren();
    }
    this.#unlock.replaceChildren();
    if (isOpen && !stays) this.#choose(this.#current);
  }

  get #parts() {
    return PANELS[this.#panel] ?? [];
  }

  #showTabs() {
    const tabs = this.#parts.map(({ name }) => {
      const tab = button(t(`panel.tab_${name}`), 'panel-tab', () => {
        this.#choose(name);
        this.#onChoose(name);
      });
      tab.id = `panel-tab-${name}`;
      tab.setAttribute('role', 'tab');
      tab.setAttribute('aria-controls', `panel-part-${name}`);
      this.#entry(name);
      return tab;
    });
    this.#tabList.hidden = tabs.length < 2;
    this.#tabList.replaceChildren(...tabs);
  }

  /** The place of a part. */
  #entry(name) {
    let entry = this.#entries.get(name);
    if (!entry) {
      const root = element('section', 'panel-part');
      root.id = `panel-part-${name}`;
      if (this.#parts.length > 1) {
        root.setAttribute('role', 'tabpanel');
        root.setAttribute('aria-labelledby', `panel-tab-${name}`);
      }
      root.hidden = true;
      this.#body.append(root);
      this.#entries.set(name, (entry = { root, part: null }));
    }
    return entry;
  }

  #onTabKey(event) {
    const names = this.#parts.map(({ name }) => name);
    const now = names.indexOf(this.#current);
    const next = { ArrowRight: now + 1, ArrowLeft: now - 1 + names.length, Home: 0, End: names.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const tab = part(this.#tabList, `#panel-tab-${names[next % names.length]}`, HTMLElement);
    tab.focus();
    tab.click();
  }

  async #choose(name) {
    if (name === this.#current && this.#shown) return;
    this.#leave();
    this.#current = name;
    for (const tab of this.#tabList.querySelectorAll('button')) {
      const isChosen = tab.id === `panel-tab-${name}`;
      tab.setAttribute('aria-selected', String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
      if (isChosen) this.#tabList.scrollLeft = tab.offsetLeft - (this.#tabList.clientWidth - tab.offsetWidth) / 2;
    }
    for (const { root } of this.#entries.values()) root.hidden = true;
    this.#body.scrollTop = 0;
    if (!ALWAYS.has(name)) this.#unwatch = this.#engine.memory.onChange(() => this.#onChange());
    await this.#update();
  }

  #leave() {
    this.#run += 1;
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#unwatch();
    this.#unwatch = () => {};
    this.#shown?.hide();
    this.#shown = null;
  }

  /** Many changes come at once: refresh after a pause that collects some. */
  #onChange() {
    this.#timer ||= setTimeout(() => {
      this.#timer = 0;
      this.#update();
    }, CHANGES_PAUSE_MS);
  }

  /** Show the chosen part as the state of the memory allows; a part that is visible already is refreshed. */
  async #update() {
    const run = (this.#run += 1);
    const name = this.#current;
    const entry = this.#entry(name);
    const engine = this.#engine;
    try {
      const { load, whileLocked, always } = this.#parts.find((one) => one.name === name) ?? this.#parts[0];
      const info = always ? FREE : await engine.memory.info();
      if (run !== this.#run) return;
      this.#problem.say(null);
      this.#showState(info);
      const seen = info.state === 'ready' || (info.state === 'locked' && whileLocked === true);
      entry.root.hidden = !seen;
      if (!seen) {
        this.#shown?.hide();
        this.#shown = null;
        return;
      }
      if (!entry.part) {
        const Part = await load().catch(() => {
          throw userError('LoadError', t('panel.partNotLoaded'));
        });
        if (run !== this.#run) return;
        entry.part ??= new Part(entry.root, engine.memory, { onResume: this.#onResume, learning: engine.learning, engine, page: this.#page });
      }
      if (this.#shown === entry.part) return void (await entry.part.refresh?.());
      this.#shown = entry.part;
      await entry.part.show();
    } catch (error) {
      if (run === this.#run) this.#problem.say(error);
    }
  }

  #showState({ state, problem, routing }) {
    const opening = state === 'opening' ? t('panel.opening') : '';
    const words = routing === 'failed' || routing === 'off' ? t('panel.wordsOnly') : '';
    const text = opening || problem || words;
    if (this.#status.textContent !== text) this.#status.textContent = text;
    this.#status.hidden = !text;
    if (state !== 'locked') this.#unlock.replaceChildren();
    else if (!this.#unlock.hasChildNodes()) this.#unlock.append(...this.#unlockForm());
  }

  #unlockForm() {
    const passphrase = passphraseInput('current-password');
    const form = new SectionForm(t('panel.unlock'), async () => {
      await this.#engine.memory.unlock({ passphrase: passphrase.value });
      await this.#update();
      return '';
    }, 'primary');
    form.addField(t('stored.passphrase'), passphrase);
    const what = element('p', '', t('panel.lockedAbout'));
    return [element('h3', '', t('panel.unlockTitle')), what, form.element];
  }
}
