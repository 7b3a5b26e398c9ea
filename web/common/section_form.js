/** A permanent form for one action; it shows the outcome and keeps the typed text. */
import { element, ProblemLine } from './dom.js';
import { labelled } from './edit_form.js';

export class SectionForm {
  element = element('form', 'section-form');
  #submit;
  #outcome = element('p', 'outcome');
  #problem = new ProblemLine();

  /**
   * @param {string} label of the button @param {() => Promise<string>} run returns the sentence to show; its rejection is shown
   * @param {'quiet'|'primary'} [look] of the button
   */
  constructor(label, run, look = 'quiet') {
    this.#submit = element('button', look, label);
    this.#outcome.setAttribute('role', 'status');
    this.element.append(this.#submit, this.#outcome, this.#problem.element);
    this.element.addEventListener('submit', async (event) => {
      event.preventDefault();
      this.#problem.say(null);
      this.#outcome.textContent = '';
      this.#submit.disabled = true;
      try {
        this.#outcome.textContent = await run();
      } catch (error) {
        this.#problem.say(error);
      } finally {
        this.#submit.disabled = false;
      }
    });
  }

  add(node) {
    this.#submit.before(node);
  }

  /** @returns {HTMLElement} the control with its name, which can be hidden */
  addField(name, control) {
    const made = labelled(name, control);
    this.add(made);
    return made;
  }
}
