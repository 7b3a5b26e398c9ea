/** The outputs of a block of Python below it, from the first word to the files that it wrote. */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { button, element } from '../common/dom.js';
import { icon, iconAddress } from '../common/icon.js';
import { formatBytes } from '../common/format.js';
import { saveFile } from '../common/file_download.js';
import { describe, fromError } from '../shell/problems.js';
import { t } from '../i18n/i18n.js';
import { ChatPython } from './chat_python.js';

const MOST_FIXES = 3; // questions to the model about errors, one after the other
const MOST_OUTPUTS = 300;

/** @typedef {import('./interpreter.js').Output} Output */
/** @typedef {import('./chat_python.js').Package} Package */

let chat = /** @type {{opening: number, python: ChatPython, fixes: number}|null} */ (null);
let running = /** @type {Run|null} */ (null);
/** @type {WeakMap<HTMLElement, Run>} */
const runs = new WeakMap();

/** Run the code of a block, or stop it. @param {{element: HTMLElement, text: string}} figure @param {HTMLElement} control @param {import('./opener.js').Page} page */
export function toggle(figure, control, page) {
  let run = runs.get(figure.element);
  if (!run) {
    run = new Run(figure, control, page);
    runs.set(figure.element, run);
  }
  if (run.isRunning) run.stop();
  else run.begin();
}

/** The Python of the conversation on the page: one at a time. @param {import('./opener.js').Page} page */
function pythonOf(page) {
  const { opening } = page.chat();
  if (chat?.opening !== opening) {
    chat?.python.end();
    chat = { opening, python: new ChatPython(page), fixes: 0 };
  }
  return chat;
}

/** A block and its outputs. */
class Run {
  isRunning = false;
  #figure;
  #control;
  #page;
  #root = element('div', 'python-run');
  #outputs = /** @type {Output[]} */ ([]);
  #state = '';
  #error = '';
  #ask = /** @type {{packages: Package[], answer: (agrees: boolean) => void}|null} */ (null);
  #of = /** @type {{python: ChatPython, fixes: number}|null} */ (null);
  #code = '';

  /** @param {{element: HTMLElement, text: string}} figure @param {HTMLElement} control @param {import('./opener.js').Page} page */
  constructor(figure, control, page) {
    this.#figure = figure;
    this.#control = control;
    this.#page = page;
  }

  async begin() {
    if (running) {
      this.#error = t('python.busy');
      return this.#show();
    }
    running = this;
    this.isRunning = true;
    this.#outputs = [];
    this.#error = '';
    this.#state = t('python.starting');
    this.#code = this.#figure.text;
    this.#show();
    try {
      this.#of = pythonOf(this.#page);
      await this.#run(this.#of.python);
    } catch (error) {
      this.#error = describe(fromError(error)).message;
    } finally {
      running = null;
      this.isRunning = false;
      this.#state = this.#outputs.length || this.#error ? '' : t('python.silent');
      this.#ask = null;
      this.#show();
    }
  }

  /** @param {ChatPython} python */
  async #run(python, extra = '') {
    const agree = (packages) => new Promise((resolve) => {
      this.#ask = { packages, answer: resolve };
      this.#state = '';
      this.#show();
    }).then((agrees) => {
      this.#ask = null;
      this.#state = t(agrees ? 'python.loading' : 'python.running');
      this.#show();
      return agrees;
    });
    const onOutput = (/** @type {Output} */ output) => {
      this.#state = t('python.running');
      this.#add(output);
      this.#show();
    };
    const outputs = await python.run(extra + this.#code, { onOutput, agree });
    if (outputs === null) {
      this.#error = t('python.notLoadedPackages');
      return;
    }
    const lacks = extra ? null : await python.lacked(outputs);
    if (lacks) {
      this.#outputs = [];
      return this.#run(python, `import ${lacks}; `);
    }
    if (this.#of && !outputs.some(({ type }) => type === 'error')) this.#of.fixes = 0;
  }

  stop() {
    if (this.#ask) this.#ask.answer(false);
    else this.#of?.python.stop();
  }

  /** @param {Output} output */
  #add(output) {
    const last = this.#outputs.at(-1);
    if (output.type === 'text' && last?.type === 'text' && last.stream === output.stream) last.text += output.text;
    else if (this.#outputs.length < MOST_OUTPUTS) this.#outputs.push({ ...output });
  }

  #show() {
    this.#control.querySelector('span')?.replaceChildren(t(this.isRunning ? 'python.stop' : 'python.run'));
    this.#control.querySelector('use')?.setAttribute('href', iconAddress(this.isRunning ? 'square' : 'play'));
    this.#control.dataset.running = String(this.isRunning);
    render(html`
      <p class="python-state" role="status">${this.#state}</p>
      ${this.#ask ? this.#question(this.#ask) : nothing}
      ${this.#outputs.map((output) => this.#output(output))}
      <p class="python-problem" role="alert">${this.#error}</p>
      ${this.isRunning ? nothing : this.#fix()}`, this.#root);
    if (!this.#root.isConnected) this.#figure.element.append(this.#root);
  }

  /** @param {{packages: Package[], answer: (agrees: boolean) => void}} asked */
  #question({ packages, answer }) {
    const bytes = packages.reduce((sum, one) => sum + one.bytes, 0);
    return html`<div class="python-question" role="group" aria-label=${t('python.packages')}>
      <p>${t('python.asks', { size: formatBytes(bytes) })}</p>
      <ul>${packages.map(({ name, version, bytes: size }) => html`<li>${name} ${version}, ${formatBytes(size)}</li>`)}</ul>
      ${button(t('python.load'), 'primary', () => answer(true))} ${button(t('python.doNotLoad'), 'quiet', () => answer(false))}
    </div>`;
  }

  /** @param {Output} output */
  #output(output) {
    if (output.type === 'text') return html`<pre class="python-text" data-stream=${output.stream} tabindex="0" dir="ltr">${output.text}</pre>`;
    if (output.type === 'value') return html`<pre class="python-text" tabindex="0" dir="ltr">${output.text}</pre>`;
    if (output.type === 'cut') return html`<p class="python-note">${t('python.cut', { count: output.most })}</p>`;
    if (output.type === 'table') return table(output);
    if (output.type === 'picture') return picture(output.data);
    if (output.type === 'error') return failure(output);
    return html`<div class="python-files">${output.files.map(([name, size]) => html`
      <button type="button" class="quiet" @click=${() => this.#save(name)}>${icon('download')}<span>${t('python.save', { name, size: formatBytes(size) })}</span></button>`)}</div>`;
  }

  async #save(name) {
    try {
      const bytes = await this.#of?.python.read(name);
      if (bytes) saveFile(new Blob([bytes]), name.split('/').at(-1) ?? name);
    } catch (error) {
      this.#error = error.stack ? t('python.fileGone', { name }) : error.message;
      this.#show();
    }
  }

  /** A way to ask the model about an error. */
  #fix() {
    const error = this.#outputs.find(({ type }) => type === 'error');
    if (error?.type !== 'error' || !this.#of || error.reason === 'stopped') return nothing;
    if (this.#of.fixes >= MOST_FIXES) return html`<p class="python-note">${t('python.fixedOften', { count: MOST_FIXES })}</p>`;
    return html`<p>${button(t('python.fix'), 'quiet', () => this.#askForFix(error))}</p>`;
  }

  #askForFix(error) {
    if (this.#of) this.#of.fixes += 1;
    const fence = '`'.repeat(3 + (/`{3,}/.test(this.#code) ? 3 : 0));
    const lines = error.lines.map(([line, text]) => (line ? `${t('python.line', { line: String(line) })} ${text}` : text));
    const words = [...lines, titleOf(error), sentenceOf(error)].filter(Boolean).join('\n');
    this.#page.ask(`${t('python.fixMessage')}\n\n${fence}python\n${this.#code.trimEnd()}\n${fence}\n\n${fence}text\n${words}\n${fence}`);
    this.#show();
  }
}

const REASONS = new Set(['browser', 'died', 'disk', 'input', 'lost', 'memory', 'module', 'network', 'process', 'recursion', 'stopped', 'time']);

const titleOf = ({ kind, message }) => [kind, message].filter(Boolean).join(': ');
const sentenceOf = ({ reason }) => (REASONS.has(reason) ? t(`python.reason_${reason}`) : '');

function failure(error) {
  return html`<div class="python-error" role="group" aria-label=${t('python.error')}>
    ${error.lines.map(([line, text]) => html`<p>${line ? html`<span>${t('python.line', { line: String(line) })}</span> ` : nothing}<code>${text}</code></p>`)}
    ${titleOf(error) ? html`<p class="python-kind">${titleOf(error)}</p>` : nothing}
    ${sentenceOf(error) ? html`<p>${sentenceOf(error)}</p>` : nothing}
  </div>`;
}

function table({ columns, numeric, rows, row_count: count, column_count: width }) {
  const isCut = count > rows.length || width > columns.length;
  return html`<div class="table-box" tabindex="0" role="group" aria-label=${t('python.table')}><table>
    <thead><tr>${columns.map((name, at) => html`<th scope="col" data-number=${String(Boolean(numeric[at]))}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell, at) => html`<td data-number=${String(Boolean(numeric[at]))}>${cell}</td>`)}</tr>`)}</tbody>
  </table></div>${isCut ? html`<p class="python-note">${t('python.tableCut', { shown: rows.length, count, columns: width })}</p>` : nothing}`;
}

function picture(data) {
  const save = () => saveFile(new Blob([Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0))], { type: 'image/png' }), 'figure.png');
  return html`<div class="python-picture"><img alt=${t('python.picture')} src=${`data:image/png;base64,${data}`}>
    <button type="button" class="quiet" @click=${save}>${icon('download')}<span>${t('python.savePicture')}</span></button></div>`;
}
