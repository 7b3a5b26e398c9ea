/**
 * The page's side of the service worker (sw.js): registers it, lets it isolate the page, hears of new versions. If there is
 * none (an old browser, a private window, plain http) the page works from the network alone.
 */
import { partOf } from '../common/browser_parts.js';
import { session } from '../common/web_storage.js';
import { t } from '../i18n/i18n.js';
import { ownScript } from '../common/own_script.js';

const RELOADED = 'sonata.reloaded-to-isolate';
const ISOLATING_MS = 3000; // for the service worker to start, the first time
const RESTED_MS = 60_000; // the least time between two such reloads: a reload past the service worker would repeat it
const EVERY_HOUR = 3_600_000;
const ANSWER_MS = 10_000;
const PROBLEMS = ['damaged', 'mended', 'noRoom', 'updateFailed'];

const container = /** @type {any} */ (partOf(() => navigator.serviceWorker)); // a ServiceWorkerContainer, or null
let registering = /** @type {Promise<ServiceWorkerRegistration|null>|null} */ (null);
let persisting = /** @type {Promise<boolean>|null} */ (null);

/**
 * Let the service worker isolate the page if the server does not: that takes one reload, on the first visit.
 * @returns {Promise<boolean>} true if the page is being reloaded; if that did not help, it is not reloaded again
 */
export async function reloadToIsolate() {
  if (crossOriginIsolated || !container || container.controller || window !== window.top || !mayReload()) return false;
  const controlled = new Promise((resolve) => container.addEventListener('controllerchange', resolve, { once: true }));
  await Promise.race([register().then((registration) => registration && controlled), sleep(ISOLATING_MS)]);
  if (!container.controller) return false;
  location.reload();
  return true;
}

/** True if this tab was not reloaded a moment ago. If nothing can be remembered, it must not be reloaded at all. */
function mayReload() {
  const last = Number(session.getItem(RELOADED));
  return session.setItem(RELOADED, String(Date.now())) && Date.now() - last > RESTED_MS;
}

/**
 * Keep the site in case the server goes away, and look for new versions: now, each hour, and when the page becomes visible
 * again.
 * @param {(found: {complete: boolean, newer: boolean, problem: {text: string, path?: string}|null}) => void} onFound
 *   `complete`: the page starts without its server; `newer`: a reload brings another version; `problem`: described by the texts
 *   site.*
 */
async function watchForVersions(onFound) {
  if (!container) return;
  container.addEventListener('message', ({ data }) => {
    if (data?.kind === 'site') onFound(data);
  });
  container.startMessages();
  if (!await register()) return;
  const look = async () => (await container.ready).active?.postMessage({ kind: 'check' });
  let last = Date.now();
  document.addEventListener('visibilitychange', () => {
    if (document.visibilityState === 'hidden' || Date.now() - last < EVERY_HOUR) return;
    last = Date.now();
    look();
  });
  setInterval(look, EVERY_HOUR);
  look();
}

/**
 * Show what `watchForVersions` found. It never reloads the page by itself, in the middle of a chat.
 * @param {import('./notices.js').Notices} notices
 * @param {() => void} onComplete the page starts without its server
 */
export function tellOfVersions(notices, onComplete) {
  watchForVersions(({ complete, newer, problem }) => {
    if (complete) {
      document.documentElement.dataset.offline = 'ready';
      onComplete();
    }
    notices.say('version', newer ? t('notices.newVersion') : null, { label: t('notices.reload'), run: () => location.reload() });
    notices.say('site', PROBLEMS.includes(problem?.text ?? '') ? t(`site.${problem?.text}`, problem ?? {}) : null);
  });
}

/** Keep the files that were not requested so far, too. @returns {Promise<boolean>} true if all of the site is kept now */
export async function keepEverything() {
  const worker = container?.controller;
  if (!worker) return false;
  const told = new Promise((resolve) => container.addEventListener('message', function hear({ data }) {
    if (data?.kind !== 'kept') return;
    container.removeEventListener('message', hear);
    resolve(data.whole);
  }));
  worker.postMessage({ kind: 'keep' });
  return told;
}

/** @param {string} kind of a question to the service worker @returns {Promise<any>} its answer; null if there is none */
export async function askWorker(kind) {
  const worker = container?.controller;
  if (!worker) return null;
  const { port1, port2 } = new MessageChannel();
  const answer = new Promise((resolve) => { port1.onmessage = ({ data }) => resolve(data); });
  worker.postMessage({ kind }, [port2]);
  return Promise.race([answer, sleep(ANSWER_MS).then(() => null)]);
}

/** @returns {Promise<ServiceWorkerRegistration|null>} null if the browser or the server offers none */
function register() {
  registering ??= (async () => container.register(ownScript(new URL('../sw.js', import.meta.url)), { updateViaCache: 'none' }))().catch(() => null);
  return registering;
}

/** Ask the browser, once, not to evict the stored data when space runs short. It may ask the user. */
export function askToPersist() {
  persisting ??= persist().catch(() => false); // not available in plain http
  return persisting;
}

async function persist() {
  return await navigator.storage.persisted() || navigator.storage.persist();
}

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
