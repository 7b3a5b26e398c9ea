/** How Sonata learns: what each loop does, and plots of what it did. The switches are in Settings, Learning. */
import { t } from '../i18n/i18n.js';
import { element, ProblemLine } from '../page/dom.js';
import { loadScript, loadStyles } from '../page/load_file.js';
import { onThemeChange } from '../page/theme.js';
import { IdleSection } from './idle_section.js';
import { LoopSection } from './loop_section.js';
import { PlotFigure } from './plot_figure.js';
import { answersPlot, instantPlot, trainingPlots } from './plots.js';

const SWITCHES = 'settings/loops';

export class LearningPanel {
  #learning;
  #run = 0; // of which loading there is news
  #unwatchTheme = () => {};
  #onTheme = () => this.#figures.forEach((figure) => figure.draw());
  #status = element('p', 'panel-lead');
  #problem = new ProblemLine();
  #loops = new Map(); // name -> LoopSection
  #figures = new Map(); // name -> PlotFigure
  #list = element('div', 'loops');
  #idle;
  #answers = element('section', 'loop');

  constructor(root, _memory, { learning }) {
    this.#learning = learning;
    this.#status.setAttribute('role', 'status');
    this.#answers.append(element('h3', '', t('learning.answers')));
    this.#answers.hidden = true;
    this.#idle = new IdleSection(learning);
    this.#idle.show(null);
    const switches = element('a', '', t('loops.switches'));
    switches.href = `#panel=${SWITCHES}`;
    switches.dataset.panel = SWITCHES;
    const lead = element('p', 'panel-lead', `${t('loops.lead')} `);
    lead.append(switches);
    root.append(lead, this.#status, this.#problem.element, this.#idle.element, this.#list, this.#answers);
  }

  async show() {
    this.#unwatchTheme = onThemeChange(this.#onTheme);
    await this.refresh();
  }

  hide() {
    this.#run += 1;
    this.#unwatchTheme();
    for (const figure of this.#figures.values()) {
      figure.destroy();
      figure.element.remove();
    }
    this.#figures.clear();
  }

  async refresh() {
    const run = (this.#run += 1);
    if (!this.#loops.size) this.#status.textContent = t('learning.looking');
    try {
      const [overview] = await Promise.all([
        this.#learning.overview(), loadScript('vendor/chart.umd.min.js'), loadStyles('learning_view/learning.css'),
      ]);
      if (run !== this.#run) return;
      this.#problem.say(null);
      this.#status.textContent = overview.problem ?? '';
      this.#show(overview);
    } catch (error) {
      if (run !== this.#run) return;
      this.#status.textContent = '';
      this.#problem.say(error);
    }
  }

  #show({ idle, loops, lessons, trainings, answers }) {
    this.#idle.show(idle);
    for (const loop of loops) {
      if (!this.#loops.has(loop.name)) {
        const made = new LoopSection(loop.name, this.#learning);
        this.#loops.set(loop.name, made);
        this.#list.append(made.element);
      }
      this.#loops.get(loop.name).show(loop);
    }
    this.#plot('instant', this.#loops.get('instant')?.plots, instantPlot(lessons));
    for (const [name, plot] of Object.entries(trainingPlots(trainings))) this.#plot(name, this.#loops.get('background')?.plots, plot);
    this.#plot('answers', this.#answers, answersPlot(answers));
    this.#answers.hidden = !this.#figures.has('answers');
  }

  /** @param {string} name @param {HTMLElement|undefined} place @param {import('./plot_figure.js').Plot|null} plot null: there is nothing to show yet */
  #plot(name, place, plot) {
    const known = this.#figures.get(name);
    if (!plot || !place) {
      known?.destroy();
      known?.element.remove();
      this.#figures.delete(name);
      return;
    }
    const figure = known ?? new PlotFigure(Chart);
    if (!known) {
      this.#figures.set(name, figure);
      place.append(figure.element);
    }
    figure.show(plot);
  }
}
