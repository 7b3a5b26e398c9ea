/** Set, change or remove the passphrase with which the memory is encrypted. */
import { t } from '../../i18n/i18n.js';
import { button, element } from '../../common/dom.js';
import { userError } from '../../common/user_error.js';
import { editForm, labelled, passphraseInput } from '../../common/edit_form.js';

export class PassphraseSection {
  element = element('div');
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #lock;
  #encrypted = null; // the state that the form was made for
  #buttons = element('div', 'record-actions');
  #form = element('div');
  #lead = element('p', 'panel-lead');
  #outcome = element('p', 'outcome');

  /** @param {import('../../memory/client.js').Memory} memory @param {() => void} lock forget the key */
  constructor(memory, lock) {
    this.#memory = memory;
    this.#lock = lock;
    this.#outcome.setAttribute('role', 'status');
    this.element.append(this.#lead, this.#buttons, this.#form, this.#outcome);
  }

  /** An open form stays, with its input. */
  refresh({ encrypted }) {
    if (encrypted === this.#encrypted) return;
    this.#encrypted = encrypted;
    this.#form.replaceChildren();
    this.#lead.textContent = encrypted
      ? `${t('passphrase.encrypted')} ${t('passphrase.inTheClear')}`
      : t('passphrase.plain');
    this.#buttons.replaceChildren(...(encrypted
      ? [button(t('passphrase.lockNow'), 'quiet', this.#lock), button(t('passphrase.change'), 'quiet', () => this.#set()), button(t('passphrase.remove'), 'quiet', () => this.#remove())]
      : [button(t('passphrase.set'), 'quiet', () => this.#set())]));
  }

  #set() {
    const old = this.#encrypted ? [field(t('passphrase.current'), 'current-password')] : [];
    const first = field(t('passphrase.new'), 'new-password');
    const second = field(t('passphrase.repeat'), 'new-password');
    this.#open([...old, first, second], t('passphrase.save'), t(this.#encrypted ? 'passphrase.changed' : 'passphrase.nowEncrypted'), () => {
      if (first.input.value !== second.input.value) {
        throw userError('StoreError', t('passphrase.differ'));
      }
      return this.#memory.setPassphrase({ passphrase: first.input.value, old: old[0]?.input.value ?? null });
    });
  }

  #remove() {
    const old = field(t('passphrase.current'), 'current-password');
    this.#open([old], t('passphrase.remove'), t('passphrase.removed'), () => this.#memory.removePassphrase({ old: old.input.value }));
  }

  #open(fields, label, done, change) {
    this.#outcome.textContent = '';
    this.#buttons.hidden = true;
    const form = editForm({
      fields: fields.map(({ element: shown }) => shown),
      label,
      save: async () => {
        await change();
        this.#outcome.textContent = done;
      },
      close: async () => {
        this.#form.replaceChildren();
        this.#buttons.hidden = false;
        this.#buttons.querySelector('button')?.focus();
        this.refresh(await this.#memory.info());
      },
    });
    this.#form.replaceChildren(form);
    fields[0].input.focus();
  }
}

function field(name, autocomplete) {
  const input = passphraseInput(autocomplete);
  return { input, element: labelled(name, input) };
}
