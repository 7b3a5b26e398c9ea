/** Set, change or remove the passphrase that the memory is encrypted with. */
import { button, element } from '../page/dom.js';
import { userError } from '../common/user_error.js';
import { editForm, labelled, passphraseInput } from '../page/edit_form.js';

const IN_THE_CLEAR = 'Whoever can read the files of this browser still sees how many items there are of each kind, their ids, '
  + 'times and sizes. Backups, snapshots and freed blocks of your disk may hold what was stored before you set the passphrase.';

export class PassphraseSection {
  element = element('div');
  #memory;
  #encrypted = null; // what is shown is for this
  #buttons = element('div', 'record-actions');
  #form = element('div');
  #lead = element('p', 'panel-lead');
  #outcome = element('p', 'outcome');

  constructor(memory) {
    this.#memory = memory;
    this.#outcome.setAttribute('role', 'status');
    this.element.append(this.#lead, this.#buttons, this.#form, this.#outcome);
  }

  /** A form that is open stays, with what was typed. */
  refresh({ encrypted }) {
    if (encrypted === this.#encrypted) return;
    this.#encrypted = encrypted;
    this.#form.replaceChildren();
    this.#lead.textContent = encrypted
      ? `The memory is encrypted. Sonata asks for the passphrase when you open the page. ${IN_THE_CLEAR}`
      : 'A passphrase encrypts what is in the memory in this browser. It has at least 8 characters. Nobody can recover a forgotten passphrase.';
    this.#buttons.replaceChildren(...(encrypted
      ? [button('Change', 'quiet', () => this.#set()), button('Remove', 'quiet', () => this.#remove())]
      : [button('Set a passphrase', 'quiet', () => this.#set())]));
  }

  #set() {
    const old = this.#encrypted ? [field('Current passphrase', 'current-password')] : [];
    const first = field('New passphrase', 'new-password');
    const second = field('Repeat passphrase', 'new-password');
    this.#open([...old, first, second], 'Save', this.#encrypted ? 'The passphrase was changed.' : 'The memory is now encrypted.', () => {
      if (first.input.value !== second.input.value) {
        throw userError('StoreError', 'The passphrases differ. Type the new passphrase again.');
      }
      return this.#memory.setPassphrase(first.input.value, old[0]?.input.value ?? null);
    });
  }

  #remove() {
    const old = field('Current passphrase', 'current-password');
    this.#open([old], 'Remove', 'The memory is no longer encrypted.', () => this.#memory.removePassphrase(old.input.value));
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
