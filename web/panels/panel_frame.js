/** The panel beside the chat: its head, the tabs of its parts, and the view while the memory opens or is locked. */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { t } from '../i18n/i18n.js';
import { icon } from '../common/icon.js';
import { element, part, ProblemLine } from '../common/dom.js';
import { userError } from '../common/user_error.js';
import { labelled, passphraseInput } from '../common/edit_form.js';
import { SectionForm } from '../common/section_form.js';
import { PANELS } from './panels.js';
import { ownKeys } from '../shell/keyboard.js';

const CHANGES_PAUSE_MS = 400;
const FREE = { state: 'ready', problem: null, routing: '' }; // the memory's state, for parts that do not depend on it
const ALWAYS = new Set(Object.values(PANELS).flat().filter(({ always }) => always).map(({ name }) => name));

export class PanelFrame {
  #root;
  #entries = /** @type {Map<string, {root: HTMLElement, part: any}>} */ (new Map()); // by the part's name
  #panel = '';
  #current = '';
  #shown = /** @type {any} */ (null); // the visible part
  #run = 0; // number of the latest choice
  #engine = /** @type {import('../engine/engine.js').Engine} */ (/** @type {unknown} */ (null));
  #unwatch = () => {};
  #timer = 0;
  #onResume;
  #onClose;
  #onChoose;
  #page;
  #status = '';
  #problem = new ProblemLine();
  #unlock = /** @type {SectionForm|null} */ (null); // while the memory is locked

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
    this.#onClose = onClose;
    this.#onChoose = onChoose;
    root.setAttribute('aria-labelledby', 'panel-title');
    this.#draw();
  }

  /** The heading of the page is that of the panel if it covers that of the chat (panel_opener.js). */
  #draw() {
    const parts = this.#parts;
    render(html`
      <div class="panel-head">
        <h1 class="visually-hidden" hidden>Sonata</h1>
        <h2 id="panel-title" tabindex="-1">${this.#panel ? t(`panel.${this.#panel}`) : ''}</h2>
        <button type="button" class="panel-close" aria-label=${t('panel.close')} @click=${this.#onClose}>${icon('x')}</button>
      </div>
      <div class="panel-tabs" role="tablist" aria-labelledby="panel-title" ?hidden=${parts.length < 2}
        @keydown=${ownKeys((event) => this.#onTabKey(event))}>${repeat(parts, ({ name }) => name, ({ name }) => this.#tab(name))}</div>
      <div class="panel-body">
        <p class="panel-status" role="status" ?hidden=${!this.#status}>${this.#status}</p>
        ${this.#problem.element}
        <section class="panel-unlock">${this.#unlock
          ? html`<h3>${t('panel.unlockTitle')}</h3><p>${t('panel.lockedAbout')}</p>${this.#unlock.element}` : nothing}</section>
        ${repeat(this.#entries, ([name]) => name, ([, { root }]) => root)}
      </div>`, this.#root);
  }

  /** @param {string} name of a part */
  #tab(name) {
    const choose = () => {
      this.#choose(name);
      this.#onChoose(name);
    };
    const isChosen = name === this.#current;
    return html`<button type="button" class="panel-tab" id="panel-tab-${name}" role="tab" aria-controls="panel-part-${name}"
      aria-selected=${String(isChosen)} tabindex=${isChosen ? 0 : -1} @click=${choose}>${t(`panel.tab_${name}`)}</button>`;
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
      for (const part of this.#parts) this.#entry(part.name);
    }
    await this.#choose(this.#parts.some((one) => one.name === name) ? name : this.#parts[0].name);
  }

  /** Focus the element that takes the keys once the panel is open. */
  focus() {
    const first = this.#unlock?.input('passphrase') ?? this.#tabList.querySelector('[aria-selected="true"]:not([hidden] *)');
    /** @type {HTMLElement} */ (first ?? part(this.#root, '#panel-title', HTMLElement)).focus();
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
    for (const name of this.#entries.keys()) if (!ALWAYS.has(name)) this.#entries.delete(name);
    for (const one of this.#parts) this.#entry(one.name);
    this.#unlock = null;
    this.#draw();
    if (isOpen && !stays) this.#choose(this.#current);
  }

  get #parts() {
    return PANELS[this.#panel] ?? [];
  }

  get #tabList() {
    return part(this.#root, '.panel-tabs', HTMLElement);
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
    for (const { root } of this.#entries.values()) root.hidden = true;
    this.#draw();
    const tabs = this.#tabList, tab = part(tabs, `#panel-tab-${name}`, HTMLElement);
    tabs.scrollLeft = tab.offsetLeft - (tabs.clientWidth - tab.offsetWidth) / 2;
    part(this.#root, '.panel-body', HTMLElement).scrollTop = 0;
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
    this.#status = text;
    if (state !== 'locked') this.#unlock = null;
    else this.#unlock ??= this.#unlockForm();
    this.#draw();
  }

  #unlockForm() {
    const form = new SectionForm(t('panel.unlock'), async ({ passphrase }) => {
      await this.#engine.memory.unlock({ passphrase });
      await this.#update();
      return '';
    }, 'primary');
    form.show(labelled(t('stored.passphrase'), passphraseInput('current-password')));
    return form;
  }
}
