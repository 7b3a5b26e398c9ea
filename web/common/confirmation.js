/** Questions before something is deleted: where the button was that asks, or in a dialog of their own. */
import { html, render } from '../vendor/lit-html/lit-html.js';
import { directive, Directive } from '../vendor/lit-html/directive.js';
import { t } from '../i18n/i18n.js';
import { element } from './dom.js';
import { ownKeys } from '../shell/keyboard.js';

const UNSEEN_MS = 1000; // a double click takes half of this

/** @typedef {{label: string, question: string, yes: string, run: () => unknown}} Asking see askingButton */

class AskingButton extends Directive {
  #root = element('span', 'asking');
  #isAsked = false;
  #given = /** @type {Asking} */ ({});

  /** @param {Asking} given */
  render(given) {
    this.#given = given;
    this.#draw();
    return this.#root;
  }

  #draw() {
    const { label, question, yes, run } = this.#given;
    const agree = () => {
      this.#ask(false);
      run();
    };
    render(this.#isAsked ? html`
      <span class="asking-answers" role="group" aria-label=${question} @keydown=${ownKeys((event) => this.#onKey(event))}>
        <span class="asking-question">${question}</span>
        <button type="button" class="danger" @click=${agree}>${yes}</button>
        <button type="button" class="quiet" @click=${() => this.#ask(false)}>${t('forms.keep')}</button>
      </span>` : html`<button type="button" class="quiet" @click=${() => this.#ask(true)}>${label}</button>`, this.#root);
  }

  #ask(isAsked) {
    this.#isAsked = isAsked;
    this.#draw();
    /** @type {HTMLElement} */ (this.#root.querySelector('button:last-of-type')).focus();
  }

  #onKey(event) {
    if (event.key !== 'Escape') return;
    event.preventDefault(); // or the whole dialog would close
    event.stopPropagation();
    this.#ask(false);
  }
}

/**
 * In a template, a button that asks once: pressed, it makes room for a `question` ("Delete 3 patterns?") with two answers, of
 * which `yes` ("Delete") runs `run`. Its rejection is the caller's to show.
 */
export const askingButton = directive(AskingButton);

/**
 * @param {{title: string, paragraphs: string[], yes: string, no?: string, isUnexpected?: boolean, isHarmless?: boolean,
 *   signal?: AbortSignal}} question `isHarmless`: nothing is lost by `yes`. `signal` takes it back. `isUnexpected`: no action of the user led to the question, so `yes` waits
 *   a moment: a click or a key may be meant for what was shown before
 * @returns {Promise<boolean>} true only for a click on `yes`
 */
export function ask({ title, paragraphs, yes, no = t('forms.cancel'), isUnexpected = false, isHarmless = false, signal }) {
  const dialog = element('dialog', 'ask');
  dialog.setAttribute('aria-labelledby', 'ask-title');
  render(html`
    <h2 id="ask-title">${title}</h2>
    ${paragraphs.map((text) => html`<p>${text}</p>`)}
    <div class="ask-actions">
      <button type="button" class="quiet" @click=${() => dialog.close()}>${no}</button>
      <button type="button" class=${isHarmless ? 'primary' : 'danger'} @click=${() => dialog.close('yes')}>${yes}</button>
    </div>`, dialog);
  document.body.append(dialog);
  dialog.showModal();
  const [refuse, agree] = dialog.querySelectorAll('button');
  refuse.focus();
  signal?.addEventListener('abort', () => dialog.close());
  const stopWaiting = isUnexpected ? waitToBeSeen(agree) : () => {};
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      stopWaiting();
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
  });
}

/** A button counts only when the window has had the focus for a while. @returns {() => void} stops watching */
function waitToBeSeen(made) {
  let timer = 0;
  const wait = () => {
    made.disabled = true;
    clearTimeout(timer);
    timer = setTimeout(() => (made.disabled = false), UNSEEN_MS);
  };
  addEventListener('focus', wait);
  wait();
  return () => {
    clearTimeout(timer);
    removeEventListener('focus', wait);
  };
}
