/**
 * The content of an empty chat: what this model does well, how much is remembered, and whether a larger model would run here.
 */
import { html, render } from '../vendor/lit-html/lit-html.js';
import { icon } from '../common/icon.js';
import { currentLanguage, t } from '../i18n/i18n.js';
import { button, part } from '../common/dom.js';
import { cardsFor } from './cards.js';

const TIMES = [10, 5, 3, 2]; // times the size of the running model
const READING_TOK_S = 8; // as fast as people read
const LEAST_MEASURED = 16; // tokens of an answer that is long enough to measure the speed

export class Welcome {
  #cards;
  #inPage; // the cards of index.html
  #shown = /** @type {import('./cards.js').Card[]|null} */ (null);
  #callbacks;
  #memory;
  #advice;
  #openModels;

  /**
   * @param {HTMLElement} root
   * @param {{onAsk: (text: string) => void, onDraft: (text: string) => void, openModels: () => void}} callbacks ask a question;
   *   write a draft into the message box
   */
  constructor(root, { onAsk, onDraft, openModels }) {
    this.#memory = part(root, '.welcome-memory', HTMLElement);
    this.#advice = part(root, '.welcome-advice', HTMLElement);
    this.#openModels = openModels;
    this.#callbacks = { onAsk, onDraft };
    this.#cards = part(root, '.cards', HTMLElement);
    this.#inPage = [...this.#cards.children];
    render(this.#inPage, this.#cards);
    for (const card of root.querySelectorAll('.cards button')) {
      const text = part(card, 'span', HTMLElement).textContent ?? '';
      card.addEventListener('click', () => this.#choose(text, card.hasAttribute('data-draft')));
    }
    this.showModel(null);
  }

  /** A model runs: offer what it does well. @param {number|null|undefined} parameters their number, if it is known */
  showModel(parameters) {
    const wanted = cardsFor(parameters, currentLanguage());
    if (wanted === this.#shown) return;
    this.#shown = wanted;
    render(wanted?.map((card) => this.#card(card)) ?? this.#inPage, this.#cards);
  }

  /** @param {Record<string, number>} counts of the memory's records by kind */
  showMemory({ session: chats = 0, lesson: facts = 0 }) {
    const parts = [];
    if (facts) parts.push(t('chat.remembersFacts', { count: facts }));
    if (chats) parts.push(t('chat.remembersChats', { count: chats }));
    this.#memory.textContent = parts.length ? t('chat.remembers', { what: new Intl.ListFormat(currentLanguage()).format(parts) }) : '';
    this.#memory.hidden = !parts.length;
  }

  /**
   * Recommend a clearly larger model if it would still write as fast as people read: a token reads all weights once.
   * @param {number} tokens of the last answer @param {number} tokS tokens a second
   */
  showSpeed(tokens, tokS) {
    if (tokens < LEAST_MEASURED) return;
    const times = TIMES.find((one) => tokS / one >= READING_TOK_S);
    this.#advice.hidden = !times;
    if (times) render(html`${t('chat.couldRun', { times })} ${button(t('chat.chooseModel'), 'link', this.#openModels)}`, this.#advice);
  }

  /** @param {import('./cards.js').Card} card */
  #card({ name, icon: picture, isDraft = false }) {
    const asked = t(`chat.ask_${name}`);
    const text = asked.endsWith(':') ? `${asked} ` : asked; // the draft continues behind it
    return html`<li><button type="button" @click=${() => this.#choose(text, isDraft)}>${icon(picture)}<b>${t(`chat.card_${name}`)}</b><span>${text}</span></button></li>`;
  }

  /** @param {string} text @param {boolean} isDraft true if it waits in the message box for more words */
  #choose(text, isDraft) {
    const { onDraft, onAsk } = this.#callbacks;
    (isDraft ? onDraft : onAsk)(text);
  }
}
