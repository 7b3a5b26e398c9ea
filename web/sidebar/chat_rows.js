/** Rows of chats under headings in the side bar, as templates of lit-html. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { live } from '../vendor/lit-html/directives/live.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { isBlank, visible } from '../common/cut.js';
import { icon } from '../common/icon.js';
import { t } from '../i18n/i18n.js';
import { ownKeys } from '../shell/keyboard.js';

/**
 * @typedef {import('../protocol_calls.js').StoredConversation} Chat
 * @typedef {{current: string|null, active: string|null, editing: string|null, selected: Set<string>|null,
 *   onMenu: (chat: Chat, opener: HTMLElement) => void, onRenamed: (chat: Chat, title: string|null) => void,
 *   onSelect: (chat: Chat) => void}} RowState active: the one that Tab leads to; selected: null where nothing is chosen
 */

/** @param {{key: string, title: string, chats: Chat[]}} group @param {RowState} state */
export function groupOf({ key, title, chats }, state) {
  return html`
    <section class="chat-group" aria-labelledby="chats-${key}">
      <h2 id="chats-${key}">${title}</h2>
      ${listOf(chats, state)}
    </section>`;
}

/** @param {Chat[]} chats @param {RowState} state */
export function listOf(chats, state) {
  return html`<ul>${repeat(chats, ({ id }) => id, (chat) => rowOf(chat, state))}</ul>`;
}

/** @param {Chat} chat */
export function nameOf({ title }) {
  return isBlank(title) ? t('sidebar.untitled') : visible(title);
}

/** @param {Chat} chat @param {RowState} state */
function rowOf(chat, state) {
  if (state.editing === chat.id) return editorOf(chat, state);
  if (state.selected) return choiceOf(chat, state);
  const name = nameOf(chat);
  const key = state.active === chat.id ? '0' : '-1';
  const openMenu = (event) => {
    event.preventDefault();
    state.onMenu(chat, event.currentTarget.closest('li').querySelector('.chat-more'));
  };
  return html`
    <li class="chat-row" data-chat=${chat.id} @contextmenu=${openMenu}>
      <a class="chat-link" href=${addressOf(chat)} dir="auto" tabindex=${key} title=${name}
        aria-current=${state.current === chat.id ? 'page' : nothing}>
        <span class="chat-name">${name}</span>${chat.snippet ? snippetOf(chat.snippet) : nothing}</a>
      <button class="chat-more icon-only" type="button" tabindex=${key} aria-haspopup="menu" aria-expanded="false"
        aria-label=${t('sidebar.menuOf', { title: name })} @click=${openMenu}>${icon('ellipsis')}</button>
    </li>`;
}

/** The address of a chat; without its id if the chat is gone when the page closes. @param {Chat} chat */
function addressOf({ id, kept }) {
  return location.pathname + location.search + (kept ? `#chat=${id}` : '');
}

function editorOf(chat, state) {
  const done = (title) => state.onRenamed(chat, title);
  return html`
    <li class="chat-row chat-editor" data-chat=${chat.id}>
      <input type="text" maxlength="200" autocomplete="off" aria-label=${t('sidebar.title')} .value=${chat.title}
        @keydown=${ownKeys((/** @type {any} */ event) => {
          if (!['Enter', 'Escape'].includes(event.key)) return;
          event.preventDefault(); // the drawer stays open
          done(event.key === 'Enter' ? event.target.value : null);
        })}
        @blur=${(event) => done(event.target.value)}>
    </li>`;
}

function choiceOf(chat, state) {
  return html`
    <li class="chat-row" data-chat=${chat.id}>
      <label class="chat-choice"><input type="checkbox" .checked=${live(state.selected?.has(chat.id) ?? false)}
        @change=${() => state.onSelect(chat)}><span class="chat-name" dir="auto">${nameOf(chat)}</span></label>
    </li>`;
}

function snippetOf({ role, parts }) {
  return html`<span class="chat-snippet">${role === 'user' ? t('sidebar.youSaid') : nothing}
    ${parts.map(([text, isMatch]) => (isMatch ? html`<mark>${text}</mark>` : text))}</span>`;
}
