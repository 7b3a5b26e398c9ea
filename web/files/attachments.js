/**
 * The files of the conversation on the page: chips above the message box. They are added by the paper clip, by dropping them
 * anywhere, by pasting, or by `attach`. They belong to the conversation and reappear when it is opened.
 */
import { html, render } from '../vendor/lit-html/lit-html.js';
import { visible } from '../common/cut.js';
import { part } from '../common/dom.js';
import { icon } from '../common/icon.js';
import { describe, fromError } from '../shell/problems.js';
import { t } from '../i18n/i18n.js';
import { said } from '../i18n/engine_texts.js';
import { formatBytes, formatShare } from '../common/format.js';
import { loadStyles } from '../common/page_files.js';
import { readFile } from './file_reader.js';
import { openTable } from '../table/opener.js';
import { loadPython, openWheels } from '../interpreter/opener.js';

const LONG_PASTE = 2000; // characters that are offered as a file
const TABLE = /\.(csv|tsv)$/i;
const PYTHON = /\.py$/i;
const WHEEL = /-none-any\.whl$/i; // of pure Python

/**
 * @typedef {{opening: number, chat: string|null, last: Promise<void>}} Place a conversation, by when the page opened it; chat:
 *   null if it has not begun; last: settles once its last file is there, because the first file may begin the conversation
 */
/**
 * @typedef {{name: string, size: number, words: string, share: number, place: Place, id: string|null, removal:
 *   AbortController}} Coming a file on its way into the memory; share: the share that is read; id: set once it is stored;
 *   removal: aborts if the user takes it back
 */

/**
 * @typedef {{engine: () => import('../engine/engine.js').Engine, tools: import('../tools/page_tools.js').PageTools,
 *   isReady: () => boolean, onChange: () => void, ask: (text: string, table?: string) => void}} Page onChange: called when
 *   `delay` may have changed; ask: sends a message, about a table if one is named
 */

/** The error's sentence; one of ours may begin with a file's name, spelled as it is. */
function sentence(error) {
  return error.stack ? describe(fromError(error)).message : said(error.said ?? error.message);
}

export class Attachments {
  #root;
  #parts;
  /** @type {Page} */ #page;
  #coming = /** @type {Coming[]} */ ([]);
  #files = /** @type {import('../protocol_calls.js').AttachedFile[]} */ ([]);
  #chat = /** @type {string|null} */ (null); // the conversation whose files are shown
  #known = -1; // the opening whose files were read last, as StoredChat.openings
  #place = /** @type {Place} */ ({ opening: -1, chat: null, last: Promise.resolve() }); // where new files go
  #looking = /** @type {Promise<void>|null} */ (null);
  #lookAgain = false;
  #tools = /** @type {import('./tool_files.js').ToolFiles|null} */ (null); // once there was a file of Python
  #wheels = /** @type {Promise<import('./wheels.js').Wheels>|null} */ (null);
  #table = /** @type {{place: Place, id: string|null, element: HTMLElement}|null} */ (null); // the look at the last table

  /**
   * @param {{root: HTMLElement, form: HTMLFormElement}} elements
   * @param {{stored: import('../chat/stored_chat.js').StoredChat, navigation: import('../chat/navigation.js').Navigation,
   *   composer: import('../chat/composer.js').Composer, queue: import('../chat/message_queue.js').MessageQueue,
   *   notices: import('../shell/notices.js').Notices, announcer: import('../shell/announcer.js').Announcer}} parts of the page
   * @param {Page} page
   */
  constructor({ root, form }, parts, page) {
    this.#root = root;
    this.#parts = parts;
    this.#page = page;
    const choose = ({ target }) => {
      this.attach([...target.files]);
      target.value = ''; // the same file may be chosen again
    };
    render(html`<input type="file" multiple hidden aria-label=${t('files.attach')} @change=${choose}>`, form);
    const input = part(form, 'input[type=file]', HTMLInputElement);
    form.querySelector('.attach')?.addEventListener('click', () => input.click());
    form.querySelector('textarea')?.addEventListener('paste', (event) => this.#onPaste(event));
    this.#watchDragging();
  }

  /**
   * Attach files to the conversation on the page; if a file cannot be read, a line above the message box says why. Wheels
   * are packages for its Python instead.
   * @param {File[]} given
   */
  attach(given) {
    const files = given.filter(({ name }) => !WHEEL.test(name)), wheels = given.filter((file) => !files.includes(file));
    if (wheels.length) this.#askAbout(wheels);
    if (!files.length) return;
    this.#parts.notices.say('files', null);
    this.#parts.queue.fail(null);
    const { openings, id } = this.#parts.stored;
    if (this.#place.opening !== openings) this.#place = { opening: openings, chat: id, last: Promise.resolve() };
    const place = this.#place;
    for (const file of files) {
      const coming = { name: visible(file.name), size: file.size, words: t('files.reading'), share: 0, place, id: null, removal: new AbortController() };
      this.#coming.push(coming);
      place.last = place.last.then(() => this.#attach(file, coming));
    }
    this.#show();
    this.#parts.composer.focus();
  }

  /**
   * A sentence about what a message has to wait for, so that it is answered from the files of the conversation. @returns
   * {string|null}
   */
  get delay() {
    const { id, openings } = this.#parts.stored;
    const coming = this.#coming.find((one) => this.#isHere(one));
    if (coming) return t('files.waits', { name: coming.name, share: formatShare(coming.share) });
    if (id !== null && openings !== this.#known) {
      this.refresh();
      return t('answers.waiting');
    }
    const file = id === null ? undefined : this.#files.find(({ comes }) => comes);
    return file ? t('files.waits', { name: file.name, share: formatShare(file.indexed / file.passages) }) : null;
  }

  /** The memory or the conversation on the page changed. */
  async refresh() {
    const chat = this.#parts.stored.id;
    if (chat !== this.#chat) {
      this.#files = [];
      this.#tools?.sync(chat, []);
    }
    this.#chat = chat;
    this.#show();
    this.#lookAgain = true;
    this.#looking ??= this.#look().finally(() => { this.#looking = null; });
    await this.#looking;
    this.#page.onChange();
  }

  async #look() {
    while (this.#lookAgain) {
      this.#lookAgain = false;
      const chat = this.#chat, { openings } = this.#parts.stored;
      const found = chat === null ? [] : await this.#page.engine().files.files({ chat }).catch(() => null);
      if (chat !== this.#chat) continue;
      this.#known = openings;
      if (found === null) continue; // the memory is still opening: it reports when it is ready
      this.#files = found;
      this.#show();
      this.#syncTools();
    }
  }

  /** @param {File[]} wheels */
  async #askAbout(wheels) {
    try {
      this.#wheels ??= openWheels(this.#root);
      await (await this.#wheels).ask(wheels);
    } catch {
      this.#wheels = null;
      this.#parts.notices.say('files', t('python.notLoaded'));
    }
  }

  /** Files of Python may have tools. */
  async #syncTools() {
    const chat = this.#chat;
    if (!this.#tools && this.#files.some(({ name }) => PYTHON.test(name))) {
      const loaded = await loadPython().catch(() => null); // the next look tries again
      const page = { engine: this.#page.engine, tools: this.#page.tools, onChange: () => this.#show(), say: (sentence) => this.#parts.notices.say('files', sentence) };
      if (loaded) this.#tools ??= new loaded.ToolFiles(this.#root, page);
    }
    if (chat === this.#chat) this.#tools?.sync(chat, this.#files);
  }

  async #attach(file, coming) {
    const { stored, navigation, notices, queue, announcer } = this.#parts;
    const { place, removal: { signal } } = coming;
    try {
      const onPage = (page, pages) => {
        coming.words = t('files.readingPage', { page, pages });
        coming.share = (page - 1) / pages;
        this.#show();
        this.#page.onChange();
      };
      signal.throwIfAborted();
      const { data, type, sheets = [] } = await readFile(file, onPage, signal);
      if (sheets.length) Object.assign(coming, { name: visible(sheets[0].name), size: data.byteLength });
      const engine = this.#page.engine();
      await engine.memory.opened();
      await stored.settled(); // the answer that begins the conversation may still be running
      signal.throwIfAborted();
      if (this.#isHere(coming)) place.chat = stored.id;
      else if (place.chat === null) return; // the person has left a conversation that had not begun
      const known = new Set(this.#files.map(({ id }) => id));
      const keeping = this.#keep(engine, coming, data, type);
      navigation.opening = Promise.all([navigation.opening, keeping.catch(() => {})]).then(() => {}); // messages wait: it may begin the conversation
      await keeping;
      if (!signal.aborted) {
        announcer.say(t('files.attached', { name: file.name }));
        if (TABLE.test(coming.name)) this.#lookAt(coming, sheets);
      } else if (coming.id && !known.has(coming.id)) await engine.files.detach({ ids: [coming.id] }); // the same file may be there twice
    } catch (error) {
      if (signal.aborted) return;
      notices.say('files', sentence(error));
      if (this.#isHere(coming)) queue.fail(t('files.notSent', { name: file.name }));
    } finally {
      await this.refresh(); // before it stops coming: indexing may remain
      this.#coming = this.#coming.filter((other) => other !== coming);
      this.#show();
      this.#page.onChange();
    }
  }

  async #keep(engine, coming, data, type) {
    const { stored } = this.#parts, { place, name, size } = coming;
    const { chat, id } = await engine.files.attach({ data, chat: place.chat, name, type, size });
    coming.id = id;
    place.chat = chat;
    if (!this.#isHere(coming) || stored.id !== null) return;
    stored.adopt(chat);
    if (this.#page.isReady()) await stored.read(engine);
  }

  /**
   * Show a table's columns, first rows, and questions that fit. Without them the file is there all the same.
   * @param {{id: string|null, place: Place}} file @param {File[]} [sheets] of the spreadsheet whose first one it is
   */
  async #lookAt({ id, place }, sheets = []) {
    if (id === null) return;
    const styles = loadStyles('files/table_look.css');
    const parts = Promise.all([import('./table_look.js'), this.#page.engine().files.look({ id }), styles]);
    const [module, look] = await parts.catch(() => [null, null]);
    if (!module || !look || !this.#isHere({ place })) return;
    this.#endLook();
    const ask = (question) => {
      this.#endLook();
      this.#page.ask(question);
    };
    const close = () => {
      this.#endLook();
      this.#parts.composer.focus();
    };
    const analyse = (/** @type {string} */ question) => this.#page.ask(question, id);
    this.#table = { place, id, element: module.tableLook(look, { ask, analyse, close }, sheets.slice(1), (sheet) => this.attach([sheet])) };
    this.#root.before(this.#table.element);
  }

  #endLook() {
    this.#table?.element.remove();
    this.#table = null;
  }

  /** True if a file is added to the conversation on the page. */
  #isHere({ place }) {
    const { openings, id } = this.#parts.stored;
    return place.opening === openings || (id !== null && place.chat === id);
  }

  /** Take back a file that is still being read. @param {Coming} coming */
  #stop(coming) {
    coming.removal.abort();
    this.#coming = this.#coming.filter((other) => other !== coming);
    this.#parts.announcer.say(t('files.removed', { name: coming.name }));
    this.#parts.composer.focus();
    this.#show();
    this.#page.onChange();
  }

  /** Show the look at a table, or close it. */
  #toggleLook({ id }) {
    if (this.#table?.id === id) return this.#endLook();
    const { openings, id: chat } = this.#parts.stored;
    this.#lookAt({ id, place: { opening: openings, chat, last: Promise.resolve() } });
  }

  #toTable({ id, name }) {
    openTable(name, this.#page.engine().files.text({ id }).then((text) => text.replaceAll('\f', '\n\n')));
  }

  async #remove(file) {
    try {
      await this.#page.engine().files.detach({ ids: [file.id] });
      if (this.#table?.id === file.id) this.#endLook();
      this.#parts.announcer.say(t('files.removed', { name: file.name }));
    } catch (error) {
      this.#parts.notices.say('files', sentence(error));
    }
    this.#parts.composer.focus();
    await this.refresh();
  }

  /** @param {ClipboardEvent} event */
  #onPaste(event) {
    const files = [...event.clipboardData?.files ?? []];
    const text = event.clipboardData?.getData('text/plain') ?? '';
    if (files.length && !text) {
      event.preventDefault();
      this.attach(files);
    } else if (text.length > LONG_PASTE) {
      const { notices, composer } = this.#parts;
      const run = () => {
        notices.say('paste', null);
        composer.text = composer.text.replace(text.replaceAll('\r\n', '\n'), '');
        this.attach([new File([text], t('files.pastedName'), { type: 'text/plain' })]);
      };
      notices.say('paste', t('files.longPaste', { count: text.length }), { label: t('files.pasteAttach'), run });
    }
  }

  /** Show where files can be dropped, while some are dragged over the page. */
  #watchDragging() {
    const { dataset } = document.documentElement;
    let leaving = 0;
    const end = () => { delete dataset.dragging; };
    addEventListener('dragover', (event) => {
      if (!event.dataTransfer?.types.includes('Files')) return;
      clearTimeout(leaving);
      dataset.dragging = 'files';
      leaving = setTimeout(end, 300); // it fires repeatedly while they are over the page
    });
    addEventListener('drop', end);
  }

  #show() {
    if (this.#table && !this.#isHere(this.#table)) this.#endLook();
    this.#wheels?.then((wheels) => wheels.follow(), () => {});
    const isComing = (one) => this.#isHere(one) && !this.#files.some(({ id }) => id === one.id);
    const remove = (name, run) => html`<button type="button" class="file-remove" aria-label=${t('files.remove', { name })} @click=${run}>${icon('x')}</button>`;
    const coming = this.#coming.filter(isComing).map((one) => html`<li class="file-chip" data-state="coming">
      ${icon('file-text')}<span class="file-name" title=${one.name}>${one.name}</span><span class="file-about">${formatBytes(one.size)} · ${one.words}</span>
      ${remove(one.name, () => this.#stop(one))}</li>`);
    const here = this.#files.map((file) => {
      const share = file.comes ? file.indexed / file.passages : 1;
      const about = share < 1 ? `${formatBytes(file.size)} · ${t('files.indexing', { share: formatShare(share) })}` : formatBytes(file.size);
      return html`<li class="file-chip" data-state=${share < 1 ? 'indexing' : 'ready'}>
        ${icon('file-text')}${TABLE.test(file.name) ? html`
          <button type="button" class="file-name" title=${t('look.title', { name: file.name })} @click=${() => this.#toggleLook(file)}>${file.name}</button>`
        : html`<span class="file-name" title=${file.name}>${file.name}</span>`}<span class="file-about">${about}</span>
        <button type="button" class="file-table" aria-label=${t('table.ofFile', { name: file.name })} title=${t('table.title')} @click=${() => this.#toTable(file)}>${icon('table')}</button>
        ${this.#tools?.has(file.id) ? html`<button type="button" class="file-tools" aria-label=${t('toolFile.of', { name: file.name })} title=${t('toolFile.of', { name: file.name })} @click=${() => this.#tools?.open(file.id)}>${icon('wrench')}</button>` : ''}
        ${remove(file.name, () => this.#remove(file))}
        ${share < 1 ? html`<progress max="1" .value=${share} aria-label=${t('files.progress', { name: file.name })}></progress>` : ''}</li>`;
    });
    this.#root.hidden = !coming.length && !here.length;
    const focused = this.#root.contains(document.activeElement) ? document.activeElement : null;
    render([...here, ...coming], this.#root);
    if (!focused || focused.isConnected) return;
    // A file that has come has another button.
    const same = [...this.#root.querySelectorAll('.file-remove')].find((one) => one.ariaLabel === focused.ariaLabel);
    if (same instanceof HTMLElement) same.focus();
    else this.#parts.composer.focus();
  }
}
