/**
 * "How fast is my GPU?": measures the kernels of a token by the GPU's own clock and shows them beside the measured limits. It
 * waits for a running answer; folding it up stops it. It is shown while a GPU runs the model.
 */
import { html, render } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { element, part } from '../../common/dom.js';
import { formatMicroseconds, formatRate, formatShare, formatSpeed } from '../../common/format.js';
import { describe, fromError } from '../../shell/problems.js';

export class GpuSpeed {
  element = element('details', 'gpu');
  /** @type {() => import('../../engine/engine.js').Engine} */ #engine;
  #run = 0; // number of the latest measurement
  #parts;

  /** @param {import('./run_settings.js').RunSettings} settings @param {() => import('../../engine/engine.js').Engine} engine */
  constructor(settings, engine) {
    this.#engine = engine;
    const root = this.element;
    render(skeleton(), root);
    const find = (name) => part(root, `.gpu-${name}`, HTMLElement);
    this.#parts = {
      progress: find('progress'), step: find('step'), bar: part(root, 'progress', HTMLProgressElement),
      problem: find('problem'), result: find('result'), figures: find('figures'),
      rows: part(root, 'tbody', HTMLElement), again: part(root, '.gpu-again', HTMLButtonElement),
    };
    root.addEventListener('toggle', () => (root.open ? this.#measure() : this.#end()));
    this.#parts.again.addEventListener('click', () => this.#measure());
    const offer = () => {
      root.hidden = settings.runs?.backend !== 'webgpu';
      if (root.hidden) this.close();
    };
    settings.onTell(offer);
    offer();
  }

  close() {
    this.element.open = false;
  }

  async #measure() {
    const run = (this.#run += 1);
    this.#show('progress');
    this.#progress(t('gpu.waiting'), 0);
    try {
      for await (const { done, report } of await this.#engine().developer.profile()) {
        if (run !== this.#run) return; // which ends it
        if (report) this.#render(report);
        else this.#progress(t('gpu.measuring'), done);
      }
    } catch (error) {
      if (run !== this.#run) return;
      this.#parts.problem.textContent = describe(fromError(error)).message;
      this.#show('problem');
    }
  }

  /** A measurement that is still running ends. */
  #end() {
    this.#run += 1;
    this.#show('progress'); // earlier results are hidden while it measures again
  }

  #show(name) {
    for (const part of ['progress', 'problem', 'result']) this.#parts[part].hidden = part !== name;
    this.#parts.again.disabled = name === 'progress';
  }

  #progress(step, done) {
    this.#parts.step.textContent = step;
    this.#parts.bar.value = done;
  }

  /** @param {any} report of app.generation.speed.profile_report */
  #render({ adapter, limits, passes: [pass] }) {
    this.#parts.figures.replaceChildren(
      ...figure(t('gpu.name'), adapter),
      ...figure(t('gpu.token'), t('gpu.tokenTakes', { time: formatMicroseconds(pass.wall_us), rate: formatRate(pass.tok_s), position: pass.position })),
      ...figure(t('gpu.memoryLimit'), formatSpeed('memory', limits)),
      ...figure(t('gpu.computeLimit'), formatSpeed('compute', limits)),
    );
    const outside = [
      { name: t('gpu.between'), detail: t('gpu.betweenAbout'), us: pass.between_us, speed: '', reached: '' },
      { name: t('gpu.wait'), detail: t('gpu.waitAbout'), us: pass.wait_us, speed: '', reached: '' },
    ];
    const rows = [...pass.kernels.map(kernelRow), ...outside];
    const longest = Math.max(...rows.map(({ us }) => us));
    this.#parts.rows.replaceChildren(...rows.map((one) => row(one, pass.us, longest)));
    this.#show('result');
  }
}

/** Its elements; the results come later. */
function skeleton() {
  return html`
    <summary id="gpu-speed">${t('gpu.title')}</summary>
    <p class="panel-lead">${t('gpu.about')}</p>
    <div class="gpu-progress" role="status">
      <p class="gpu-step"></p>
      <progress aria-labelledby="gpu-speed" max="1" value="0"></progress>
    </div>
    <p class="gpu-problem" role="alert" hidden></p>
    <div class="gpu-result" tabindex="0" role="group" aria-label=${t('gpu.result')} hidden>
      <dl class="gpu-figures"></dl>
      <table>
        <thead><tr>
          <th scope="col">${t('gpu.kernel')}</th>
          <th scope="col">${t('gpu.time')}<small>${t('gpu.share')}</small></th>
          <th scope="col">${t('gpu.speed')}<small>${t('gpu.ofLimit')}</small></th>
        </tr></thead>
        <tbody></tbody>
      </table>
    </div>
    <button class="gpu-again quiet" type="button">${t('gpu.again')}</button>`;
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
  const bar = element('span', 'gpu-bar');
  bar.style.inlineSize = `${100 * us / longest}%`;
  const head = element('th', '', name);
  head.scope = 'row';
  head.append(element('small', '', detail));
  const time = element('td', '', formatMicroseconds(us));
  time.append(element('small', '', formatShare(us / total)), bar);
  const rate = element('td', '', speed);
  rate.append(element('small', '', reached));
  const made = element('tr');
  made.append(head, time, rate);
  return made;
}

function figure(name, value) {
  return [element('dt', '', name), element('dd', '', value)];
}
