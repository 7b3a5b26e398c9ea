/** One of the loops that learn: what it does, its switch, and a place for its plots. */
import { button, element, ProblemLine } from '../page/dom.js';

/** What people read. The names are those of the policies ("learning.instant" ...). */
const LOOPS = {
  instant: {
    title: 'At once',
    about: 'What you teach counts from the next answer on. The model itself stays as it is: each fact has a small addition of its own, '
      + 'which is used only when you ask for that fact.',
  },
  reading: {
    title: 'By reading',
    about: 'Where Sonata is not sure that you ask for something you taught, the model first reads up to three such facts. It answers '
      + 'with one of them, or as if it had not read them.',
  },
  background: {
    title: 'By training',
    about: 'In pauses, the facts that you taught are trained into an adapter of the whole model, and the router learns from the routes that '
      + 'you corrected. What comes of it is used only if a test says that it harms nothing else.',
  },
  deep: {
    title: 'From experience',
    about: 'In pauses, Sonata looks at many answers together, and keeps what went well and what did not.',
  },
  style: {
    title: 'Your style',
    about: 'In pauses, answers that you corrected or found good move the style of all answers a little. It stores no facts. A quarter of '
      + 'them is only tested with: the style is used where they become likelier, and other texts stay as they are.',
  },
};

export class LoopSection {
  element = element('section', 'loop');
  plots = element('div', 'loop-plots');
  #box = element('input');
  #isSwitching = false;
  #state = element('p', 'loop-state');
  #problem = new ProblemLine();
  #now;
  #undo;

  /** @param {string} name @param {import('../learning/client.js').Learning} learning */
  constructor(name, learning) {
    const { title, about } = LOOPS[name];
    const head = element('div', 'loop-head');
    const heading = element('h3', '', title);
    heading.id = `loop-${name}`;
    const label = element('label', 'switch');
    this.#box.type = 'checkbox';
    this.#box.setAttribute('role', 'switch');
    this.#box.setAttribute('aria-labelledby', heading.id);
    this.#box.addEventListener('change', () => this.#switch(() => learning.setLoop(name, this.#box.checked)));
    const words = element('span', 'switch-words');
    words.setAttribute('aria-hidden', 'true');
    label.append(this.#box, words);
    head.append(heading, label);
    this.#now = button('Learn now', 'quiet loop-now', () => this.#try(() => learning.learnNow(name)));
    this.#undo = button('', 'quiet', () => this.#try(() => learning.undoRouter()));
    this.element.setAttribute('aria-labelledby', heading.id);
    this.element.append(head, element('p', 'panel-lead', about), this.#problem.element, this.#state, this.#now, this.#undo, this.plots);
  }

  show({ on, words, runs, undo }) {
    this.#undo.textContent = undo;
    this.#undo.hidden = !undo;
    this.#now.hidden = !runs || !on;
    if (!this.#isSwitching) this.#box.checked = on;
    this.#state.textContent = words;
    this.#state.hidden = !words;
  }

  async #switch(run) {
    this.#isSwitching = true;
    if (!await this.#try(run)) this.#box.checked = !this.#box.checked;
    this.#isSwitching = false;
  }

  async #try(run) {
    this.#problem.say(null);
    try {
      await run();
      return true;
    } catch (error) {
      this.#problem.say(error);
      return false;
    }
  }
}
