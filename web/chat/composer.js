/**
 * The message box. Enter sends, Shift+Enter makes a new line, Escape stops. While an answer comes in, Stop stands in the
 * place of Send. What is typed survives a reload of the page.
 */
const DRAFT = 'sonata.draft';

export class Composer {
  #form;
  #box;
  #send;
  #stop;
  #ready = false;
  #answering = false;
  #saving = 0;

  /** @param {HTMLFormElement} form @param {{onSend: (text: string) => void, onStop: () => void}} callbacks */
  constructor(form, { onSend, onStop }) {
    this.#form = form;
    this.#box = form.querySelector('textarea');
    this.#send = form.querySelector('.send');
    this.#stop = form.querySelector('.stop');
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
    this.#box.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#submit();
      } else if (event.key === 'Escape' && this.#answering) {
        onStop();
      }
    });
    this.#box.addEventListener('input', () => this.#changed());
    this.text = sessionStorage.getItem(DRAFT) ?? '';
  }

  get text() {
    return this.#box.value;
  }

  set text(text) {
    this.#box.value = text;
    this.#changed();
  }

  /** @param {{ready: boolean, answering: boolean}} state */
  setState({ ready, answering }) {
    this.#ready = ready;
    this.#answering = answering;
    this.#stop.hidden = !answering;
    this.#send.hidden = answering;
    this.#changed();
  }

  focus() {
    this.#box.focus();
  }

  #submit() {
    const text = this.#box.value.trim();
    if (!text || !this.#ready || this.#answering) return;
    this.text = '';
    this.onSend(text);
  }

  #changed() {
    this.#send.disabled = !this.#ready || this.#box.value.trim() === '';
    if (!CSS.supports('field-sizing', 'content')) {
      this.#box.style.height = 'auto';
      this.#box.style.height = `${this.#box.scrollHeight}px`;
    }
    clearTimeout(this.#saving);
    this.#saving = setTimeout(() => sessionStorage.setItem(DRAFT, this.#box.value), 200);
  }
}
