/** Announces to screen readers: whole blocks of an answer, when they are complete, and changes of state. */
export class Announcer {
  #region;

  constructor(region) {
    this.#region = region;
  }

  say(text) {
    const line = document.createElement('p');
    line.textContent = text;
    this.#region.append(line);
    while (this.#region.childElementCount > 20) this.#region.firstElementChild.remove();
  }
}
