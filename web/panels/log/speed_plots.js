/** Plots of the log: how fast the model wrote, and how long the user waited for the first word. */
import { t } from '../../i18n/i18n.js';
import { element } from '../../common/dom.js';
import { formatDate, formatDuration, formatRate } from '../../common/format.js';
import { loadScript, loadStyles } from '../../common/page_files.js';
import { onThemeChange } from '../../shell/theme.js';
import { PlotFigure } from '../learning/plot_figure.js';

/** @typedef {{created: number, count: number, tokS: number|null, first: Record<string, number>}} Speed of app/memory/answer_speeds.py */

export class SpeedPlots {
  element = element('div', 'loop-plots');
  #figures = /** @type {PlotFigure[]} */ ([]);
  #unwatchTheme = () => {};

  /** @param {Speed[]} speeds the oldest first; fewer than two give no plot */
  async show(speeds) {
    if (speeds.length < 2) return this.hide();
    if (!this.#figures.length) {
      await Promise.all([loadScript('vendor/chart.umd.min.js'), loadStyles('panels/learning/learning.css')]);
      this.#unwatchTheme();
      this.#unwatchTheme = onThemeChange(() => this.#figures.forEach((figure) => figure.draw()));
      this.#figures = [new PlotFigure(Chart), new PlotFigure(Chart)];
      this.element.replaceChildren(...this.#figures.map((figure) => figure.element));
    }
    plots(speeds).forEach((plot, at) => this.#figures[at].show(plot));
  }

  hide() {
    this.#unwatchTheme();
    for (const figure of this.#figures) figure.destroy();
    this.#figures = [];
    this.element.replaceChildren();
  }
}

/** @param {Speed[]} speeds @returns {import('../learning/plot_figure.js').Plot[]} */
function plots(speeds) {
  const labels = speeds.map(({ created }) => formatDate(created));
  const axis = t('log.answered');
  return [
    {
      title: t('log.speed'), about: t('log.speedAbout'), axis, labels,
      series: [{ name: t('log.rate'), values: speeds.map(({ tokS }) => tokS), colour: 0 }], format: formatRate, from: 0,
    },
    {
      title: t('log.wait'), about: t('log.waitAbout'), axis, labels,
      series: ['50', '90', '99'].map((share, colour) => (
        { name: t('log.below', { share }), values: speeds.map(({ first }) => first[share]), colour })),
      format: formatDuration, from: 0,
    },
  ];
}
