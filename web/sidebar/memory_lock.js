/**
 * The lock of an encrypted memory: its field in the side bar, and the handling of a message that is sent while it is locked.
 */
import { t } from '../i18n/i18n.js';
import { icon } from '../common/icon.js';
import { html, render } from '../vendor/lit-html/lit-html.js';
import { isNoted } from '../memory/lock_note.js';
import { labelled, passphraseInput } from '../common/edit_form.js';
import { SectionForm } from '../common/section_form.js';

export const NAME = 'sonata-memory'; // as in py_core/store/indexeddb.py

export class MemoryLock {
  #root;
  #parts;
  #onFree;
  #memory = /** @type {import('../memory/client.js').Memory|null} */ (null);
  #told = /** @type {import('../memory/client.js').Memory|null} */ (null); // the memory whose lock state is known
  #isLocked = false;
  #isAsking = false; // in the banner
  #goesWithout = false; // messages are answered without the memory
  #form = new SectionForm(t('panel.unlock'), ({ passphrase }) => this.#unlock(passphrase), 'primary');

  /**
   * @param {HTMLElement} root in the side bar
   * @param {{notices: import('../shell/notices.js').Notices, banner: import('../shell/banner.js').Banner,
   *   drawer: import('./drawer.js').Drawer, composer: import('../chat/composer.js').Composer}} parts of the page
   * @param {() => void} onFree called when waiting messages can be answered
   */
  constructor(root, parts, onFree) {
    this.#root = root;
    this.#parts = parts;
    this.#onFree = onFree;
    this.#form.show(labelled(t('stored.passphrase'), passphraseInput('current-password')));
    render(html`<div><h2>${icon('lock')}${t('lock.title')}</h2><p>${t('lock.about')}</p></div>${this.#form.element}`, root);
  }

  /**
   * The engine reports the state of its memory.
   * @param {import('../memory/client.js').Memory} memory @param {'opening'|'ready'|'locked'} state
   * @param {boolean} [isChat] true if the chat at the page's address is in it, unseen
   */
  use(memory, state, isChat = false) {
    this.#memory = memory;
    if (state === 'opening') return void this.#expect(memory);
    this.#told = memory;
    this.#show(state === 'locked');
    if (this.#isAsking && this.#parts.banner.isShown) return; // it says so
    this.#say(state === 'locked' ? t(isChat ? 'notices.lockedChat' : 'notices.lockedMemory') : null);
  }

  /** True if messages must wait until the user has chosen what to do; if so, it asks. */
  holdsUp() {
    if (!this.#isLocked || this.#goesWithout) return false;
    this.#isAsking = true;
    this.#say(null); // the banner does
    this.#parts.banner.show({ message: t('lock.holdsUp') }, [
      { label: t('panel.unlock'), run: () => this.#ask() },
      { label: t('lock.without'), run: () => this.#goWithout() },
    ]);
    return true;
  }

  /** Shows the lock of a memory that is still opening, if it was noted as locked: the field does not wait for Python. */
  async #expect(memory) {
    if (this.#told !== memory && await isNoted(NAME) && this.#told !== memory && this.#memory === memory) this.#show(true);
  }

  #say(line) {
    this.#parts.notices.say('locked', line, { label: t('notices.unlock'), run: () => this.#ask() });
  }

  #show(isLocked) {
    const isNew = isLocked !== this.#isLocked;
    this.#isLocked = isLocked;
    this.#root.hidden = !isLocked;
    if (!isNew) return;
    if (isLocked) {
      if (isFree(document.activeElement) && this.#field.checkVisibility() && matchMedia('(pointer: fine)').matches) this.#field.focus();
      return;
    }
    const hadFocus = this.#root.contains(document.activeElement) || document.activeElement === document.body;
    this.#field.value = '';
    if (this.#isAsking) this.#parts.banner.hide();
    this.#isAsking = this.#goesWithout = false;
    this.#parts.drawer.chosen();
    if (hadFocus) this.#parts.composer.focus();
    this.#onFree();
  }

  #ask() {
    this.#parts.drawer.show();
    this.#field.focus();
  }

  #goWithout() {
    this.#goesWithout = true;
    this.#say(t('notices.lockedMemory'));
    this.#onFree();
  }

  get #field() {
    return this.#form.input('passphrase');
  }

  /** @param {string} passphrase */
  async #unlock(passphrase) {
    const memory = this.#memory;
    await memory?.opened(); // the field exists before the engine does
    await memory?.unlock({ passphrase });
    return '';
  }
}

/** True if the focused element holds no input. */
function isFree(active) {
  return active === document.body || (active instanceof HTMLTextAreaElement && !active.value);
}
