/** Settings, Answers: the tool servers of the user, with their tools. What a server says is shown as text. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { live } from '../../vendor/lit-html/directives/live.js';
import { repeat } from '../../vendor/lit-html/directives/repeat.js';
import { askingButton } from '../../common/confirmation.js';
import { element, ProblemLine } from '../../common/dom.js';
import { loadStyles } from '../../common/page_files.js';
import { SectionForm } from '../../common/section_form.js';
import { t } from '../../i18n/i18n.js';
import { toolServers } from '../../mcp/opener.js';

const MAY = { ask: undefined, yes: true, no: false };

/** @typedef {import('../../mcp/servers.js').Server} Server */

export class ToolServersSection {
  element = element('section', 'tool-servers');
  #servers = /** @type {import('../../mcp/servers.js').ToolServers|null} */ (null);
  #problem = new ProblemLine();
  #busy = ''; // the url of a server that is connected to again
  #form = this.#newForm();

  async show() {
    this.#form = this.#newForm(); // without an earlier outcome
    this.#form.show(html`
      <label class="field"><span>${t('toolServers.address')}</span>
        <input name="address" type="text" inputmode="url" placeholder=${t('toolServers.addressExample')} autocomplete="off" autocapitalize="off" spellcheck="false" required></label>
      <label class="field"><span>${t('toolServers.token')}</span>
        <input name="token" type="password" autocomplete="off" aria-describedby="tool-token-about">
        <small id="tool-token-about">${t('toolServers.tokenAbout')}</small></label>`);
    await this.#try(async () => {
      [this.#servers] = await Promise.all([toolServers(), loadStyles('panels/settings/tool_servers.css')]);
    });
  }

  #newForm() {
    return new SectionForm(t('toolServers.connect'), (typed) => this.#add(typed));
  }

  /** @param {Record<string, string>} typed */
  async #add({ address, token }) {
    const added = await this.#servers?.add(address, token.trim());
    this.#draw();
    if (!added) return '';
    for (const name of ['address', 'token']) this.#form.input(name).value = '';
    return t('toolServers.connected', { count: added.tools.length });
  }

  #draw() {
    const list = this.#servers?.list ?? [];
    render(html`
      <h3>${t('toolServers.title')}</h3>
      <p class="panel-lead">${t('toolServers.lead')}</p>
      ${list.length ? html`<ul aria-label=${t('toolServers.title')}>${repeat(list, ({ url }) => url, (server) => this.#row(server))}</ul>` : nothing}
      ${this.#problem.element}
      ${this.#servers ? this.#form.element : nothing}`, this.element);
  }

  /** @param {Server} server */
  #row({ url, tools, leftOut }) {
    const { host, pathname } = new URL(url);
    const again = () => this.#try(async () => {
      this.#busy = url;
      this.#draw();
      await this.#servers?.add(url).finally(() => { this.#busy = ''; });
    });
    const remove = { label: t('toolServers.remove'), question: t('toolServers.removeAsked', { host }), yes: t('toolServers.remove') };
    return html`<li>
      <div class="tool-server"><strong dir="ltr">${host}${pathname}</strong>
        <button type="button" class="quiet" aria-label=${`${t('toolServers.again')} ${host}`} ?disabled=${this.#busy === url} @click=${again}>${t('toolServers.again')}</button>
        ${askingButton({ ...remove, run: () => this.#try(async () => this.#servers?.remove(url)) })}</div>
      <details><summary>${t('toolServers.count', { count: tools.length })}</summary>
        ${leftOut ? html`<small>${t('toolServers.leftOut', { count: leftOut })}</small>` : nothing}
        <ul>${repeat(tools, ({ name }) => name, (tool) => this.#tool(url, tool))}</ul>
      </details></li>`;
  }

  /** @param {string} url @param {import('../../mcp/servers.js').Tool} tool */
  #tool(url, { name, as, description, may }) {
    const chosen = Object.keys(MAY).find((key) => MAY[key] === may);
    const choose = ({ target }) => this.#try(async () => this.#servers?.allow(url, name, MAY[target.value]));
    return html`<li>
      <label><code dir="ltr">${as}</code><select aria-label=${t('toolServers.mayCall', { tool: as })} @change=${choose}>
        ${Object.keys(MAY).map((key) => html`<option value=${key} .selected=${live(key === chosen)}>${t(`toolServers.may_${key}`)}</option>`)}</select></label>
      <small dir="auto">${description}</small></li>`;
  }

  async #try(run) {
    this.#problem.say(null);
    try {
      await run();
    } catch (error) {
      this.#problem.say(error);
    }
    this.#draw();
  }
}
