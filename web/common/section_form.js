/** A permanent form for one action; it shows the outcome and keeps the typed text. */
import { html, render } from '../vendor/lit-html/lit-html.js';
import { element, ProblemLine } from './dom.js';
import { typedIn } from './edit_form.js';

export class SectionForm {
  element = element('form', 'section-form');
  #label;
  #look;
  #fields = /** @type {unknown} */ (null);
  #isRunning = false;
  #outcome = '';
  #problem = new ProblemLine();

  /**
   * @param {string} label of the button
   * @param {(typed: Record<string, string>) => Promise<string>} run gets what was typed, by the names of the controls, and returns
   *   the sentence to show; its rejection is shown
   * @param {'quiet'|'primary'} [look] of the button
   */
  constructor(label, run, look = 'quiet') {
    this.#label = label;
    this.#look = look;
    this.element.addEventListener('submit', async (event) => {
      event.preventDefault();
      this.#problem.say(null);
      this.#outcome = '';
      this.#isRunning = true;
      this.#draw();
      try {
        this.#outcome = await run(typedIn(this.element));
      } catch (error) {
        this.#problem.say(error);
      }
      this.#isRunning = false;
      this.#draw();
    });
  }

  /** @param {unknown} fields a template */
  show(fields) {
    this.#fields = fields;
    this.#draw();
  }

  /** @param {string} name of a control */
  input(name) {
    return /** @type {HTMLInputElement} */ (this.element.elements.namedItem(name));
  }

  #draw() {
    render(html`${this.#fields}
      <button class=${this.#look} ?disabled=${this.#isRunning}>${this.#label}</button>
      <p class="outcome" role="status">${this.#outcome}</p>
      ${this.#problem.element}`, this.element);
  }
}
