/** Calls `onSilent` once when `feed` has not been called for `seconds`. Feeding it again arms it again. */
export class Watchdog {
  #timer = 0;

  constructor(seconds, onSilent) {
    this.seconds = seconds;
    this.onSilent = onSilent;
  }

  feed() {
    this.stop();
    this.#timer = setTimeout(this.onSilent, this.seconds * 1000);
  }

  stop() {
    clearTimeout(this.#timer);
  }
}
