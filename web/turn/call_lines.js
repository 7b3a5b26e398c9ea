/** The calls of tools in an answer: a line each, which opens to show the result. */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { cut } from '../common/cut.js';
import { button, element } from '../common/dom.js';
import { describe, fromError } from '../shell/problems.js';
import { takeViews } from '../tools/call_views.js';
import { t } from '../i18n/i18n.js';

/**
 * @typedef {{id: string, name: string, arguments: Record<string, any>, state: 'running'|'done'|'failed'|'again', result: string,
 *   again: string, view: HTMLElement|null, leave: () => void}} Call `view`: what it shows below its line; `leave`: take no more of it
 */

export class CallLines {
  element = element('div', 'calls');
  #calls = /** @type {Call[]} */ ([]);
  #conversation;
  #onDraw;

  /** @param {import('../protocol_calls.js').ConversationCalls} conversation @param {() => void} onDraw */
  constructor(conversation, onDraw) {
    this.#conversation = conversation;
    this.#onDraw = onDraw;
  }

  /** @param {import('../protocol.js').ToolCalled} called */
  called({ id, name, arguments: given }) {
    const call = /** @type {Call} */ ({ id, name, arguments: given, state: 'running', result: '', again: '', view: null, leave: () => {} });
    this.#calls.push(call);
    this.#takeView(call);
    this.#draw();
  }

  /** @param {import('../protocol.js').ToolReturned} returned */
  returned({ id, result, failed }) {
    const call = this.#calls.findLast((one) => one.id === id);
    if (call) Object.assign(call, { result, state: failed ? 'failed' : 'done' });
    call?.leave();
    this.#draw();
  }

  /** @param {Call} call */
  #takeView(call) {
    call.leave = takeViews(call.name, call.arguments, (view) => {
      call.view = view;
      this.#draw();
    });
  }

  /** No call runs any more. */
  end() {
    for (const call of this.#calls.filter(({ state }) => state === 'running')) {
      Object.assign(call, { state: 'failed', result: t('calls.stopped') });
      call.leave();
    }
    this.#draw();
  }

  /** Run a finished call again. The answer stays as it is. @param {Call} call */
  async #again(call) {
    const { state } = call;
    Object.assign(call, { state: 'again', again: '', view: null });
    this.#takeView(call);
    this.#draw();
    try {
      const { result, failed } = await this.#conversation.callTool({ name: call.name, given: call.arguments });
      call.again = failed ? `${t('calls.failed')}: ${result}` : result;
    } catch (error) {
      call.again = describe(fromError(error)).message;
    }
    call.state = state;
    call.leave();
    this.#draw();
  }

  #draw() {
    render(repeat(this.#calls, ({ id }) => id, (call) => this.#line(call)), this.element);
    this.#onDraw();
  }

  /** @param {Call} call */
  #line(call) {
    const runs = call.state === 'running' || call.state === 'again';
    const given = Object.entries(call.arguments).map(([name, value]) => `${name}: ${cut(JSON.stringify(value))}`).join(', ');
    const texts = Object.values(call.arguments).filter((value) => typeof value === 'string' && value.includes('\n')); // code
    return html`<details class="call" data-state=${call.state}>
      <summary><span class="call-name">${call.name}</span> <span class="call-given" dir="ltr">${given}</span>
        <span class="call-state" role="status">${runs ? t('calls.running') : call.state === 'failed' ? t('calls.failed') : nothing}</span></summary>
      ${texts.map((text) => html`<pre class="call-text" tabindex="0" dir="ltr">${text}</pre>`)}
      <pre tabindex="0" dir="auto">${call.result}</pre>
      ${call.again ? html`<p>${t('calls.again')}</p><pre tabindex="0" dir="auto">${call.again}</pre>` : nothing}
      ${runs ? nothing : button(t('calls.run'), 'quiet', () => this.#again(call))}
    </details>${call.view ?? nothing}${runs ? button(t('calls.stop'), 'quiet', () => this.#conversation.stop()) : nothing}`;
  }
}
