/** Calls `onSilent` once if `feed` was not called for `seconds`. The next `feed` arms it again. */
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
