/**
 * "How fast is my GPU?": measures the kernels of a token by the GPU's own clock and shows them beside the measured limits. It
 * waits for a running answer; folding it up stops it. It is shown while a GPU runs the model.
 */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { element } from '../../common/dom.js';
import { saveFile } from '../../common/file_download.js';
import { formatMicroseconds, formatRate, formatShare, formatSpeed } from '../../common/format.js';
import { describe, fromError } from '../../shell/problems.js';

export class GpuSpeed {
  element = element('details', 'gpu');
  /** @type {() => import('../../engine/engine.js').Engine} */ #engine;
  #run = 0; // number of the latest measurement
  #progress = /** @type {{step: string, done: number}|null} */ ({ step: '', done: 0 }); // null: it is over
  #problem = '';
  #report = /** @type {any} */ (null);

  /** @param {import('./run_settings.js').RunSettings} settings @param {() => import('../../engine/engine.js').Engine} engine */
  constructor(settings, engine) {
    this.#engine = engine;
    const root = this.element;
    root.addEventListener('toggle', () => (root.open ? this.#measure() : this.#end()));
    const offer = () => {
      root.hidden = settings.runs?.backend !== 'webgpu';
      if (root.hidden) this.close();
    };
    settings.onTell(offer);
    offer();
    this.#draw();
  }

  close() {
    this.element.open = false;
  }

  async #measure() {
    const run = (this.#run += 1);
    this.#show({ progress: { step: t('gpu.waiting'), done: 0 } });
    try {
      for await (const { done, report } of await this.#engine().developer.profile()) {
        if (run !== this.#run) return; // which ends it
        this.#show(report ? { report } : { progress: { step: t('gpu.measuring'), done } });
      }
    } catch (error) {
      if (run === this.#run) this.#show({ problem: describe(fromError(error)).message });
    }
  }

  /** A file to send to those who write the kernels: nobody has every GPU. */
  #save() {
    const report = { browser: navigator.userAgent, ...this.#report };
    saveFile(new Blob([JSON.stringify(report, null, 1)], { type: 'application/json' }), 'gpu-speed.json');
  }

  /** A measurement that is still running ends. Earlier results are hidden while it measures again. */
  #end() {
    this.#run += 1;
    this.#show({ progress: { step: '', done: 0 } });
  }

  /** @param {{progress?: {step: string, done: number}|null, problem?: string, report?: any}} shown */
  #show({ progress = null, problem = '', report = null }) {
    this.#progress = progress;
    this.#problem = problem;
    this.#report = report;
    this.#draw();
  }

  #draw() {
    render(html`
      <summary id="gpu-speed">${t('gpu.title')}</summary>
      <p class="panel-lead">${t('gpu.about')}</p>
      <div class="gpu-progress" role="status" ?hidden=${!this.#progress}>
        <p class="gpu-step">${this.#progress?.step ?? ''}</p>
        <progress aria-labelledby="gpu-speed" max="1" .value=${this.#progress?.done ?? 0}></progress>
      </div>
      <p class="gpu-problem" role="alert" ?hidden=${!this.#problem}>${this.#problem}</p>
      <div class="gpu-result" tabindex="0" role="group" aria-label=${t('gpu.result')} ?hidden=${!this.#report}>
        ${this.#report ? resultOf(this.#report) : nothing}
      </div>
      <div class="gpu-buttons">
        <button class="quiet" type="button" ?disabled=${this.#progress !== null} @click=${() => this.#measure()}>${t('gpu.again')}</button>
        <button class="quiet" type="button" ?hidden=${!this.#report} @click=${() => this.#save()}>${t('gpu.save')}</button>
      </div>`, this.element);
  }
}

/** @param {any} report of app.generation.speed.profile_report */
function resultOf({ adapter, limits, passes: [pass] }) {
  const outside = [
    { name: t('gpu.between'), detail: t('gpu.betweenAbout'), us: pass.between_us, speed: '', reached: '' },
    { name: t('gpu.wait'), detail: t('gpu.waitAbout'), us: pass.wait_us, speed: '', reached: '' },
  ];
  const rows = [...pass.kernels.map(kernelRow), ...outside];
  const longest = Math.max(...rows.map(({ us }) => us));
  const takes = { time: formatMicroseconds(pass.wall_us), rate: formatRate(pass.tok_s), position: pass.position };
  return html`
    <dl class="gpu-figures">
      ${figure(t('gpu.name'), adapter)}${figure(t('gpu.token'), t('gpu.tokenTakes', takes))}
      ${figure(t('gpu.memoryLimit'), formatSpeed('memory', limits))}${figure(t('gpu.computeLimit'), formatSpeed('compute', limits))}
    </dl>
    <table>
      <thead><tr>
        <th scope="col">${t('gpu.kernel')}</th>
        <th scope="col">${t('gpu.time')}<small>${t('gpu.share')}</small></th>
        <th scope="col">${t('gpu.speed')}<small>${t('gpu.ofLimit')}</small></th>
      </tr></thead>
      <tbody>${rows.map((one) => row(one, pass.us, longest))}</tbody>
    </table>`;
}

function kernelRow(kernel) {
  return {
    name: kernel.kernel,
    detail: `${kernel.count} × ${formatMicroseconds(kernel.us_each)}`,
    us: kernel.us,
    speed: formatSpeed(kernel.limit, kernel),
    reached: t(kernel.limit === 'memory' ? 'gpu.ofMemory' : 'gpu.ofCompute', { share: formatShare(kernel.limit_share) }),
  };
}

/** A row of the table; the length of its bar is its share of the `longest` row's time. */
function row({ name, detail, us, speed, reached }, total, longest) {
  return html`
    <tr>
      <th scope="row">${name}<small>${detail}</small></th>
      <td>${formatMicroseconds(us)}<small>${formatShare(us / total)}</small><span class="gpu-bar" .style=${`inline-size: ${100 * us / longest}%`}></span></td>
      <td>${speed}<small>${reached}</small></td>
    </tr>`;
}

function figure(name, value) {
  return html`<dt>${name}</dt><dd>${value}</dd>`;
}
