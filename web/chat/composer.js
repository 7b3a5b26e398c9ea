/**
 * The message box. Enter sends, Shift+Enter makes a new line. While an answer comes in, Stop takes the place of Send.
 * ArrowUp in an empty box edits the last message. What is typed belongs to its chat, and survives a reload of the page.
 */
import { session } from '../common/web_storage.js';
import { ownKeys } from '../page/keyboard.js';

const DRAFT = 'sonata.draft';

export class Composer {
  #form;
  #box;
  #send;
  #stop;
  #open = false;
  #saving = 0;
  /** @type {Map<string|number|null, string>} */
  #drafts = new Map(); // of chats that are not on the page, by `turn`'s keys

  /**
   * @param {HTMLFormElement} form
   * @param {{accepts: (text: string) => boolean, onSend: (text: string) => void, onStop: () => void,
   *   onEditLast: () => boolean}} callbacks `accepts`: says why, where it is false, and the text stays in the box;
   *   `onEditLast`: whether there is a message to edit
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
    this.text = session.getItem(DRAFT) ?? '';
  }

  get text() {
    return this.#box.value;
  }

  set text(text) {
    this.#box.value = text;
    this.#changed();
  }

  /**
   * Another chat comes on the page: what was typed for it comes, and what is in the box waits for its chat to come again.
   * @param {string|number|null} from the chat's id, or what was the place of one that has none yet; null: a new chat
   * @param {string|null} to
   */
  turn(from, to) {
    this.#drafts.set(from, this.text);
    this.text = this.#take(to);
  }

  /** A chat that has been left has its id now. @param {number} place @param {string} id */
  name(place, id) {
    const text = this.#take(place);
    if (text) this.#drafts.set(id, text);
  }

  /** Put a text below what is in the box. */
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
    this.#box.setSelectionRange(text.endsWith(' ') ? text.length : 0, text.length); // what is only begun is gone on with
  }

  focus() {
    this.#box.focus();
  }

  /** The page is about to go: a message that has no answer yet is in the box when it comes back. */
  keep(text) {
    const kept = [text, this.#box.value].filter(Boolean).join('\n\n');
    clearTimeout(this.#saving);
    keepDraft(kept);
  }

  #take(key) {
    const text = this.#drafts.get(key) ?? '';
    this.#drafts.delete(key);
    return text;
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
    clearTimeout(this.#saving);
    this.#saving = setTimeout(() => keepDraft(this.#box.value), 200);
  }
}

function keepDraft(text) {
  session.setItem(DRAFT, text);
}
