/**
 * Packages for the Python of the conversation, from files: wheels of pure Python that the user drops or attaches. The page's
 * policy has no host to load packages from. They stay as long as the chat is open, as variables do.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { button, element } from '../common/dom.js';
import { formatBytes } from '../common/format.js';
import { iconButton } from '../common/icon.js';
import { t } from '../i18n/i18n.js';
import { installWheel } from '../interpreter/code_run.js';
import { describe, fromError } from '../shell/problems.js';

const MOST_BYTES = 64e6;
const NAME = /^([\w.]+)-([\w.!+]+)(?:-\d\w*)?-[\w.]+-none-any\.whl$/i;

/** @typedef {{name: string, version: string, size: number, sha256: string, bytes: Uint8Array<ArrayBuffer>, state: 'asks'|'comes'|'there', problem: string}} Wheel */

export class Wheels {
  #root = element('div', 'wheels');
  #page;
  #opening = -1; // of the conversation whose wheels are shown
  #wheels = /** @type {Wheel[]} */ ([]);

  /** @param {HTMLElement} before @param {import('../interpreter/opener.js').Page} page */
  constructor(before, page) {
    before.before(this.#root);
    this.#page = page;
  }

  /** Ask whether to install wheels. @param {File[]} files */
  async ask(files) {
    this.follow();
    for (const file of files) {
      const [, name, version] = NAME.exec(file.name) ?? [];
      if (!name || file.size > MOST_BYTES) {
        this.#page.say(t(name ? 'wheel.large' : 'wheel.reason_broken', { name: file.name, size: formatBytes(MOST_BYTES) }));
        continue;
      }
      const bytes = new Uint8Array(await file.arrayBuffer());
      const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
      const sha256 = Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
      if (this.#wheels.some((one) => one.sha256 === sha256)) continue;
      this.#wheels.push({ name: name.replaceAll('_', '-'), version, size: file.size, sha256, bytes, state: 'asks', problem: '' });
    }
    this.#draw();
  }

  /** Another conversation on the page has another Python. */
  follow() {
    const { opening } = this.#page.chat();
    if (opening === this.#opening) return;
    this.#opening = opening;
    this.#wheels = [];
    this.#draw();
  }

  /** @param {Wheel} wheel */
  async #install(wheel) {
    Object.assign(wheel, { state: 'comes', problem: '' });
    this.#draw();
    try {
      const why = await installWheel(this.#page, wheel.bytes);
      wheel.problem = why && t(`wheel.reason_${why}`, { name: wheel.name });
    } catch (error) {
      wheel.problem = describe(fromError(error)).message;
    }
    wheel.state = wheel.problem ? 'asks' : 'there';
    this.#draw();
  }

  /** @param {Wheel} wheel */
  #leave(wheel) {
    this.#wheels = this.#wheels.filter((one) => one !== wheel);
    this.#draw();
  }

  #draw() {
    render(repeat(this.#wheels, ({ sha256 }) => sha256, (wheel) => this.#view(wheel)), this.#root);
  }

  /** @param {Wheel} wheel */
  #view(wheel) {
    const { name, version, size, sha256, state, problem } = wheel;
    return html`<section class="tool-file" aria-label=${t('wheel.title', { name })}>
      <header><p><strong>${name} ${version}</strong> <span>${formatBytes(size)}</span></p>${iconButton('x', t('toolFile.close'), () => this.#leave(wheel))}</header>
      ${state === 'there' ? nothing : html`<p>${t('wheel.about')}</p><p class="tool-file-sum">${t('toolFile.sum', { sum: sha256 })}</p>`}
      <p role="status">${state === 'comes' ? t('wheel.comes') : state === 'there' ? t('wheel.there') : ''}</p>
      <p class="python-problem" role="alert">${problem}</p>
      ${state === 'asks' ? html`<div class="tool-file-answers">${button(t('wheel.install'), 'primary', () => this.#install(wheel))}
        ${button(t('wheel.doNotInstall'), 'quiet', () => this.#leave(wheel))}</div>` : nothing}
    </section>`;
  }
}
