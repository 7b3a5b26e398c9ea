/** How Sonata learns: what each loop does, and plots of its results. The switches are in Settings, Learning. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { repeat } from '../../vendor/lit-html/directives/repeat.js';
import { t } from '../../i18n/i18n.js';
import { ProblemLine } from '../../common/dom.js';
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
const OF_LOOPS = { instant: 'instant', background: 'recall' }; // plots of loops, by their names
const OF_TRAININGS = ['loss', 'probe', 'norm']; // plots for developers

export class LearningPanel {
  #root;
  /** @type {import('../../learning/client.js').Learning} */ #learning;
  #run = 0; // number of the latest load
  #isThere = false; // there is something to show
  #unwatchTheme = () => {};
  #onTheme = () => [...this.#figures.values(), this.#timeline, this.#adapters].forEach((one) => one?.draw());
  #status = '';
  #problem = new ProblemLine();
  #loops = /** @type {Map<string, LoopSection>} */ (new Map()); // by name
  #figures = /** @type {Map<string, PlotFigure>} */ (new Map()); // by name
  #timeline = /** @type {TimelineFigure|null} */ (null);
  #idle;
  #adapters;
  #policies;

  /** @param {HTMLElement} root @param {import('../../memory/client.js').Memory} memory @param {{learning: import('../../learning/client.js').Learning}} parts */
  constructor(root, memory, { learning }) {
    this.#root = root;
    this.#learning = learning;
    this.#idle = new IdleSection(learning);
    this.#idle.show(null);
    this.#adapters = new AdaptersSection(learning);
    this.#policies = new PoliciesSection(memory);
    this.#draw();
  }

  #draw() {
    this.#adapters.element.hidden = !this.#isThere;
    const figure = (name) => this.#figures.get(name)?.element ?? nothing;
    render(html`
      <p class="panel-lead">${t('loops.lead')} <a href="#panel=${SWITCHES}" data-panel=${SWITCHES}>${t('loops.switches')}</a></p>
      <p class="panel-lead" role="status">${this.#status}</p>
      ${this.#problem.element}
      ${this.#section('history', this.#timeline?.element)}
      ${this.#section('answers', this.#figures.get('answers')?.element)}
      ${this.#idle.element}
      <div class="loops">${repeat(this.#loops, ([name]) => name, ([, { element: one }]) => one)}</div>
      <details class="developers" @toggle=${this.#onTheme}>
        <summary>${t('learning.developers')}</summary>
        <section class="loop">${OF_TRAININGS.some((name) => this.#figures.has(name)) ? OF_TRAININGS.map(figure) : nothing}</section>
        ${this.#adapters.element}
        <section class="loop"><h3>${t('policies.list')}</h3>${this.#policies.element}</section>
      </details>`, this.#root);
  }

  /**
   * A part with a title, and a sentence for the time while it has nothing to show.
   * @param {string} name progress.NAME of the texts @param {HTMLElement} [content]
   */
  #section(name, content) {
    return html`
      <section class="loop" aria-labelledby="progress-${name}-title" ?hidden=${!this.#isThere}>
        <h3 id="progress-${name}-title">${t(`progress.${name}`)}</h3>
        <p class="panel-lead" ?hidden=${content !== undefined}>${t(`progress.${name}Empty`)}</p>
        ${content ?? nothing}
      </section>`;
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
    this.#timeline = null;
    this.#adapters.hide();
    this.#draw();
  }

  async refresh() {
    const run = (this.#run += 1);
    if (!this.#loops.size) this.#say(t('learning.looking'));
    try {
      const [overview, adapters] = await Promise.all([
        this.#learning.overview(), this.#learning.adapters(), loadScript('vendor/chart.umd.min.js'), loadStyles('panels/learning/learning.css'),
      ]);
      if (run !== this.#run) return;
      this.#problem.say(null);
      this.#show(overview);
      await this.#policies.refresh();
      if (run !== this.#run) return;
      this.#adapters.show(adapters, Chart);
    } catch (error) {
      if (run !== this.#run) return;
      this.#say('');
      this.#problem.say(error);
    }
  }

  #say(status) {
    this.#status = status;
    this.#draw();
  }

  #show({ problem, idle, loops, lessons, trainings, answers, events }) {
    this.#isThere = true;
    this.#status = problem ?? '';
    this.#idle.show(idle);
    const made = { instant: instantPlot(lessons), ...trainingPlots(trainings), answers: qualityPlot(answers) };
    const plots = Object.entries(made).flatMap(([name, plot]) => (plot ? [{ name, plot }] : []));
    for (const [name, figure] of this.#figures) {
      if (plots.some((one) => one.name === name)) continue;
      figure.destroy();
      this.#figures.delete(name);
    }
    for (const { name } of plots) if (!this.#figures.has(name)) this.#figures.set(name, new PlotFigure(Chart));
    if (!events.length) this.#timeline?.destroy();
    this.#timeline = events.length ? this.#timeline ?? new TimelineFigure(Chart) : null;
    for (const loop of loops) {
      if (!this.#loops.has(loop.name)) this.#loops.set(loop.name, new LoopSection(loop.name, this.#learning));
      const figure = this.#figures.get(OF_LOOPS[loop.name]);
      this.#loops.get(loop.name)?.show(loop, figure?.element);
    }
    this.#draw();
    for (const { name, plot } of plots) this.#figures.get(name)?.show(plot); // they are in the page now, and have a size
    this.#timeline?.show(events);
  }
}
