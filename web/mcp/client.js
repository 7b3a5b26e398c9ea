/**
 * A client of the Model Context Protocol over streamable HTTP: the handshake, the list of tools, and calls. What a server sends
 * is a stranger's data: it is bounded, and nothing in it is obeyed. app/mcp/tool_servers.py is the client of the terminal.
 */
import { message } from '../common/message.js';
import { userError } from '../common/user_error.js';
import { partsIn } from './event_stream.js';
import { isObject, line, textOf, usable } from './told.js';

const VERSIONS = ['2025-11-25', '2025-06-18', '2025-03-26']; // of the protocol: it asks for the first, and speaks all
const CONNECT_SECONDS = 30;
const CALL_SECONDS = 60;
const MOST_PAGES = 20;
const MOST_MESSAGES = 10_000; // of an answer
const MOST_REPLIES = 100; // to what a server asks during an answer
const MOST_RESUMES = 5; // of a stream that was cut
const LONGEST_WAIT_MS = 5000; // before a stream is resumed
const NO_METHOD = -32601;
const GONE = 404; // the session

/** @typedef {import('./told.js').ServerTool} ServerTool */

export class McpClient {
  #url;
  #host;
  #token;
  #version = '';
  #session = '';
  #isOpen = false;
  #last = 0; // the number of the last request

  /** @param {string} url @param {{token?: string}} [given] token: for a server that wants one */
  constructor(url, { token = '' } = {}) {
    this.#url = url;
    this.#host = new URL(url).host;
    this.#token = token;
  }

  /**
   * Begin a session. Rejects with a userError, as the others do.
   * @param {AbortSignal} stop
   * @returns {Promise<{tools: ServerTool[], leftOut: number}>} its tools, and the number of those that cannot be offered
   */
  connect(stop) {
    return this.#within(CONNECT_SECONDS, stop, async (signal) => {
      await this.#open(signal);
      return this.#listed(signal);
    });
  }

  /**
   * @param {string} name of a tool @param {Record<string, any>} given arguments @param {AbortSignal} stop
   * @returns {Promise<{text: string, failed: boolean}>} failed: the tool says that it failed
   */
  call(name, given, stop) {
    return this.#within(CALL_SECONDS, stop, async (signal) => {
      const ask = () => this.#ask('tools/call', { name, arguments: given }, signal);
      const wasOpen = this.#isOpen;
      if (!wasOpen) await this.#open(signal);
      const result = await ask().catch(async (error) => {
        if (!wasOpen || error.status !== GONE) throw error; // the server has forgotten the session
        await this.#open(signal);
        return ask();
      });
      const text = textOf(result);
      if (text === null) throw this.#notMcp();
      return { text, failed: result.isError === true };
    });
  }

  /** End the session. Nobody waits for the server, which may wait for what it still runs. */
  close() {
    const late = AbortSignal.timeout(1000 * CONNECT_SECONDS);
    if (this.#session) this.#fetch({ method: 'DELETE' }, late).then(({ body }) => body?.cancel()).catch(() => {});
    this.#isOpen = false;
  }

  async #open(signal) {
    this.#version = this.#session = '';
    const client = { name: 'sonata', version: '1' };
    const told = await this.#ask('initialize', { protocolVersion: VERSIONS[0], capabilities: {}, clientInfo: client }, signal);
    if (!VERSIONS.includes(told.protocolVersion)) throw this.#notMcp();
    this.#version = told.protocolVersion;
    await this.#tell({ method: 'notifications/initialized' }, signal);
    this.#isOpen = true;
  }

  async #listed(signal) {
    const found = /** @type {Map<string, ServerTool>} */ (new Map());
    let leftOut = 0, characters = 0, cursor = /** @type {string|undefined} */ (undefined);
    for (let page = 0; page < MOST_PAGES; page += 1) {
      const { tools, nextCursor } = await this.#ask('tools/list', cursor === undefined ? {} : { cursor }, signal);
      if (!Array.isArray(tools)) throw this.#notMcp();
      for (const told of tools) {
        const tool = usable(told, found, characters);
        if (tool) found.set(tool.name, tool);
        else leftOut += 1;
        characters += tool ? JSON.stringify(tool).length : 0;
      }
      if (typeof nextCursor !== 'string') return { tools: [...found.values()], leftOut };
      cursor = nextCursor;
    }
    return { tools: [...found.values()], leftOut: leftOut + 1 };
  }

  /** @template T @param {number} seconds @param {AbortSignal} stop @param {(signal: AbortSignal) => Promise<T>} run */
  async #within(seconds, stop, run) {
    const ending = new AbortController(), end = () => ending.abort();
    const timer = setTimeout(end, 1000 * seconds);
    stop.addEventListener('abort', end);
    try {
      return await run(ending.signal);
    } catch (error) {
      if (stop.aborted) throw failed(message('mcp.stopped', 'It was stopped.'));
      if (ending.signal.aborted) throw failed(message('mcp.slow', 'The server {host} did not answer within {seconds} seconds.', { host: this.#host, seconds }));
      throw error;
    } finally {
      clearTimeout(timer);
      stop.removeEventListener('abort', end);
    }
  }

  /** The result of a request. */
  async #ask(method, params, signal) {
    const id = ++this.#last;
    try {
      const response = await this.#post({ id, method, params }, signal);
      if (method === 'initialize') this.#session = response.headers.get('Mcp-Session-Id') ?? '';
      return await this.#resultIn(response, id, signal);
    } catch (error) {
      if (signal.aborted && method !== 'initialize') {
        const told = { method: 'notifications/cancelled', params: { requestId: id, reason: 'It takes too long, or was stopped.' } };
        this.#tell(told, AbortSignal.timeout(1000 * CONNECT_SECONDS)).catch(() => {});
      }
      throw error;
    }
  }

  /** Read an answer to its result. A stream that is cut is resumed if the server has numbered its events. */
  async #resultIn(response, id, signal) {
    const replies = { left: MOST_REPLIES };
    const resume = { event: '', wait: 1000 };
    for (let tries = 0; ; tries += 1) {
      const result = await this.#find(response, id, signal, resume, replies);
      if (result) return result;
      if (!resume.event || tries === MOST_RESUMES) throw this.#cut();
      await new Promise((resolve) => {
        setTimeout(resolve, Math.min(resume.wait, LONGEST_WAIT_MS));
        signal.addEventListener('abort', resolve, { once: true });
      });
      const headers = { Accept: 'text/event-stream', 'Last-Event-ID': resume.event };
      response = await this.#fetch({ method: 'GET', headers }, signal).catch((error) => { throw signal.aborted ? error : this.#cut(); });
    }
  }

  /** @returns {Promise<Record<string, any>|null>} null if the answer ends without it */
  async #find(response, id, signal, resume, replies) {
    const kind = response.headers.get('Content-Type')?.split(';')[0].trim().toLowerCase() ?? '';
    if (!['application/json', 'text/event-stream'].includes(kind) || !response.body) {
      response.body?.cancel().catch(() => {});
      throw this.#notMcp();
    }
    let messages = 0;
    try {
      for await (const { text, event, retry } of partsIn(response.body, kind === 'text/event-stream')) {
        if (event) resume.event = event;
        if (retry !== null) resume.wait = retry;
        if (!text) continue;
        const parsed = parse(text);
        for (const told of Array.isArray(parsed) ? parsed : [parsed]) {
          messages += 1;
          if (messages > MOST_MESSAGES) throw failed(message('mcp.flood', 'The server {host} sent more than {most} messages at once.', { host: this.#host, most: MOST_MESSAGES }));
          if (!isObject(told) || told.jsonrpc !== '2.0') throw this.#notMcp();
          const result = this.#resultOf(told, id);
          if (result) return result;
          if (typeof told.method === 'string' && told.id !== undefined && replies.left-- > 0) this.#reply(told, signal);
        }
      }
    } catch (error) {
      if (!error.isCut || signal.aborted) throw error;
    }
    return null;
  }

  /** @param {Record<string, any>} told */
  #resultOf({ id, result, error, method }, wanted) {
    if (method !== undefined || id !== wanted) return null;
    if (isObject(error)) {
      throw failed(message('mcp.refused', 'The server {host} refuses: {said}', { host: this.#host, said: line(String(error.message ?? error.code)) }));
    }
    if (!isObject(result)) throw this.#notMcp();
    return result;
  }

  /** A server gets nothing that it asks for: no model's answer, no person's, no folders. @param {Record<string, any>} told */
  #reply({ id, method }, signal) {
    const answer = method === 'ping' ? { result: {} } : { error: { code: NO_METHOD, message: 'Method not found' } };
    this.#tell({ id, ...answer }, signal).catch(() => {});
  }

  async #tell(told, signal) {
    const response = await this.#post(told, signal);
    response.body?.cancel().catch(() => {});
  }

  #post(told, signal) {
    const headers = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream' };
    return this.#fetch({ method: 'POST', headers, body: JSON.stringify({ jsonrpc: '2.0', ...told }) }, signal);
  }

  /** @param {{method: string, headers?: Record<string, string>, body?: string}} request */
  async #fetch({ headers, ...request }, signal) {
    if (!/^[\x21-\x7e]*$/.test(this.#token)) throw this.#wrongToken(); // no header can have it
    const own = {
      ...this.#version && { 'MCP-Protocol-Version': this.#version },
      ...this.#session && { 'Mcp-Session-Id': this.#session },
      ...this.#token && { Authorization: `Bearer ${this.#token}` },
    };
    let response;
    try {
      response = await fetch(this.#url, {
        ...request, headers: { ...headers, ...own }, signal, redirect: 'manual', credentials: 'omit', referrerPolicy: 'no-referrer', cache: 'no-store',
      });
    } catch (error) {
      if (signal.aborted) throw error;
      throw failed(message('mcp.not-reached', 'The server {host} cannot be reached: it does not run, or it does not allow this page (CORS).', { host: this.#host }));
    }
    if (response.ok) return response;
    response.body?.cancel().catch(() => {});
    throw Object.assign(this.#refusalOf(response), { status: response.status });
  }

  #refusalOf({ status, type }) {
    if (type === 'opaqueredirect') return failed(message('mcp.redirects', 'The server {host} redirects to another address. Give that one.', { host: this.#host }));
    if (status === 401 || status === 403) {
      if (this.#token) return this.#wrongToken();
      if (status === 403) {
        return failed(message('mcp.forbidden', 'The server {host} forbids it (HTTP 403): it wants a token, or does not allow this page.', { host: this.#host }));
      }
      return failed(message('mcp.no-token', 'The server {host} wants a token. Give it in Settings, Answers.', { host: this.#host }));
    }
    if (status === 400 && this.#version && !this.#session) {
      return failed(message('mcp.no-session', 'The server {host} refuses (HTTP 400). If it has sessions, it must let the page read the header Mcp-Session-Id (CORS).', { host: this.#host }));
    }
    return failed(message('mcp.status', 'The server {host} answers with HTTP {status} at this address.', { host: this.#host, status }));
  }

  #notMcp() {
    return failed(message('mcp.no-mcp', 'What the server {host} sends does not follow the Model Context Protocol.', { host: this.#host }));
  }

  #cut() {
    return failed(message('mcp.cut', 'The server {host} ended the connection before its answer was complete.', { host: this.#host }));
  }

  #wrongToken() {
    return failed(message('mcp.wrong-token', 'The server {host} does not accept the token.', { host: this.#host }));
  }
}

/** @param {import('../common/message.js').Message} said */
function failed(said) {
  return userError('ToolServerError', said);
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
