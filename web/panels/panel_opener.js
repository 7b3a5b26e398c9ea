/**
 * Opens and closes the panel beside the chat: by the links of the side bar, by the address, by Back and Forward. The panel's
 * own modules are loaded when it is first opened. On a narrow screen it covers the chat.
 */
import { backClosesPanel, panelInAddress, showPanelInAddress } from '../chat/address.js';
import { t } from '../i18n/i18n.js';
import { loadStyles } from '../common/page_files.js';
import { ownKeys } from '../shell/keyboard.js';

const COVERS = matchMedia('(max-width: 68rem)'); // as in page/shell.css

export class PanelOpener {
  #root;
  #stage;
  #links;
  #notices;
  #onResume;
  #page;
  #frame = /** @type {import('./panel_frame.js').PanelFrame|null} */ (null);
  #engine = /** @type {import('../engine/engine.js').Engine|null} */ (null);
  #opener = /** @type {Element|null} */ (null); // the element that had the focus

  /**
   * @param {{root: HTMLElement, stage: HTMLElement, links: HTMLElement}} elements the panel; the elements that it may cover;
   *   the parent of the links with data-panel, which also close it
   * @param {import('../shell/notices.js').Notices} notices
   * @param {{onResume: (id: string) => Promise<void>, page: object}} given continue a stored conversation; what parts that are
   *   `always` there work with (panels.js)
   */
  constructor({ root, stage, links }, notices, { onResume, page }) {
    this.#page = page;
    this.#root = root;
    this.#stage = stage;
    this.#links = links;
    this.#notices = notices;
    this.#onResume = onResume;
    document.addEventListener('click', (event) => {
      const link = event.target instanceof Element ? event.target.closest('a[data-panel]') : null;
      if (!(link instanceof HTMLElement)) return;
      event.preventDefault();
      /** @type {HTMLElement|null} */ (link.closest('[popover]'))?.hidePopover();
      if (links.contains(link) && panelInAddress()?.split('/')[0] === link.dataset.panel) this.close();
      else this.open(link.dataset.panel ?? '');
    });
    root.addEventListener('keydown', ownKeys((event) => {
      if (event.key !== 'Escape' || event.defaultPrevented) return;
      event.preventDefault(); // it does not stop the answer
      this.close();
    }));
    COVERS.addEventListener('change', () => this.#cover());
    addEventListener('popstate', () => this.#follow());
  }

  /** Show the memory of this engine from now on. */
  use(engine) {
    const isFirst = this.#engine === null;
    this.#engine = engine;
    this.#frame?.use(engine);
    if (isFirst) this.#follow();
  }

  /** @param {string} panel "learned", or with its part: "learned/map" */
  open(panel) {
    if (this.#root.hidden) this.#opener = document.activeElement;
    showPanelInAddress(panel, panelInAddress() ? 'replace' : 'push');
    return this.#follow(true);
  }

  /** True if an action on the page takes place in the panel. */
  get hasFocus() {
    return this.#root.contains(document.activeElement);
  }

  close() {
    if (!panelInAddress()) return;
    if (backClosesPanel()) return void history.back(); // and `popstate` follows
    showPanelInAddress(null, 'replace');
    this.#follow();
  }

  /** If the panel covers the chat, it makes room for it. */
  uncover() {
    if (!COVERS.matches || !panelInAddress()) return;
    showPanelInAddress(null, 'replace');
    this.#opener = null; // the focus goes to the chat
    this.#follow();
  }

  /** Show the panel that the address names. */
  async #follow(takesFocus = false) {
    const [panel, part = ''] = panelInAddress()?.split('/') ?? [''];
    for (const link of this.#links.querySelectorAll('a[data-panel]')) {
      if (link instanceof HTMLElement && link.dataset.panel === panel) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    }
    if (!panel) return this.#hide();
    if (!this.#engine) return;
    try {
      const [{ PanelFrame }, { PANELS }] = await Promise.all([
        import('./panel_frame.js'), import('./panels.js'), loadStyles('panels/panel.css'),
      ]);
      if (!Object.hasOwn(PANELS, panel)) return this.#hide();
      this.#frame ??= new PanelFrame(this.#root, {
        onResume: async (id) => {
          this.uncover();
          await this.#onResume(id);
        },
        onClose: () => this.close(),
        page: this.#page,
        onChoose: (name) => showPanelInAddress(`${panelInAddress()?.split('/')[0]}/${name}`, 'replace'),
      });
      this.#notices.say('panel', null);
    } catch {
      this.#notices.say('panel', t('panel.notLoaded'));
      return;
    }
    if (panelInAddress()?.split('/')[0] !== panel) return; // another panel was opened meanwhile
    const wasHidden = this.#root.hidden;
    this.#frame.use(this.#engine);
    this.#root.hidden = false;
    this.#cover();
    const opened = this.#frame.open(panel, part);
    if (takesFocus || wasHidden) this.#frame.focus();
    await opened;
    if (takesFocus && this.#root.querySelector('.panel-unlock input')) this.#frame.focus();
  }

  #hide() {
    if (this.#root.hidden) return;
    const hadFocus = this.#root.contains(document.activeElement) || document.activeElement === document.body;
    this.#frame?.close();
    this.#root.hidden = true;
    this.#cover();
    if (hadFocus && this.#opener instanceof HTMLElement && this.#opener.isConnected) this.#opener.focus();
  }

  /** The covered elements are out of reach: the panel is the main element then. */
  #cover() {
    const covers = COVERS.matches && !this.#root.hidden;
    this.#stage.inert = covers;
    this.#root.role = covers ? 'main' : 'complementary';
    const page = this.#root.querySelector('h1');
    if (page) page.hidden = !covers;
  }
}
