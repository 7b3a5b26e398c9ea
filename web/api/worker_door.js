/**
 * The page's side of `/v1/...` in the service worker (sw.js): it asks the site's pages for one that runs a model, and
 * gives that page the request through a MessagePort.
 */
import { partOf } from '../common/browser_parts.js';

/** @param {() => Promise<import('./client.js').Door>|null} open the door of this page's model once it runs; null: it runs none */
export function answerRequests(open) {
  const container = partOf(() => navigator.serviceWorker);
  if (!container) return;
  container.addEventListener('message', ({ data, ports: [port] }) => {
    if (data?.kind !== 'api' || !port) return;
    const opening = open();
    opening?.catch(() => {}); // the answer says it
    port.postMessage({ runs: opening !== null });
    if (opening) port.onmessage = (event) => answer(opening, event.data.request, port);
  });
  container.startMessages();
}

/** @param {Promise<import('./client.js').Door>} opening @param {{method: string, path: string, body: string}} request @param {MessagePort} port */
async function answer(opening, request, port) {
  let isLeft = false;
  let parts = /** @type {AsyncIterator<any>|null} */ (null);
  port.onmessage = () => { // the service worker leaves
    isLeft = true;
    parts?.return?.();
  };
  try {
    parts = (await (await opening)(request))[Symbol.asyncIterator]();
    for (let step = isLeft ? null : await parts.next(); step && !step.done; step = await parts.next()) port.postMessage({ part: step.value });
    parts.return?.();
    port.postMessage({ end: true });
  } catch (error) {
    port.postMessage({ error: error.message });
  }
}
