/** The button that installs the page as an app: there only while the browser offers that, and gone once it is done. */

export class InstallButton {
  #button;
  #offer = /** @type {any} */ (null); // BeforeInstallPromptEvent, which browsers other than Chromium's do not have

  /** @param {HTMLButtonElement} button */
  constructor(button) {
    this.#button = button;
    button.addEventListener('click', () => this.#ask());
    addEventListener('beforeinstallprompt', (event) => {
      event.preventDefault(); // no bar of the browser's own: the button stays where it is until it is wanted
      this.#show(event);
    });
    addEventListener('appinstalled', () => this.#show(null));
  }

  async #ask() {
    const offer = this.#offer;
    if (!offer) return;
    this.#show(null); // an offer can be used once; the browser makes another where it was turned down
    await offer.prompt();
  }

  #show(offer) {
    this.#offer = offer;
    this.#button.hidden = offer === null;
  }
}
