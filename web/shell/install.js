/** The button that installs the page as an app: visible only while the browser offers that, and gone once it is installed. */

export class InstallButton {
  #button;
  #offer = /** @type {any} */ (null); // BeforeInstallPromptEvent, which browsers other than Chromium's do not have

  /** @param {HTMLButtonElement} button */
  constructor(button) {
    this.#button = button;
    button.addEventListener('click', () => this.#ask());
    addEventListener('beforeinstallprompt', (event) => {
      event.preventDefault(); // suppresses the browser's own bar: the button waits until it is pressed
      this.#show(event);
    });
    addEventListener('appinstalled', () => this.#show(null));
  }

  async #ask() {
    const offer = this.#offer;
    if (!offer) return;
    this.#show(null); // an offer can be used once; the browser makes another if it was declined
    await offer.prompt();
  }

  #show(offer) {
    this.#offer = offer;
    this.#button.hidden = offer === null;
  }
}
