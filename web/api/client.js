/**
 * OpenAI's resources over a door: `chat.completions`, `completions`, `responses`, `embeddings`, `models`, as openai's
 * client for JavaScript has them. It needs no page: sonata.js gives it the engine's door.
 *
 * A door takes {method, path, body} and gives parts, as app/page/api_calls.py does: the first that has a status has the
 * headers, too. Leaving the parts ends the answer.
 *
 * @typedef {{status: number|null, headers: Record<string, string>, text: string}} Part
 * @typedef {(asked: {method: string, path: string, body: string}) => AsyncIterable<Part>|Promise<AsyncIterable<Part>>} Door
 * @typedef {{signal?: AbortSignal|null}} RequestOptions
 */
import { APIError, APIUserAbortError } from './errors.js';
import { ToolRunner } from './tool_runner.js';

export class Client {
  #door;

  /** @param {Door} door */
  constructor(door) {
    this.#door = door;
    const post = (/** @type {string} */ path) => (body, options) => this.#send(path, body, options);
    const create = post('/v1/chat/completions');
    const runTools = (body, options) => new ToolRunner(create, body, options);
    this.chat = { completions: { create, runTools } };
    this.completions = { create: post('/v1/completions') };
    this.responses = { create: post('/v1/responses') };
    this.embeddings = { create: post('/v1/embeddings') };
    this.models = { list: (/** @type {RequestOptions} */ options = {}) => this.#whole(this.#ask('GET', '/v1/models', '', options.signal)) };
  }

  /**
   * Answers as the global fetch would with a server, so that any client that takes a `fetch` works with it. The host of
   * the address does not matter.
   * @type {typeof globalThis.fetch}
   */
  fetch = async (input, init) => {
    const request = new Request(input instanceof Request ? input : new URL(String(input), 'http://sonata.invalid'), init);
    const body = await request.text(), { pathname } = new URL(request.url);
    const asFetch = (/** @type {any} */ error) => { throw error instanceof APIUserAbortError ? request.signal.reason : error; };
    const { head, texts } = await this.#ask(request.method, pathname, body, request.signal).catch(asFetch);
    return responseOf(head, texts, asFetch);
  };

  /** @returns {Promise<any>} */
  async #send(path, body, { signal } = /** @type {RequestOptions} */ ({})) {
    if (!body?.stream) return this.#whole(this.#ask('POST', path, JSON.stringify(body), signal));
    const controller = new AbortController();
    const either = signal ? AbortSignal.any([signal, controller.signal]) : controller.signal;
    const { head, texts } = await this.#ask('POST', path, JSON.stringify(body), either);
    if (head.status >= 400) throw errorOf(head.status, await joined(texts));
    return new Stream(texts, controller);
  }

  /** @param {Promise<{head: any, texts: AsyncGenerator<string>}>} asking @returns {Promise<any>} */
  async #whole(asking) {
    const { head, texts } = await asking;
    const text = await joined(texts);
    if (head.status >= 400) throw errorOf(head.status, text);
    return JSON.parse(text);
  }

  /** Throws an APIUserAbortError if it is aborted before there is a status; so do the texts if it is later. */
  async #ask(method, path, body, signal) {
    const isLeft = () => signal?.aborted;
    if (isLeft()) throw new APIUserAbortError();
    const parts = (await this.#door({ method, path, body }))[Symbol.asyncIterator]();
    const leave = () => void parts.return?.();
    const end = () => {
      signal?.removeEventListener('abort', leave);
      leave();
    };
    signal?.addEventListener('abort', leave);
    try {
      let head;
      do head = isLeft() ? null : (await parts.next()).value;
      while (head && head.status === null);
      if (isLeft() || !head) throw new APIUserAbortError();
      return { head, texts: textsOf(head, parts, end, isLeft) };
    } catch (error) {
      end();
      throw error;
    }
  }
}

/** The texts of an answer. Its reader leaves it, or its signal ends it: then the model stops. */
async function* textsOf(head, parts, end, isLeft) {
  try {
    yield head.text;
    for (let step = await parts.next(); !step.done; step = await parts.next()) yield step.value.text;
    if (isLeft()) throw new APIUserAbortError();
  } finally {
    end();
  }
}

/** Chunks of an answer, once. Leaving the loop, or `controller.abort()`, ends the answer; an aborted one just ends. */
export class Stream {
  #texts;

  /** @param {AsyncGenerator<string>} texts of server-sent events @param {AbortController} controller */
  constructor(texts, controller) {
    this.#texts = texts;
    this.controller = controller;
  }

  async* [Symbol.asyncIterator]() {
    let rest = '';
    try {
      for await (const text of this.#texts) {
        const events = `${rest}${text}`.split('\n\n');
        rest = events.pop() ?? '';
        for (const event of events) {
          const data = event.slice(event.indexOf('data: ') + 'data: '.length);
          if (data === '[DONE]') return;
          const chunk = JSON.parse(data);
          if (chunk.error && !chunk.object) throw new APIError(undefined, chunk.error);
          yield chunk;
        }
      }
    } catch (error) {
      if (!(error instanceof APIUserAbortError)) throw error;
    }
  }
}

/** @param {{status: number, headers: Record<string, string>}} head @param {AsyncGenerator<string>} texts @param {(error: any) => never} fail */
function responseOf(head, texts, fail) {
  const encoder = new TextEncoder();
  const body = new ReadableStream({
    async pull(controller) {
      const { value, done } = await texts.next().catch(fail);
      if (done) controller.close();
      else controller.enqueue(encoder.encode(value));
    },
    cancel: () => void texts.return(undefined),
  });
  return new Response(body, { status: head.status, headers: head.headers });
}

function errorOf(status, text) {
  try {
    return new APIError(status, JSON.parse(text).error);
  } catch {
    return new APIError(status, { message: text });
  }
}

async function joined(texts) {
  let whole = '';
  for await (const text of texts) whole += text;
  return whole;
}
