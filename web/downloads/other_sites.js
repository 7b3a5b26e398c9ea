/**
 * Files of other sites, for the engine's worker: its own policy lets it connect to nothing but the server of the page, so that
 * messages to the model cannot leave through it. Another worker (other_sites_worker.js), which sees no message, fetches them.
 */
import * as Comlink from '../vendor/comlink.mjs';
import { ownScript } from '../common/own_script.js';

let remote = /** @type {any} */ (null);

/** @typedef {Pick<Response, 'status'|'ok'|'url'|'headers'|'body'>} Answer */

/**
 * Like `fetch`: from the page's server, from where it redirects to, or from another site.
 * @param {string} url
 * @param {RequestInit} options
 * @returns {Promise<Answer>}
 */
export async function fetchAnywhere(url, options) {
  if (new URL(url).origin === location.origin) {
    const response = await fetch(url, { ...options, redirect: 'manual' });
    if (response.type !== 'opaqueredirect') return response;
  }
  return fetchElsewhere(url, options);
}

async function fetchElsewhere(url, /** @type {RequestInit} */ { signal, ...options }) {
  const worker = new URL('./other_sites_worker.js', import.meta.url);
  remote ??= Comlink.wrap(new Worker(ownScript(worker), { type: 'module', name: 'sonata-elsewhere' }));
  const { id, headers, ...told } = await remote.open(url, options);
  const cancel = () => remote.cancel(id);
  if (signal?.aborted) cancel();
  signal?.throwIfAborted();
  signal?.addEventListener('abort', cancel, { once: true });
  const body = new ReadableStream({
    async pull(controller) {
      const chunk = await remote.read(id);
      signal?.throwIfAborted();
      if (chunk) return controller.enqueue(chunk);
      signal?.removeEventListener('abort', cancel);
      controller.close();
    },
    cancel,
  });
  return { ...told, headers: new Headers(headers), body };
}
