/**
 * The user's tool servers: their list, which this browser keeps with the tools of each, and their calls. A server is connected
 * to when it is added and with the first call of a tool, not at the page's start.
 */
import * as Comlink from '../vendor/comlink.mjs';
import { ask } from '../common/confirmation.js';
import { visible } from '../common/cut.js';
import '../common/error_transfer.js';
import { message } from '../common/message.js';
import { ownScript } from '../common/own_script.js';
import { userError } from '../common/user_error.js';
import { local, session } from '../common/web_storage.js';
import { t } from '../i18n/i18n.js';
import { KEPT, tellPrivacy } from './opener.js';
import { isObject } from './told.js';

const TOKENS = 'sonata.tool-tokens'; // in sessionStorage, by the url
const SECONDS = 240; // of a call: the server has a minute (client.js), the rest is for the user's answer
const MOST_SERVERS = 20;
const LONGEST_NAME = 64; // py_core/tool_calls/definitions.py
const LONGEST_SHOWN = 400; // characters of the arguments in the question
const ADDRESS = /^(https:\/\/|http:\/\/(localhost|127\.0\.0\.1)(:|\/|$))/;

/**
 * as: the name that the model gets; may: whether answers may call it, undefined if the user has not said
 * @typedef {import('./told.js').ServerTool & {as: string, may?: boolean}} Tool
 * @typedef {{url: string, name: string, tools: Tool[], leftOut: number}} Server
 */

export class ToolServers {
  #offers;
  #remote = /** @type {any} */ (null);
  #last = 0; // the number of the last call

  /** @param {import('../tools/page_tools.js').PageTools} offers */
  constructor(offers) {
    this.#offers = offers;
    for (const server of this.list) this.#offer(server).catch(() => {}); // Settings lists it
  }

  /** @returns {Server[]} */
  get list() {
    try {
      const kept = JSON.parse(local.getItem(KEPT) ?? '[]');
      return Array.isArray(kept) ? kept.filter(isServer) : [];
    } catch {
      return []; // something else changed it
    }
  }

  /**
   * Add a server, or connect to one again. Rejects with a userError if it does not answer.
   * @param {string} address @param {string} token "" for none, or for the one that was given in this tab
   * @returns {Promise<Server|null>} null if the user does not agree
   */
  async add(address, token = '') {
    const url = addressOf(address);
    const old = this.list.find((one) => one.url === url);
    if (!old && this.list.length >= MOST_SERVERS) throw userError('ToolServerError', t('toolServers.tooMany', { most: MOST_SERVERS }));
    const { host } = new URL(url);
    if (!old && !await ask({
      title: t('toolServers.askTitle', { host }), paragraphs: [t('toolServers.askWhat', { host })], yes: t('toolServers.connect'), isHarmless: true,
    })) return null;
    if (token) session.setItem(TOKENS, JSON.stringify({ ...tokens(), [url]: token }));
    const { tools, leftOut } = await this.#worker.connect(this.#addressed(url));
    const others = this.list.filter((one) => one.url !== url);
    const name = old?.name ?? unused(host, others.map((one) => one.name));
    const taken = others.flatMap((one) => one.tools.map(({ as }) => as));
    const server = {
      url, name, leftOut, tools: tools.map((tool) => {
        const as = unused(`${name}_${tool.name}`, taken);
        taken.push(as);
        return { ...tool, as, may: stillMay(tool, old?.tools.find((one) => one.name === tool.name)) };
      }),
    };
    await this.#offer(server);
    this.#keep(server);
    return server;
  }

  /** @param {string} url */
  async remove(url) {
    const server = this.list.find((one) => one.url === url);
    if (!server) return;
    const others = this.list.filter((one) => one.url !== url);
    if (others.length) local.setItem(KEPT, JSON.stringify(others));
    else local.removeItem(KEPT);
    tellPrivacy();
    const { [url]: _, ...rest } = tokens();
    session.setItem(TOKENS, JSON.stringify(rest));
    await this.#offers.withdraw(sourceOf(server));
    if (!this.#remote) return;
    this.#worker.close(url).catch(() => {});
  }

  /** @param {string} url @param {string} name of its tool @param {boolean|undefined} may undefined: ask again */
  async allow(url, name, may) {
    const server = this.list.find((one) => one.url === url);
    if (!server) return;
    const changed = { ...server, tools: server.tools.map((tool) => (tool.name === name ? { ...tool, may } : tool)) };
    this.#keep(changed);
    await this.#offer(changed);
  }

  #keep(server) {
    const { list } = this;
    const at = list.findIndex(({ url }) => url === server.url);
    local.setItem(KEPT, JSON.stringify(at < 0 ? [...list, server] : list.with(at, server)));
    tellPrivacy();
  }

  /** @param {Server} server */
  #offer(server) {
    const definitions = server.tools.filter(({ may }) => may !== false)
      .map(({ as, description, parameters }) => ({ name: as, description, parameters }));
    return this.#offers.offer(sourceOf(server), definitions, (name, given, signal) => this.#call(server.url, name, given, signal), SECONDS);
  }

  /** The model reads English here, as the conversation with it is. @returns {Promise<import('../tools/page_tools.js').Result>} */
  async #call(url, as, given, signal) {
    const server = this.list.find((one) => one.url === url);
    const tool = server?.tools.find((one) => one.as === as);
    if (!server || !tool) return { failed: `The tool ${as} is no longer there.` };
    if (!tool.may && !(tool.may === undefined && await this.#agrees(server, tool, given, signal))) {
      return { failed: `The user does not allow ${as} to be called.` };
    }
    const id = ++this.#last;
    const stop = () => this.#worker.stop(id);
    signal.addEventListener('abort', stop, { once: true });
    try {
      const { text, failed } = await this.#worker.call(id, this.#addressed(url), tool.name, given);
      return failed ? { failed: text } : { text };
    } catch (error) {
      return { failed: error.message };
    } finally {
      signal.removeEventListener('abort', stop);
    }
  }

  /** @param {Server} server @param {Tool} tool @param {AbortSignal} signal */
  async #agrees({ url }, tool, given, signal) {
    const { host } = new URL(url), told = visible(JSON.stringify(given, null, 1)), rest = told.length - LONGEST_SHOWN;
    const may = await ask({
      title: t('toolServers.callTitle', { host, tool: tool.name }),
      paragraphs: [
        rest > 0 ? t('toolServers.callMore', { given: told.slice(0, LONGEST_SHOWN), count: rest }) : told, t('toolServers.callWhat', { host }),
      ],
      yes: t('toolServers.allow'), isUnexpected: true, isHarmless: true, signal,
    });
    if (may) await this.allow(url, tool.name, true);
    return may;
  }

  #addressed(url) {
    const hosts = [...this.list.map((one) => one.url), url].map(hostOf);
    return { url, token: tokens()[url] ?? '', hosts };
  }

  get #worker() {
    const script = new URL('./mcp_worker.js', import.meta.url);
    this.#remote ??= Comlink.wrap(new Worker(ownScript(script), { type: 'module', name: 'sonata-tool-servers' }));
    return this.#remote;
  }
}

const sourceOf = ({ name }) => `server ${name}`;

/** @returns {Record<string, string>} */
function tokens() {
  try {
    return JSON.parse(session.getItem(TOKENS) ?? '{}');
  } catch {
    return {};
  }
}

/** @param {string} text @returns {string} Throws a userError if no server can be there */
function addressOf(text) {
  const given = text.trim();
  const url = URL.canParse(given) ? new URL(given) : null;
  if (!url || url.username || url.password || !ADDRESS.test(url.href)) {
    throw userError('ToolServerError', message('mcp.no-address', '"{text}" is not the address of a tool server: write it like https://example.org/mcp, or http://localhost:8000/mcp on this machine.', { text: given }));
  }
  url.hash = '';
  return url.href;
}

/** An entry of a list of hosts. */
function hostOf(url) {
  const { protocol, hostname, port, host } = new URL(url);
  return protocol === 'http:' ? `http://${hostname}:${port || '80'}` : host;
}

/** A name like this that no other has. @param {string} wanted @param {string[]} taken */
function unused(wanted, taken) {
  const name = wanted.replace(/[^\w-]/g, '_').slice(0, LONGEST_NAME);
  for (let number = 1; ; number += 1) {
    const end = number > 1 ? `_${number}` : '', found = name.slice(0, LONGEST_NAME - end.length) + end;
    if (!taken.includes(found)) return found;
  }
}

/** The user's word on a tool holds as long as the tool is the same. @param {import('./told.js').ServerTool} tool @param {Tool} [before] */
function stillMay(tool, before) {
  const said = ({ description, parameters }) => JSON.stringify([description, parameters]);
  return before && (before.may === false || said(before) === said(tool)) ? before.may : undefined;
}

function isServer(kept) {
  const texts = (object, ...names) => names.every((name) => typeof object?.[name] === 'string');
  return texts(kept, 'url', 'name') && ADDRESS.test(kept.url) && URL.canParse(kept.url) && Array.isArray(kept.tools)
    && kept.tools.every((tool) => texts(tool, 'name', 'as', 'description') && isObject(tool.parameters));
}
