/**
 * "How fast is my GPU?": measures the kernels of a token by the GPU's own clock and shows them beside the limits that were
 * measured, too. It waits its turn behind a running answer; closing the dialog ends it.
 */
import { element, part } from './dom.js';
import { formatMicroseconds, formatRate, formatShare, formatSpeed } from './format.js';
import { describe, fromError } from './problems.js';

export class GpuDialog {
  #dialog;
  #button;
  #engine = /** @type {import('../engine/engine.js').Engine|null} */ (null);
  #run = 0; // of which measurement there is news
  #parts;

  /** @param {HTMLDialogElement} dialog @param {HTMLButtonElement} button that opens it */
  constructor(dialog, button) {
    this.#dialog = dialog;
    this.#button = button;
    const find = (name) => part(dialog, `.gpu-${name}`, HTMLElement);
    this.#parts = {
      progress: find('progress'), step: find('step'), bar: part(dialog, 'progress', HTMLProgressElement),
      problem: find('problem'), result: find('result'), figures: find('figures'),
      rows: part(dialog, 'tbody', HTMLElement), again: part(dialog, '.gpu-again', HTMLButtonElement),
    };
    button.addEventListener('click', () => {
      dialog.showModal();
      this.#measure();
    });
    this.#parts.again.addEventListener('click', () => this.#measure());
    find('close').addEventListener('click', () => dialog.close());
    dialog.addEventListener('close', () => this.#end());
  }

  /** There is a GPU to measure. @param {import('../engine/engine.js').Engine} engine */
  offer(engine) {
    this.#engine = engine;
    this.#button.hidden = false;
  }

  /** There is none any more. */
  withdraw() {
    this.#engine = null;
    this.#button.hidden = true;
    this.#dialog.close();
  }

  async #measure() {
    const run = (this.#run += 1);
    this.#show('progress');
    this.#progress('Waiting for the running answer', 0);
    try {
      const report = await this.#engine?.profile((done) => {
        if (run === this.#run) this.#progress('Measuring', done);
      });
      if (run === this.#run) this.#render(report);
    } catch (error) {
      if (run !== this.#run) return;
      this.#parts.problem.textContent = describe(fromError(error)).message;
      this.#show('problem');
    }
  }

  /** Stop a measurement that is still running, and ignore its results. */
  #end() {
    this.#run += 1;
    const failed = () => {}; // the engine's next call reports it
    this.#engine?.stopProfile().catch(failed);
  }

  #show(name) {
    for (const part of ['progress', 'problem', 'result']) this.#parts[part].hidden = part !== name;
    this.#parts.again.disabled = name === 'progress';
  }

  #progress(step, done) {
    this.#parts.step.textContent = step;
    this.#parts.bar.value = done;
  }

  #render({ adapter, limits, passes: [pass] }) {
    this.#parts.figures.replaceChildren(
      ...figure('GPU', adapter),
      ...figure('A token', `${formatMicroseconds(pass.wall_us)}, ${formatRate(pass.tok_s)} (position ${pass.position})`),
      ...figure('Memory limit', formatSpeed('memory', limits)),
      ...figure('Compute limit', formatSpeed('compute', limits)),
    );
    const outside = [
      { name: 'Between kernels', detail: 'the GPU goes from one to the next', us: pass.between_us, speed: '', reached: '' },
      { name: 'Waiting', detail: 'for the browser', us: pass.wait_us, speed: '', reached: '' },
    ];
    const rows = [...pass.kernels.map(kernelRow), ...outside];
    const longest = Math.max(...rows.map(({ us }) => us));
    this.#parts.rows.replaceChildren(...rows.map((one) => row(one, pass.us, longest)));
    this.#show('result');
  }
}

function kernelRow(kernel) {
  return {
    name: kernel.kernel,
    detail: `${kernel.count} × ${formatMicroseconds(kernel.us_each)}`,
    us: kernel.us,
    speed: formatSpeed(kernel.limit, kernel),
    reached: `${formatShare(kernel.limit_share)} of ${kernel.limit}`,
  };
}

/** A row of the table; its bar is as long as its share of the `longest` row's time. */
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
