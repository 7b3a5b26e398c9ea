/**
 * The message box. Enter sends, Shift+Enter makes a new line. While an answer streams, Stop replaces Send. ArrowUp in an empty
 * box edits the last message. A draft belongs to its chat, and survives a reload of the page, whichever chat is open then.
 */
import { session } from '../common/web_storage.js';
import { ownKeys } from '../shell/keyboard.js';
import { chatInAddress } from './address.js';

const DRAFT = 'sonata.draft';

export class Composer {
  #form;
  #box;
  #send;
  #stop;
  #open = false;
  #saving = 0;
  #chat = chatInAddress(); // on the page; null: it has no address, or none yet
  /** @type {Map<number, string>} */
  #nameless = new Map(); // drafts of chats that were left before they had an id, by their place

  /**
   * @param {HTMLFormElement} form
   * @param {{accepts: (text: string) => boolean, onSend: (text: string) => void, onStop: () => void, onEditLast: () =>
   *   boolean}} callbacks `accepts`: if it returns false it says why, and the text stays in the box; `onEditLast`: returns true
   *   if there is a message to edit
   */
  constructor(form, { accepts, onSend, onStop, onEditLast }) {
    this.#form = form;
    this.#box = form.querySelector('textarea');
    this.#send = form.querySelector('.send');
    this.#stop = form.querySelector('.stop');
    this.accepts = accepts;
    this.onSend = onSend;
    this.onStop = onStop;

    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#stop.addEventListener('click', () => {
      onStop();
      this.focus();
    });
    this.#box.addEventListener('keydown', ownKeys((event) => {
      if (event.key === 'Enter' && !event.shiftKey) {
        event.preventDefault();
        this.#submit();
      } else if (event.key === 'ArrowUp' && this.#box.value === '' && onEditLast()) {
        event.preventDefault();
      }
    }));
    this.#box.addEventListener('input', () => this.#changed());
    this.text = this.#read(this.#chat);
  }

  get text() {
    return this.#box.value;
  }

  set text(text) {
    this.#box.value = text;
    this.#changed();
  }

  /**
   * Another chat is shown: its draft appears, and the text in the box waits until its chat is shown again.
   * @param {string|number|null} from the chat's id, or its place if it has no id yet; null: a new chat
   * @param {string|null} to
   */
  turn(from, to) {
    const { text } = this;
    keepDraft(this.#chat, '');
    if (typeof from === 'number') this.#nameless.set(from, text);
    else keepDraft(from, text);
    this.#chat = to;
    this.text = this.#read(to);
  }

  /** A chat has its id now. @param {number|null} place its earlier place; null: it is on the page @param {string} id */
  name(place, id) {
    if (place === null) {
      this.#follow();
    } else if (this.#nameless.has(place)) {
      keepDraft(id, this.#nameless.get(place) ?? '');
      this.#nameless.delete(place);
    }
  }

  /** Put a text below the text in the box. */
  add(text) {
    this.text = [this.text.trimEnd(), text].filter(Boolean).join('\n\n');
    this.focus();
  }

  /** @param {{open: boolean, answering: boolean}} state `open`: a message may be sent */
  setState({ open, answering }) {
    this.#open = open;
    this.#stop.hidden = !answering;
    this.#send.hidden = answering;
    this.#changed();
  }

  /** Write a message for the user to change and send. */
  draft(text) {
    this.text = text;
    this.focus();
    this.#box.setSelectionRange(text.endsWith(' ') ? text.length : 0, text.length); // a draft is only continued by the user
  }

  focus() {
    this.#box.focus();
  }

  /** The page is about to close: a message that has no answer yet is in the box after a reload. */
  keep(text) {
    this.#follow();
    if (!text && !this.#saving) return;
    this.#endSaving();
    keepDraft(this.#chat, [text, this.#box.value].filter(Boolean).join('\n\n'));
  }

  /** The chat on the page has an address now, or no longer has one. */
  #follow() {
    const chat = chatInAddress();
    if (chat === this.#chat) return;
    keepDraft(this.#chat, '');
    keepDraft(chat, this.#box.value);
    this.#chat = chat;
  }

  #read(chat) {
    return session.getItem(keyOf(chat)) ?? '';
  }

  #submit() {
    const text = this.#box.value.trim();
    if (!text || !this.#open || !this.accepts(text)) return;
    this.text = '';
    this.onSend(text);
  }

  #changed() {
    this.#send.disabled = !this.#open || this.#box.value.trim() === '';
    if (!CSS.supports('field-sizing', 'content')) {
      this.#box.style.height = 'auto';
      this.#box.style.height = `${this.#box.scrollHeight}px`;
    }
    this.#endSaving();
    this.#saving = setTimeout(() => {
      this.#saving = 0;
      keepDraft(this.#chat, this.#box.value);
    }, 200);
  }

  #endSaving() {
    clearTimeout(this.#saving);
    this.#saving = 0;
  }
}

/** @param {string|null} chat @param {string} text */
function keepDraft(chat, text) {
  if (text) session.setItem(keyOf(chat), text);
  else session.removeItem(keyOf(chat));
}

const keyOf = (chat) => (chat === null ? DRAFT : `${DRAFT}.${chat}`);
