/**
 * Files of tools among the files of the conversation: Python with functions that the model may call once the user agrees
 * (decision 0118). Each runs in a Python of its own, apart from the page (decision 0116), as long as the file is there.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { button, element } from '../common/dom.js';
import { iconButton } from '../common/icon.js';
import { local } from '../common/web_storage.js';
import { t } from '../i18n/i18n.js';
import { unpacked } from '../engine/packed_files.js';
import { ChatPython } from '../interpreter/chat_python.js';
import { packagesQuestion } from '../interpreter/code_run.js';
import { part } from '../interpreter/interpreter.js';
import { describe, fromError } from '../shell/problems.js';

const ANSWERS = 'sonata.tool-files'; // {sha256: whether its tools may be used}
const CALLS = 'tools.calls'; // app/generation/answer_settings.py
const SECONDS = 600; // of a call: it may have to start Python, and to ask about packages
const LOOKS = /^from app\.tools(\.functions)? import /m;

/** @typedef {{id: string, name: string}} File */
/** @typedef {{name: string, about: string, needs: string[]}} Declared of app/tools/dropped_file.py */
/**
 * @typedef {{engine: () => import('../engine/engine.js').Engine, tools: import('../tools/page_tools.js').PageTools,
 *   onChange: () => void, say: (sentence: string) => void}} Page onChange: what `has` says has changed
 */

const answers = () => /** @type {Record<string, boolean>} */ (JSON.parse(local.getItem(ANSWERS) ?? '{}'));

/** The files of tools of the conversation on the page. */
export class ToolFiles {
  #root = element('div', 'tool-files');
  #page;
  #files = /** @type {Map<string, ToolFile|null>} */ (new Map()); // by id; null: a plain file

  /** @param {HTMLElement} before the questions stand before it @param {Page} page */
  constructor(before, page) {
    before.before(this.#root);
    this.#page = page;
  }

  /** True if a file has tools. @param {string} id */
  has(id) {
    return Boolean(this.#files.get(id));
  }

  /** Show the question about a file again. @param {string} id */
  open(id) {
    this.#files.get(id)?.open();
  }

  /** The files of the conversation on the page are these. @param {string|null} chat @param {File[]} files */
  sync(chat, files) {
    for (const [id, file] of this.#files) {
      if (files.some((one) => one.id === id)) continue;
      file?.end();
      this.#files.delete(id);
    }
    for (const { id, name } of files.filter((one) => !this.#files.has(one.id) && /\.py$/i.test(one.name))) {
      this.#files.set(id, null);
      this.#look(chat, { id, name });
    }
    this.#draw();
  }

  /** @param {string|null} chat @param {File} file */
  async #look(chat, { id, name }) {
    const text = await this.#page.engine().files.text({ id }).catch(() => null);
    if (text === null) this.#files.delete(id); // the memory is closed: the next look may succeed
    if (text === null || !LOOKS.test(text) || !this.#files.has(id)) return;
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)));
    const sha256 = Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
    const made = new ToolFile({ id, name, chat, text, sha256 }, this.#page, () => this.#draw());
    const hasTools = await made.begin().catch((error) => this.#page.say(describe(fromError(error)).message));
    if (!hasTools || !this.#files.has(id)) return made.end();
    this.#files.set(id, made);
    this.#draw();
    this.#page.onChange();
  }

  #draw() {
    render([...this.#files.values()].map((file) => file?.view() ?? nothing), this.#root);
  }
}

/** A file whose tools the model may call, if the user agrees. */
class ToolFile {
  #of;
  #page;
  #draw;
  #isOpen = false;
  #isUsed = false;
  #state = ''; // a sentence
  #problem = '';
  #ask = /** @type {{packages: import('../interpreter/chat_python.js').Package[], answer: (agrees: boolean) => void}|null} */ (null);
  #declared = /** @type {Declared[]} */ ([]);
  #python;
  #loaded = /** @type {import('../interpreter/interpreter.js').Interpreter|null} */ (null); // the one that has the tools
  #last = /** @type {Promise<unknown>} */ (Promise.resolve()); // its calls run one after the other

  /**
   * @param {{id: string, name: string, chat: string|null, text: string, sha256: string}} of @param {Page} page
   * @param {() => void} draw
   */
  constructor(of, page, draw) {
    this.#of = of;
    this.#page = page;
    this.#draw = draw;
    // A file that declares no files gets none of the conversation's.
    const chat = () => ({ opening: 0, id: this.#declared.some(({ needs }) => needs.some((need) => need.startsWith('file:'))) ? of.chat : null });
    this.#python = new ChatPython({ engine: page.engine, chat, ask: () => {}, say: () => {} });
  }

  /** Read what the file declares, without running it. @returns {Promise<boolean>} false if it has no tools */
  async begin() {
    const python = await this.#with(await this.#python.prepare('', async () => false));
    const found = await python.tools('declared', this.#of.text);
    this.#declared = (Array.isArray(found) ? found : []).filter(({ name, about, needs }) => typeof name === 'string'
      && typeof about === 'string' && Array.isArray(needs) && needs.every((need) => typeof need === 'string'));
    if (!this.#declared.length) return false;
    const answer = answers()[this.#of.sha256];
    this.#isOpen = answer === undefined;
    if (answer === false) this.#python.end();
    else if (answer && await this.#mayCall()) await this.#offer();
    return true;
  }

  open() {
    this.#isOpen = !this.#isOpen;
    this.#draw();
  }

  /** The file is gone from the page. */
  end() {
    this.#ask?.answer(false);
    this.#page.tools.withdraw(this.#source).catch(() => {});
    this.#python.end();
  }

  get #source() {
    return `file:${this.#of.id}`;
  }

  async #mayCall() {
    const policies = await this.#page.engine().memory.policies();
    return policies.some(({ name, value }) => name === CALLS && value === true);
  }

  /** @param {import('../interpreter/interpreter.js').Interpreter|null} python @returns {Promise<import('../interpreter/interpreter.js').Interpreter>} with the modules that tools need */
  async #with(python) {
    if (!python) throw Object.assign(new Error(t('python.notLoadedPackages')), { stack: '' });
    if (python !== this.#ready) await python.install([await unpacked(new Response(await part('interpreter/tools.packed')))]);
    this.#ready = python;
    return python;
  }

  #ready = /** @type {import('../interpreter/interpreter.js').Interpreter|null} */ (null);

  /** The user agrees. */
  async #use() {
    local.setItem(ANSWERS, JSON.stringify({ ...answers(), [this.#of.sha256]: true }));
    this.#state = t('toolFile.starting');
    this.#draw();
    if (!await this.#mayCall()) await this.#page.engine().memory.editPolicy({ name: CALLS, value: true });
    await this.#offer();
    this.#isOpen = this.#problem !== '';
    this.#draw();
  }

  #refuse() {
    local.setItem(ANSWERS, JSON.stringify({ ...answers(), [this.#of.sha256]: false }));
    this.#page.tools.withdraw(this.#source).catch(() => {});
    this.#python.end();
    this.#isOpen = this.#isUsed = false;
    this.#draw();
  }

  async #offer() {
    this.#problem = '';
    try {
      const { definitions } = await this.#load();
      await this.#page.tools.offer(this.#source, definitions, (name, given, signal, show) => this.#inTurn(name, given, signal, show), SECONDS);
      this.#isUsed = true;
    } catch (error) {
      this.#problem = describe(fromError(error)).message;
      this.#isOpen = true;
    }
    this.#state = '';
    this.#draw();
  }

  /** Run the file, unless its Python has it. */
  async #load() {
    const { name, text } = this.#of;
    const python = await this.#with(await this.#python.prepare(text, (packages) => this.#agree(packages)));
    if (python === this.#loaded) return { python, definitions: [] };
    const file = name.replaceAll('/', '_');
    await python.put(file, new TextEncoder().encode(text));
    const found = await python.tools('load', file);
    if (!Array.isArray(found?.tools)) throw Object.assign(new Error(String(found?.problem ?? t('python.notStarted'))), { stack: '' });
    this.#loaded = python;
    return { python, definitions: found.tools };
  }

  #agree(packages) {
    return new Promise((resolve) => {
      this.#isOpen = true;
      this.#ask = { packages, answer: resolve };
      this.#draw();
    }).then((agrees) => {
      this.#ask = null;
      this.#draw();
      return agrees;
    });
  }

  /** @returns {Promise<import('../tools/page_tools.js').Result>} */
  #inTurn(name, given, signal, _show) {
    const result = this.#last.then(() => this.#call(name, given, signal));
    this.#last = result.catch(() => {});
    return result;
  }

  async #call(name, given, signal) {
    if (signal.aborted) return { failed: t('calls.stopped') };
    const { python } = await this.#load();
    const stop = () => python.stop();
    signal.addEventListener('abort', stop);
    try {
      const { text, failed } = await python.tools('call', name, JSON.stringify(given)) ?? {};
      return typeof text === 'string' ? { text } : { failed: typeof failed === 'string' ? failed : t('python.reason_died') };
    } catch {
      return { failed: `${t('python.reason_died')} ${t('python.reason_lost')}` };
    } finally {
      signal.removeEventListener('abort', stop);
    }
  }

  view() {
    if (!this.#isOpen) return nothing;
    const { name, sha256 } = this.#of;
    const needs = this.#declared.flatMap((one) => one.needs);
    const hosts = [...new Set(needs.filter((need) => need.startsWith('host:')).map((need) => need.slice(5)))];
    const files = needs.some((need) => need.startsWith('file:'));
    return html`<section class="tool-file" aria-label=${t('toolFile.of', { name })}>
      <header><p><strong>${name}</strong> <span>${t('toolFile.count', { count: this.#declared.length })}</span></p>
        ${iconButton('x', t('toolFile.close'), () => this.open())}</header>
      <div class="tool-file-about" tabindex="0" role="group" aria-label=${t('toolFile.of', { name })}>
      <p>${t('toolFile.about')}</p>
      <ul>${this.#declared.map((one) => html`<li><code>${one.name}</code> ${one.about}</li>`)}</ul>
      ${hosts.length ? html`<p>${t('toolFile.hosts', { hosts: hosts.join(', ') })}</p>` : nothing}
      <p>${t(files ? 'toolFile.files' : 'toolFile.noFiles')}</p>
      <p class="tool-file-sum">${t('toolFile.sum', { sum: sha256 })}</p>
      ${this.#ask ? packagesQuestion(this.#ask) : nothing}
      </div>
      <p role="status">${this.#state}</p>
      <p class="python-problem" role="alert">${this.#problem}</p>
      ${this.#ask || this.#state ? nothing : html`<div class="tool-file-answers">
        ${this.#isUsed ? nothing : button(t('toolFile.use'), 'primary', () => this.#use())}
        ${button(t(this.#isUsed ? 'toolFile.stop' : 'toolFile.doNotUse'), 'quiet', () => this.#refuse())}</div>`}
    </section>`;
  }
}
