/** Set, change or remove the passphrase with which the memory is encrypted. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { button, element } from '../../common/dom.js';
import { userError } from '../../common/user_error.js';
import { editForm, labelled, passphraseInput } from '../../common/edit_form.js';

export class PassphraseSection {
  element = element('div');
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #lock;
  #encrypted = false; // the state that the form was made for
  #form = /** @type {HTMLFormElement|null} */ (null);
  #outcome = '';

  /** @param {import('../../memory/client.js').Memory} memory @param {() => void} lock forget the key */
  constructor(memory, lock) {
    this.#memory = memory;
    this.#lock = lock;
  }

  /** An open form stays, with its input. */
  refresh({ encrypted }) {
    if (encrypted !== this.#encrypted) this.#form = null;
    this.#encrypted = encrypted;
    this.#draw();
  }

  #draw() {
    const buttons = this.#encrypted ? [
      button(t('passphrase.lockNow'), 'quiet', this.#lock), button(t('passphrase.change'), 'quiet', () => this.#set()),
      button(t('passphrase.remove'), 'quiet', () => this.#remove()),
    ] : button(t('passphrase.set'), 'quiet', () => this.#set());
    render(html`
      <p class="panel-lead">${this.#encrypted ? `${t('passphrase.encrypted')} ${t('passphrase.inTheClear')}` : t('passphrase.plain')}</p>
      <div class="record-actions" ?hidden=${this.#form !== null}>${buttons}</div>
      <div>${this.#form ?? nothing}</div>
      <p class="outcome" role="status">${this.#outcome}</p>`, this.element);
  }

  #set() {
    const old = this.#encrypted ? labelled(t('passphrase.current'), passphraseInput('current-password', 'old')) : nothing;
    const fields = [
      old, labelled(t('passphrase.new'), passphraseInput('new-password')),
      labelled(t('passphrase.repeat'), passphraseInput('new-password', 'repeated')),
    ];
    this.#open(fields, t('passphrase.save'), t(this.#encrypted ? 'passphrase.changed' : 'passphrase.nowEncrypted'), (typed) => {
      if (typed.passphrase !== typed.repeated) throw userError('StoreError', t('passphrase.differ'));
      return this.#memory.setPassphrase({ passphrase: typed.passphrase, old: typed.old ?? null });
    });
  }

  #remove() {
    const old = labelled(t('passphrase.current'), passphraseInput('current-password', 'old'));
    this.#open(old, t('passphrase.remove'), t('passphrase.removed'), (typed) => this.#memory.removePassphrase({ old: typed.old }));
  }

  /** @param {unknown} fields @param {string} label @param {string} done @param {(typed: Record<string, string>) => Promise<unknown>} change */
  #open(fields, label, done, change) {
    this.#outcome = '';
    this.#form = editForm({
      fields,
      label,
      save: async (typed) => {
        await change(typed);
        this.#outcome = done;
      },
      close: async () => {
        this.#form = null;
        this.#draw();
        this.element.querySelector('button')?.focus();
        this.refresh(await this.#memory.info());
      },
    });
    this.#draw();
    this.#form.querySelector('input')?.focus();
  }
}
