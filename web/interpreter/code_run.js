/** A run of code in the conversation's Python, and what it shows: from the first word to the files that it wrote. */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { button, element } from '../common/dom.js';
import { icon } from '../common/icon.js';
import { formatBytes } from '../common/format.js';
import { saveFile } from '../common/file_download.js';
import { userError } from '../common/user_error.js';
import { describe, fromError } from '../shell/problems.js';
import { t } from '../i18n/i18n.js';
import { ChatPython } from './chat_python.js';

const MOST_OUTPUTS = 300;

/** @typedef {import('./interpreter.js').Output} Output */
/** @typedef {import('./chat_python.js').Package} Package */
/** @typedef {{opening: number, python: ChatPython, fixes: number}} Chat `fixes`: questions to the model about errors, in a row */

let chat = /** @type {Chat|null} */ (null);
let running = /** @type {CodeRun|null} */ (null);

/** The Python of the conversation on the page: one at a time. @param {import('./opener.js').Page} page */
function pythonOf(page) {
  const { opening } = page.chat();
  if (chat?.opening !== opening) {
    chat?.python.end();
    chat = { opening, python: new ChatPython(page), fixes: 0 };
  }
  return chat;
}

/**
 * Install a wheel into the Python of the conversation on the page. @param {import('./opener.js').Page} page
 * @param {Uint8Array<ArrayBuffer>} wheel @returns {Promise<string>} "", or why it cannot be. Rejects with a sentence
 */
export async function installWheel(page, wheel) {
  if (running) throw userError('PythonError', t('python.busy'));
  return pythonOf(page).python.installWheel(wheel);
}

/** The question whether to load packages. @param {{packages: Package[], answer: (agrees: boolean) => void}} asked */
export function packagesQuestion({ packages, answer }) {
  const bytes = packages.reduce((sum, one) => sum + one.bytes, 0);
  return html`<div class="python-question" role="group" aria-label=${t('python.packages')}>
    <p>${t('python.asks', { size: formatBytes(bytes) })}</p>
    <ul>${packages.map(({ name, version, bytes: size }) => html`<li>${name} ${version}, ${formatBytes(size)}</li>`)}</ul>
    ${button(t('python.load'), 'primary', () => answer(true))} ${button(t('python.doNotLoad'), 'quiet', () => answer(false))}
  </div>`;
}

export class CodeRun {
  root = element('div', 'python-run');
  isRunning = false;
  outputs = /** @type {Output[]} */ ([]);
  of = /** @type {Chat|null} */ (null); // whose Python runs it
  #page;
  #onShow;
  #more;
  #state = '';
  #error = '';
  #ask = /** @type {{packages: Package[], answer: (agrees: boolean) => void}|null} */ (null);

  /**
   * @param {import('./opener.js').Page} page
   * @param {{onShow?: () => void, more?: () => unknown}} [view] onShow: what is shown has changed. more: a template below an ended run
   */
  constructor(page, { onShow = () => {}, more = () => nothing } = {}) {
    this.#page = page;
    this.#onShow = onShow;
    this.#more = more;
  }

  /**
   * Run code. It never rejects: `problem` is a sentence on why the code did not run. @param {string} code
   * @returns {Promise<{outputs: Output[], problem: string}>}
   */
  async begin(code) {
    if (running) {
      this.#error = t('python.busy');
      this.show();
      return { outputs: [], problem: this.#error };
    }
    running = this;
    this.isRunning = true;
    this.outputs = [];
    this.#error = '';
    this.#state = t('python.starting');
    this.show();
    let outputs = /** @type {Output[]} */ ([]);
    try {
      this.of = pythonOf(this.#page);
      outputs = await this.#run(this.of.python, code);
    } catch (error) {
      this.#error = describe(fromError(error)).message;
    } finally {
      running = null;
      this.isRunning = false;
      this.#state = this.outputs.length || this.#error ? '' : t('python.silent');
      this.#ask = null;
      this.show();
    }
    return { outputs, problem: this.#error };
  }

  /** @param {ChatPython} python @param {string} code @returns {Promise<Output[]>} */
  async #run(python, code, isSecond = false) {
    const agree = (packages) => new Promise((resolve) => {
      this.#ask = { packages, answer: resolve };
      this.#state = '';
      this.show();
    }).then((agrees) => {
      this.#ask = null;
      this.#state = t(agrees ? 'python.loading' : 'python.running');
      this.show();
      return agrees;
    });
    const onOutput = (/** @type {Output} */ output) => {
      this.#state = t('python.running');
      this.#add(output);
      this.show();
    };
    const outputs = await python.run(code, { onOutput, agree });
    if (outputs === null) {
      this.#error = t('python.notLoadedPackages');
      return [];
    }
    const lacks = isSecond ? null : await python.lacked(outputs);
    if (lacks) {
      this.outputs = [];
      return this.#run(python, `import ${lacks}; ${code}`, true);
    }
    if (this.of && !outputs.some(({ type }) => type === 'error')) this.of.fixes = 0;
    return outputs;
  }

  stop() {
    if (this.#ask) this.#ask.answer(false);
    else if (this.isRunning) this.of?.python.stop();
  }

  /** @param {Output} output */
  #add(output) {
    const last = this.outputs.at(-1);
    if (output.type === 'text' && last?.type === 'text' && last.stream === output.stream) last.text += output.text;
    else if (this.outputs.length < MOST_OUTPUTS) this.outputs.push({ ...output });
  }

  show() {
    render(html`
      <p class="python-state" role="status">${this.#state}</p>
      ${this.#ask ? packagesQuestion(this.#ask) : nothing}
      ${this.outputs.map((output) => this.#output(output))}
      <p class="python-problem" role="alert">${this.#error}</p>
      ${this.isRunning ? nothing : this.#more()}`, this.root);
    this.#onShow();
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
      const bytes = await this.of?.python.read(name);
      if (bytes) saveFile(new Blob([bytes]), name.split('/').at(-1) ?? name);
    } catch (error) {
      this.#error = error.stack ? t('python.fileGone', { name }) : error.message;
      this.show();
    }
  }
}

const REASONS = new Set(['browser', 'died', 'disk', 'input', 'lost', 'memory', 'module', 'network', 'process', 'recursion', 'stopped', 'time']);

export const titleOf = ({ kind, message }) => [kind, message].filter(Boolean).join(': ');
export const sentenceOf = ({ reason }) => (REASONS.has(reason) ? t(`python.reason_${reason}`) : '');

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
