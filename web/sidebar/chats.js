/** The chats in the side bar: search, the list by date, a menu for each, and actions for several. */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { t } from '../i18n/i18n.js';
import { describe, fromError } from '../shell/problems.js';
import { saveFile } from '../common/file_download.js';
import { groupOf, listOf, nameOf } from './chat_rows.js';
import { icon } from '../common/icon.js';
import { ChatMenu } from './chat_menu.js';
import { ChatSearch } from './chat_search.js';
import { grouped } from './groups.js';
import { Removal } from './removal.js';
import { ownKeys } from '../shell/keyboard.js';

const TOGETHER_MS = 150;
const AT_ONCE = 60; // chats that are shown before the user scrolls
const MORE = 300;
const FORMS = { markdown: ['md', 'text/markdown'], json: ['json', 'application/json'] };

/** @typedef {import('../protocol_calls.js').StoredConversation} Chat */

export class Chats {
  #root;
  #page;
  #memory = /** @type {import('../memory/client.js').Memory|null} */ (null);
  #unwatch = () => {};
  #timer = 0;
  #chats = /** @type {Chat[]|null} */ (null);
  #keeps = true; // the current announcement
  #search = new ChatSearch(() => this.#draw());
  #menu = new ChatMenu();
  #removal = new Removal();
  #active = /** @type {string|null} */ (null);
  #editing = /** @type {string|null} */ (null);
  #selected = /** @type {Set<string>|null} */ (null);
  #isArchiveOpen = false;
  #shown = AT_ONCE;
  #problem = '';

  /**
   * @param {HTMLElement} root
   * @param {{current: () => string|null, open: (id: string) => Promise<unknown>, chosen: () => void}} page current: the id of
   *   the chat on the page; open: opens another one; chosen: called when the side bar may make room
   */
  constructor(root, page) {
    this.#root = root;
    this.#page = page;
    root.addEventListener('keydown', ownKeys((event) => this.#onKey(event)));
    root.addEventListener('click', (event) => this.#onClick(event));
    root.addEventListener('focusin', ({ target }) => {
      const row = target instanceof HTMLElement ? target.closest('li')?.dataset.chat : undefined;
      if (!row || row === this.#active) return;
      this.#active = row;
      this.#draw();
    });
    this.#draw();
  }

  /** Show the memory of this engine from now on. @param {import('../engine/engine.js').Engine} engine */
  use(engine) {
    this.#unwatch();
    this.#memory = engine.memory;
    this.#unwatch = engine.memory.onChange(() => this.#soon());
    this.#search.use(engine.memory);
    this.#refresh();
  }

  /** Another chat is on the page now. */
  mark() {
    this.#draw();
  }

  focusSearch() {
    this.#searchField?.focus();
  }

  get #searchField() {
    return /** @type {HTMLInputElement|null} */ (this.#root.querySelector('input[type=search]'));
  }

  #soon() {
    this.#timer ||= setTimeout(() => {
      this.#timer = 0;
      this.#refresh();
      this.#search.again();
    }, TOGETHER_MS);
  }

  async #refresh() {
    const memory = this.#memory;
    const told = await memory?.conversations().catch(() => null); // while it opens; it reports when it is open
    const { persistent: keeps = true } = await memory?.info().catch(() => null) ?? {};
    if (!told || memory !== this.#memory) return;
    this.#chats = told.items;
    this.#keeps = keeps;
    const there = new Set(told.items.map(({ id }) => id));
    if (this.#selected) this.#selected = new Set([...this.#selected].filter((id) => there.has(id)));
    this.#draw();
  }

  // ---- what is seen ----

  #draw() {
    const all = this.#chats ?? [];
    const isSearch = this.#search.text !== '';
    render(html`
      <div class="chats-search">
        ${icon('search')}
        <input type="search" autocomplete="off" spellcheck="false" aria-label=${t('sidebar.search')}
          placeholder=${t('sidebar.search')} aria-keyshortcuts="Control+K" @focus=${() => this.#search.prepare()}
          @input=${(event) => this.#search.look(event.target.value)}>
      </div>
      ${this.#selected ? this.#bar(this.#selected) : nothing}
      <p class="chats-problem" role="alert" ?hidden=${!this.#problem}>${this.#problem}</p>
      <div class="chats-list" @scroll=${(event) => this.#onScroll(event.target)}>
        ${isSearch ? this.#results() : this.#dated(all)}
      </div>
      ${this.#removal.element}${this.#menu.element}`, this.#root);
  }

  #dated(all) {
    const groups = grouped(all);
    const archived = all.filter((chat) => chat.archived);
    const state = this.#state(groups.flatMap(({ chats }) => chats).concat(this.#isArchiveOpen ? archived : []));
    let left = this.#shown;
    const shown = groups.map((group) => {
      const chats = group.chats.slice(0, Math.max(left, 0));
      left -= chats.length;
      return { ...group, chats };
    }).filter(({ chats }) => chats.length);
    return html`
      ${shown.map((group) => groupOf(group, state))}
      ${this.#chats && !all.length ? html`<p class="chats-none">${t(this.#keeps ? 'sidebar.none' : 'sidebar.noneUnkept')}</p>` : nothing}
      ${archived.length && left >= 0 ? html`
        <section class="chat-group">
          <h2><button type="button" class="chats-archive" aria-expanded=${String(this.#isArchiveOpen)}
            @click=${() => { this.#isArchiveOpen = !this.#isArchiveOpen; this.#draw(); }}>
            ${icon('archive')}<span>${t('sidebar.archived', { count: archived.length })}</span>${icon('chevron-down')}</button></h2>
          ${this.#isArchiveOpen ? listOf(archived.slice(0, Math.max(left, MORE)), state) : nothing}
        </section>` : nothing}`;
  }

  #results() {
    const { found, similar, isDone } = this.#search;
    const others = similar.filter(({ id }) => !found.some((one) => one.id === id));
    const state = this.#state([...found, ...others]);
    return html`
      <p class="visually-hidden" role="status">${isDone ? t('sidebar.found', { count: found.length + others.length }) : ''}</p>
      ${found.length ? groupOf({ key: 'found', title: t('sidebar.withWords'), chats: found }, state) : nothing}
      ${others.length ? groupOf({ key: 'similar', title: t('sidebar.alike'), chats: others }, state) : nothing}
      ${isDone && !found.length && !others.length ? html`<p class="chats-none">${t('sidebar.nothing')}</p>` : nothing}`;
  }

  #bar(selected) {
    return html`
      <div class="chats-several" role="group" aria-label=${t('sidebar.several')}>
        <span role="status">${t('sidebar.selected', { count: selected.size })}</span>
        <button type="button" class="danger" ?disabled=${!selected.size} @click=${() => this.#remove([...selected])}>${t('sidebar.delete')}</button>
        <button type="button" class="quiet" @click=${() => { this.#selected = null; this.#draw(); }}>${t('sidebar.done')}</button>
      </div>`;
  }

  /** @param {Chat[]} chats that are shown */
  #state(chats) {
    const current = this.#page.current();
    const has = (id) => id !== null && chats.some((chat) => chat.id === id);
    const active = has(this.#active) ? this.#active : has(current) ? current : chats[0]?.id ?? null;
    return {
      current, active, editing: this.#editing, selected: this.#selected,
      onMenu: (chat, opener) => this.#openMenu(chat, opener),
      onRenamed: (chat, title) => this.#rename(chat, title),
      onSelect: ({ id }) => {
        if (!this.#selected?.delete(id)) this.#selected?.add(id);
        this.#draw();
      },
    };
  }

  #onScroll(list) {
    if (list.scrollTop + list.clientHeight < list.scrollHeight - 600 || this.#shown >= (this.#chats?.length ?? 0)) return;
    this.#shown += MORE;
    this.#draw();
  }

  // ---- what can be done ----

  #openMenu(chat, opener) {
    const change = (call) => () => this.#try(call);
    this.#menu.open(opener, t('sidebar.menuOf', { title: nameOf(chat) }), [
      { icon: 'pencil', label: t('sidebar.rename'), run: () => this.#edit(chat.id) },
      chat.pinned
        ? { icon: 'pin-off', label: t('sidebar.unpin'), run: change((memory) => memory.pinConversation({ id: chat.id, pinned: false })) }
        : { icon: 'pin', label: t('sidebar.pin'), run: change((memory) => memory.pinConversation({ id: chat.id, pinned: true })) },
      chat.archived
        ? { icon: 'archive', label: t('sidebar.unarchive'), run: change((memory) => memory.archiveConversation({ id: chat.id, archived: false })) }
        : { icon: 'archive', label: t('sidebar.archive'), run: change((memory) => memory.archiveConversation({ id: chat.id, archived: true })) },
      { icon: 'download', label: t('sidebar.markdown'), run: () => this.#export(chat, 'markdown') },
      { icon: 'download', label: t('sidebar.json'), run: () => this.#export(chat, 'json') },
      { icon: 'check', label: t('sidebar.select'), run: () => this.#select(chat.id) },
      { icon: 'trash-2', label: t('sidebar.delete'), danger: true, run: () => this.#remove([chat.id]) },
    ]);
  }

  /** @param {(memory: import('../memory/client.js').Memory) => Promise<unknown>} call */
  async #try(call) {
    if (!this.#memory) return false;
    try {
      await call(this.#memory);
      this.#problem = '';
      await this.#refresh();
      this.#search.again();
      return true;
    } catch (error) {
      this.#problem = describe(fromError(error)).message;
      this.#draw();
      return false;
    }
  }

  #edit(id) {
    this.#editing = id;
    this.#draw();
    const field = /** @type {HTMLInputElement|null} */ (this.#row(id)?.querySelector('input') ?? null);
    field?.focus();
    field?.select();
  }

  async #rename(chat, title) {
    if (this.#editing !== chat.id) return; // a field that is removed loses the focus, too
    const hadFocus = this.#row(chat.id)?.contains(document.activeElement);
    this.#editing = null;
    this.#draw();
    if (hadFocus) this.#focusRow(chat.id);
    if (title?.trim() && title.trim() !== chat.title) await this.#try((memory) => memory.renameConversation({ id: chat.id, title }));
  }

  #select(id) {
    this.#selected = new Set([id]);
    this.#draw();
    /** @type {HTMLElement|null} */ (this.#row(id)?.querySelector('input') ?? null)?.focus();
  }

  async #export(chat, form) {
    const [ending, type] = FORMS[form];
    await this.#try(async (memory) => {
      const text = await memory.exportConversation({ id: chat.id, form });
      const name = nameOf(chat).replace(/[^\p{L}\p{N} ._-]+/gu, ' ').trim().slice(0, 80) || 'chat';
      saveFile(new Blob([text], { type }), `${name}.${ending}`);
    });
  }

  async #remove(ids) {
    const chats = this.#all.filter(({ id }) => ids.includes(id));
    const wasOpen = this.#page.current();
    const rows = this.#rows;
    const at = rows.findIndex((row) => row.dataset.chat === ids[0]);
    const next = rows.slice(at + 1).concat(rows.slice(0, Math.max(at, 0)).reverse()).find(({ dataset }) => !ids.includes(dataset.chat ?? ''));
    if (!await this.#try((memory) => memory.removeConversations({ ids }))) return;
    this.#selected = null;
    this.#draw();
    const memory = this.#memory;
    const what = chats.length === 1 ? t('sidebar.deletedOne', { title: nameOf(chats[0]) }) : t('sidebar.deleted', { count: ids.length });
    this.#removal.say(what, {
      undo: async () => {
        if (!await this.#try((now) => now.restoreConversations())) return;
        this.#focusRow(ids[0]);
        if (wasOpen !== null && ids.includes(wasOpen) && this.#page.current() === null) await this.#page.open(wasOpen);
      },
      end: () => memory?.forgetRemoved().catch(() => {}),
    });
    if (next?.dataset.chat) this.#focusRow(next.dataset.chat);
    else this.focusSearch();
  }

  get #all() {
    return [...this.#chats ?? [], ...this.#search.found, ...this.#search.similar];
  }

  // ---- keys and clicks ----

  get #rows() {
    return /** @type {HTMLElement[]} */ ([...this.#root.querySelectorAll('li[data-chat]')]);
  }

  #row(id) {
    return this.#rows.find((row) => row.dataset.chat === id);
  }

  #focusRow(id) {
    /** @type {HTMLElement|null} */ (this.#row(id)?.querySelector('a, input') ?? null)?.focus();
  }

  #onClick(event) {
    const link = event.target instanceof Element ? event.target.closest('a.chat-link') : null;
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const id = link.closest('li').dataset.chat;
    this.#page.chosen();
    if (id !== this.#page.current()) this.#page.open(id).catch((error) => this.#try(() => Promise.reject(error)));
  }

  #onKey(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.defaultPrevented || target.closest('[role=menu], .chat-editor')) return;
    const isField = target === this.#searchField;
    if (isField && event.key === 'Escape' && target instanceof HTMLInputElement && target.value) {
      event.preventDefault(); // empties the field instead of closing the drawer
      target.value = '';
      this.#search.look('');
      return;
    }
    if (event.key === 'Escape' && this.#selected) {
      event.preventDefault();
      this.#selected = null;
      this.#draw();
      return;
    }
    const rows = this.#rows;
    const at = rows.findIndex((row) => row.contains(target));
    if (isField ? event.key !== 'ArrowDown' : at < 0) return;
    if (event.key === 'End' && this.#shown < (this.#chats?.length ?? 0)) {
      this.#shown = Infinity;
      this.#draw();
    }
    const last = this.#rows.length - 1;
    const to = { ArrowDown: Math.min(at + 1, last), ArrowUp: at - 1, Home: 0, End: last }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      if (to < 0) this.focusSearch();
      else this.#focusRow(this.#rows[to]?.dataset.chat);
      return;
    }
    const chat = this.#all.find(({ id }) => id === rows[at]?.dataset.chat);
    if (!chat || this.#selected) return;
    if (event.key === 'F2') this.#edit(chat.id);
    else if (event.key === 'Delete') this.#remove([chat.id]);
    else return;
    event.preventDefault();
  }
}
