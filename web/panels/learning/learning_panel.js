/** How Sonata learns: what each loop does, and plots of its results. The switches are in Settings, Learning. */
import { t } from '../../i18n/i18n.js';
import { element, ProblemLine } from '../../common/dom.js';
import { loadScript, loadStyles } from '../../common/page_files.js';
import { onThemeChange } from '../../shell/theme.js';
import { PoliciesSection } from '../storage/policies_section.js';
import { AdaptersSection } from './adapters_section.js';
import { IdleSection } from './idle_section.js';
import { LoopSection } from './loop_section.js';
import { PlotFigure } from './plot_figure.js';
import { instantPlot, trainingPlots } from './plots.js';
import { qualityPlot } from './progress_plots.js';
import { TimelineFigure } from './timeline_figure.js';

const SWITCHES = 'settings/loops';
const OF_TRAININGS = ['loss', 'probe', 'norm']; // plots for developers

export class LearningPanel {
  /** @type {import('../../learning/client.js').Learning} */ #learning;
  #run = 0; // number of the latest load
  #unwatchTheme = () => {};
  #onTheme = () => [...this.#figures.values(), this.#timeline, this.#adapters].forEach((one) => one?.draw());
  #status = element('p', 'panel-lead');
  #problem = new ProblemLine();
  #loops = new Map(); // name -> LoopSection
  #figures = new Map(); // name -> PlotFigure
  #timeline = /** @type {TimelineFigure|null} */ (null);
  #list = element('div', 'loops');
  #idle;
  #adapters;
  #policies;
  #trainings = element('section', 'loop');
  #history = loopPart('history');
  #answers = loopPart('answers');

  /** @param {HTMLElement} root @param {import('../../memory/client.js').Memory} memory @param {{learning: import('../../learning/client.js').Learning}} parts */
  constructor(root, memory, { learning }) {
    this.#learning = learning;
    this.#status.setAttribute('role', 'status');
    this.#idle = new IdleSection(learning);
    this.#idle.show(null);
    this.#adapters = new AdaptersSection(learning);
    this.#policies = new PoliciesSection(memory);
    for (const { element: one } of this.#sections) one.hidden = true; // until there is something to show
    const switches = element('a', '', t('loops.switches'));
    switches.href = `#panel=${SWITCHES}`;
    switches.dataset.panel = SWITCHES;
    const lead = element('p', 'panel-lead', `${t('loops.lead')} `);
    lead.append(switches);
    root.append(lead, this.#status, this.#problem.element, this.#history.element, this.#answers.element,
      this.#idle.element, this.#list, this.#developers());
  }

  /** Parts that are useful to developers of Sonata. */
  #developers() {
    const door = element('details', 'developers');
    const policies = element('section', 'loop');
    policies.append(element('h3', '', t('policies.list')), this.#policies.element);
    door.append(element('summary', '', t('learning.developers')), this.#trainings, this.#adapters.element, policies);
    door.addEventListener('toggle', this.#onTheme); // a hidden plot had no size
    return door;
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
    this.#timeline?.destroy();
    this.#timeline?.element.remove();
    this.#timeline = null;
    this.#adapters.hide();
  }

  get #sections() {
    return [this.#history, this.#answers, this.#adapters];
  }

  async refresh() {
    const run = (this.#run += 1);
    if (!this.#loops.size) this.#status.textContent = t('learning.looking');
    try {
      const [overview, adapters] = await Promise.all([
        this.#learning.overview(), this.#learning.adapters(), loadScript('vendor/chart.umd.min.js'), loadStyles('panels/learning/learning.css'),
      ]);
      if (run !== this.#run) return;
      this.#problem.say(null);
      this.#status.textContent = overview.problem ?? '';
      this.#show(overview);
      await this.#policies.refresh();
      if (run !== this.#run) return;
      this.#adapters.show(adapters, Chart);
    } catch (error) {
      if (run !== this.#run) return;
      this.#status.textContent = '';
      this.#problem.say(error);
    }
  }

  #show({ idle, loops, lessons, trainings, answers, events }) {
    for (const { element: one } of this.#sections) one.hidden = false;
    this.#idle.show(idle);
    this.#showHistory(events);
    for (const loop of loops) {
      if (!this.#loops.has(loop.name)) {
        const made = new LoopSection(loop.name, this.#learning);
        this.#loops.set(loop.name, made);
        this.#list.append(made.element);
      }
      this.#loops.get(loop.name).show(loop);
    }
    this.#plot('instant', this.#loops.get('instant')?.plots, instantPlot(lessons));
    for (const [name, plot] of Object.entries(trainingPlots(trainings))) {
      this.#plot(name, OF_TRAININGS.includes(name) ? this.#trainings : this.#loops.get('background')?.plots, plot);
    }
    this.#plot('answers', this.#answers.element, qualityPlot(answers));
    this.#answers.empty.hidden = this.#figures.has('answers');
  }

  /** @param {import('../../protocol_calls.js').LearningEvent[]} events */
  #showHistory(events) {
    this.#history.empty.hidden = events.length > 0;
    if (!events.length) {
      this.#timeline?.destroy();
      this.#timeline?.element.remove();
      this.#timeline = null;
      return;
    }
    if (!this.#timeline) {
      this.#timeline = new TimelineFigure(Chart);
      this.#history.element.append(this.#timeline.element);
    }
    this.#timeline.show(events);
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

/**
 * A part with a title, and a sentence for the time while it has nothing to show. @param {string} name progress.NAME of the
 * texts
 */
function loopPart(name) {
  const made = element('section', 'loop');
  const heading = element('h3', '', t(`progress.${name}`));
  heading.id = `progress-${name}-title`;
  made.setAttribute('aria-labelledby', heading.id);
  const nothing = element('p', 'panel-lead', t(`progress.${name}Empty`));
  made.append(heading, nothing);
  return { element: made, empty: nothing };
}
