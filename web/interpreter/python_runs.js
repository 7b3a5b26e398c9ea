/** Python that runs in the page: a block of an answer by its "Run", and code of the model by its tool. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { button } from '../common/dom.js';
import { iconAddress } from '../common/icon.js';
import { resultOf } from '../tools/python_text.js';
import { t } from '../i18n/i18n.js';
import { CodeRun, sentenceOf, titleOf } from './code_run.js';

export { ToolFiles } from '../files/tool_files.js';
export { Wheels } from '../files/wheels.js';
export { sheetsOf } from './workbook.js'; // here, so that a visit does not load a file that both share

const MOST_FIXES = 3; // questions to the model about errors, one after the other

/** @type {WeakMap<HTMLElement, BlockRun>} */
const runs = new WeakMap();

/**
 * Run the code of a block, or stop it. @param {{element: HTMLElement, text: string}} figure @param {HTMLElement} control
 * @param {import('./opener.js').Page} page @param {import('./opener.js').Analysis|null} [analysis] that the code was written for
 */
export function toggle(figure, control, page, analysis = null) {
  let run = runs.get(figure.element);
  if (!run) {
    run = new BlockRun(figure, control, page);
    runs.set(figure.element, run);
  }
  if (analysis) run.analysis = analysis;
  run.toggle();
}

/**
 * Run code that the model wrote. @param {string} code @param {AbortSignal} signal stops it @param {import('./opener.js').Page} page
 * @param {(element: HTMLElement) => void} show takes what the run shows
 */
export async function runForModel(code, signal, page, show) {
  const run = new CodeRun(page);
  show(run.root);
  signal.addEventListener('abort', () => run.stop());
  const ended = run.begin(code);
  if (signal.aborted) run.stop();
  return resultOf(await ended);
}

/** A block and its outputs. */
class BlockRun {
  analysis = /** @type {import('./opener.js').Analysis|null} */ (null);
  #figure;
  #control;
  #page;
  #run;
  #code = '';

  /** @param {{element: HTMLElement, text: string}} figure @param {HTMLElement} control @param {import('./opener.js').Page} page */
  constructor(figure, control, page) {
    this.#figure = figure;
    this.#control = control;
    this.#page = page;
    this.#run = new CodeRun(page, { onShow: () => this.#onShow(), more: () => this.#fix() });
  }

  toggle() {
    if (this.#run.isRunning) return this.#run.stop();
    this.#code = this.#figure.text;
    this.#run.begin(this.#code);
  }

  #onShow() {
    const { isRunning, root } = this.#run;
    this.#control.querySelector('span')?.replaceChildren(t(isRunning ? 'python.stop' : 'python.run'));
    this.#control.querySelector('use')?.setAttribute('href', iconAddress(isRunning ? 'square' : 'play'));
    this.#control.dataset.running = String(isRunning);
    if (!root.isConnected) this.#figure.element.append(root);
  }

  /** A way to ask the model about an error. */
  #fix() {
    const { outputs, of } = this.#run;
    const error = outputs.find(({ type }) => type === 'error');
    if (error?.type !== 'error' || !of || error.reason === 'stopped') return nothing;
    if (of.fixes >= MOST_FIXES) return html`<p class="python-note">${t('python.fixedOften', { count: MOST_FIXES })}</p>`;
    return html`<p>${button(t('python.fix'), 'quiet', () => this.#askForFix(error))}</p>`;
  }

  #askForFix(error) {
    if (this.#run.of) this.#run.of.fixes += 1;
    const fence = '`'.repeat(3 + (/`{3,}/.test(this.#code) ? 3 : 0));
    const lines = error.lines.map(([line, text]) => (line ? `${t('python.line', { line: String(line) })} ${text}` : text));
    const words = [...lines, titleOf(error), sentenceOf(error)].filter(Boolean).join('\n');
    const fix = `${t('python.fixMessage')}\n\n${fence}python\n${this.#code.trimEnd()}\n${fence}\n\n${fence}text\n${words}\n${fence}`;
    if (this.analysis) this.#page.ask(`${this.analysis.question}\n\n${fix}`, this.analysis.table);
    else this.#page.ask(fix);
    this.#run.show();
  }
}
