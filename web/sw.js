/**
 * The service worker: keeps the site by content hash, so that the page starts with the server gone, and adds the headers that
 * isolate it (COOP, COEP) and say what it may do (CSP). It does not handle models: model_store.js keeps them.
 *
 * precache.json lists the site's files with their sha256; such a list is a version. Files are kept by their sha256, so a new
 * version downloads only what changed, and an interrupted update continues with what it already has. A version takes over in a
 * single write, once all of its files are there and have the sha256 that the list says. An open page keeps the version that it
 * started with, and so do its workers; the next page gets the new one. Files that the list has under `later` are kept once a
 * page asks for them, or for everything; an update refreshes those that are kept.
 *
 * On this machine's own addresses (localhost) a page waits for the update, so that a site under development is never stale.
 * Elsewhere it starts with the current version, and is told of the new one afterwards.
 *
 * It also answers OpenAI's API below `v1/` for pages of this origin: a page that runs a model gives the answer
 * (api/worker_door.js).
 */
'use strict';

/** @typedef {Record<string, string>} Files path -> sha256 */
/** @typedef {{current: string|null, versions: Record<string, Files>, later: Record<string, Files>, clients: Record<string, {version: string, since: number}>}} State */

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));

const CACHE = 'sonata-site-1';
const LIST_PATIENCE_MS = 5000; // for the server to say that there is a newer version
const UPDATE_PATIENCE_MS = 15_000; // for the files of a newer version, on localhost
const DOWNLOADS = 4; // at once
const QUIET_MS = 10_000; // without a request from a page before all kept files are checked
const CODE = /\.m?js$/; // checked each time before it is served: the page is painted before it runs
const NEWBORN_MS = 60_000; // how long the browser may take to list a new page or worker
const LOCAL = ['localhost', '127.0.0.1', '[::1]'].includes(location.hostname);
const SCOPE = worker.registration.scope;
const WANTED = ['multilingual/', 'interpreter/packages/']; // the files under `later` that are kept only once they were requested
const SHARE = `${SCOPE}share`; // the address to which other apps share, by the manifest (share_target)
const MOST_SHARED = 64e6; // bytes
const SHARED_MS = 60_000; // for the page to start and ask for it
const API = `${SCOPE}v1/`;
const MOST_ASKED = 8 << 20; // characters of a request to the API, as app/api takes them
const RUNS_MS = 3000; // for a page to say that it runs a model
const ACCEPTED_BEATS = 2; // empty parts, after which a request is not refused any more (app/page/api_calls.py: BEAT)
const LOOK_MS = 1000; // between two looks whether the page that answers is still there
// Headers of the site's files, from app/server/headers.py (python -m app.building.headers).
// headers: begin
const HEADERS = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Permissions-Policy': 'accelerometer=(), browsing-topics=(), camera=(), clipboard-read=(), display-capture=(), encrypted-media=(), geolocation=(), gyroscope=(), hid=(), idle-detection=(), local-fonts=(), magnetometer=(), microphone=(), midi=(), payment=(), picture-in-picture=(), publickey-credentials-get=(), screen-wake-lock=(), serial=(), usb=(), xr-spatial-tracking=()',
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
};
const POLICIES = [ // by how a path ends: the first that fits
  ['downloads/model_worker.js', "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' https: http://localhost:* http://127.0.0.1:*; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types sonata; worker-src 'none'"],
  ['downloads/other_sites_worker.js', "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' https: http://localhost:* http://127.0.0.1:*; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types sonata; worker-src 'none'"],
  ['mcp/mcp_worker.js', "default-src 'none'; script-src 'self'; connect-src 'self' https: http://localhost:* http://127.0.0.1:*; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types sonata; worker-src 'none'"],
  ['tokenizers/template_worker.js', "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types sonata; worker-src 'none'"],
  ['engine/broker_worker.js', "default-src 'none'; script-src 'self'; connect-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types sonata; worker-src 'none'"],
  ['interpreter/host_worker.js', "default-src 'none'; script-src 'wasm-unsafe-eval' blob:; connect-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types sonata; worker-src data:"],
  ['worker.js', "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types sonata; worker-src 'self' blob:"],
  ['sw.js', "default-src 'none'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types sonata"],
  ['', "default-src 'none'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify lit-html sonata; style-src 'self'; img-src 'self' data:; font-src 'self'; manifest-src 'self'; worker-src 'self'"],
];
// headers: end

let reading = /** @type {Promise<State>|null} */ (null); // a promise of the state; in the cache it is one JSON file
let saving = Promise.resolve(); // one after the other
let checking = /** @type {Promise<Problem|null>|null} */ (null); // the running update
let candidate = /** @type {Files|null} */ (null); // the files it wants: {path: sha256}
let listing = /** @type {Promise<void>} */ (Promise.resolve()); // until it knows which files it wants, if any
let asked = 0; // when a page or a worker last requested a file
let inspecting = /** @type {Promise<void>|null} */ (null); // the running check of the kept files
/** @typedef {{text: string, path?: string}} Problem shown by the page's texts site.* */
let damage = /** @type {Problem|null} */ (null); // what the check found
let shared = /** @type {{from: string|null, entries: [string, FormDataEntryValue][]}|null} */ (null); // another app's last form
let retired = false; // the site is now served without a service worker
const arriving = new Map(); // sha256 -> its lookup or download that is under way

worker.addEventListener('install', () => worker.skipWaiting());
worker.addEventListener('activate', (event) => {
  event.waitUntil(worker.clients.claim());
  event.waitUntil(caches.delete('sonata-shared').catch(() => false)); // the place of shared content before 2026-12
});

worker.addEventListener('fetch', (event) => {
  if (event.request.method === 'POST' && event.request.url === SHARE) {
    event.respondWith(takeShared(event.request));
    return event.waitUntil(sleep(SHARED_MS)); // or what is held would be lost with this worker
  }
  if (isApiCall(event)) return event.respondWith(answerCall(event));
  const path = pathOf(event.request);
  if (path !== null && !retired) event.respondWith(answer(event, path));
});

// The page asks whether there is a newer version, and every page is told the outcome; or it asks to keep everything.
worker.addEventListener('message', (event) => {
  if (event.data?.kind === 'keep') return event.waitUntil(keepLater(event.source));
  if (event.data?.kind === 'shared') return giveShared(event.ports[0]);
  if (event.data?.kind !== 'check') return;
  event.waitUntil(check().then((problem) => tellPages(problem, event.source)));
  event.waitUntil(inspect());
});

// ---- answering -------------------------------------------------------------------------------------------------------

/** Maps a request to the path under which the list has it; null if it is left to the network. */
function pathOf({ url, method, headers }) {
  const { origin, pathname } = new URL(url);
  const address = origin + pathname;
  if (method !== 'GET' || headers.has('Range') || !address.startsWith(SCOPE)) return null;
  const path = decodeURI(address.slice(SCOPE.length));
  if (path.startsWith('models/')) return null;
  return path === '' || path.endsWith('/') ? `${path}index.html` : path;
}

async function answer(event, path) {
  const { request } = event;
  asked = Date.now();
  try {
    const files = await filesFor(event);
    if (files?.[path]) return await fileOf(path, files[path]);
  } catch (error) {
    console.debug(`not from what is kept: ${path} (${error.message})`);
  }
  return guarded(await fetch(request), path);
}

/** The files of the version that a request belongs to; without a version, the files of the arriving one, or null. */
async function filesFor(event) {
  const { request, clientId, resultingClientId } = event;
  const isPage = request.mode === 'navigate';
  if (isPage) {
    const checked = check();
    damage = null; // this page gets the repaired files
    event.waitUntil(checked.then((problem) => tellPages(problem)));
    event.waitUntil(inspect());
    if (LOCAL && (await state()).current) await Promise.race([checked, sleep(UPDATE_PATIENCE_MS)]);
  }
  if (!isPage && !(await state()).current) await listing;
  const { current, versions, later, clients } = await state();
  const version = (!isPage && clients[clientId]?.version) || current;
  if (version && resultingClientId) { // even if this worker was ended and restarted
    clients[resultingClientId] = { version, since: Date.now() };
    event.waitUntil(save({}).catch(() => {}));
  }
  return version && versions[version] ? { ...later[version], ...versions[version] } : candidate;
}

function guarded(response, path) {
  if (response.type === 'opaque' || response.type === 'opaqueredirect' || response.type === 'error') return response;
  const { status, statusText } = response;
  return new Response(response.body, { status, statusText, headers: withHeaders(response.headers, path) });
}

function withHeaders(original, path) {
  const headers = new Headers(original);
  for (const [name, value] of headersOf(path)) headers.set(name, value);
  return headers;
}

/** The headers that the site wants with a file. @returns {[string, string][]} */
function headersOf(path) {
  const [[, policy]] = POLICIES.filter(([end]) => path.endsWith(end)); // the last one fits every path
  return [...Object.entries(HEADERS), ['Content-Security-Policy', policy]];
}

// ---- files -----------------------------------------------------------------------------------------------------------

const keyOf = (name) => `${SCOPE}.precache/${name}`;

/** The file with this checksum: from the cache, or else from the network, and then it is kept. */
async function fileOf(path, sha256) {
  const cache = await caches.open(CACHE);
  if (!arriving.has(sha256)) {
    arriving.set(sha256, bring(cache, path, sha256).finally(() => arriving.delete(sha256)));
  }
  await arriving.get(sha256);
  return await cache.match(keyOf(sha256)) ?? fail(`${path} was not kept`);
}

/** Ensure that a file is kept, whole and with the headers of this version of the script. */
async function bring(cache, path, sha256) {
  const kept = await cache.match(keyOf(sha256));
  if (!kept) return download(cache, path, sha256);
  const isOfNow = headersOf(path).every(([name, value]) => kept.headers.get(name) === value);
  const again = isOfNow ? null : guarded(kept.clone(), path);
  if (CODE.test(path) && !await isWhole(kept, sha256)) {
    console.warn(`${path} was damaged in this browser; it is fetched again`);
    await cache.delete(keyOf(sha256));
    return download(cache, path, sha256);
  }
  if (again) return cache.put(keyOf(sha256), again);
}

/** @returns {Promise<boolean>} false also if it cannot even be read */
function isWhole(kept, sha256) {
  return kept.arrayBuffer().then(digest).then((found) => found === sha256, () => false);
}

/** Throws if the server is gone, or sends something other than what the list says. */
async function download(cache, path, sha256) {
  for (const mode of /** @type {RequestCache[]} */ (['no-cache', 'reload'])) { // the browser's own cache may be wrong
    const response = await fetch(new URL(path, SCOPE), { cache: mode });
    if (!response.ok) fail(`HTTP ${response.status} for ${path}`);
    const bytes = await response.arrayBuffer();
    if (await digest(bytes) !== sha256) continue;
    const headers = withHeaders(response.headers, path);
    for (const name of ['Content-Encoding', 'Content-Length', 'Transfer-Encoding']) headers.delete(name);
    return cache.put(keyOf(sha256), new Response(bytes, { headers }));
  }
  const error = new Error(`${path} on the server is not the file that its list tells of`);
  Object.assign(error, { name: 'Mismatch', path });
  throw error;
}

async function digest(bytes) {
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Check all kept files, once the pages are quiet, and fetch the damaged ones again. Never rejects. */
function inspect() {
  inspecting ??= inspection().catch(() => {}).finally(() => { inspecting = null; });
  return inspecting;
}

async function inspection() {
  const cache = await caches.open(CACHE);
  let mended = false, missing = /** @type {string|null} */ (null);
  for (const version of Object.keys((await state()).versions)) {
    const { versions, later } = await state();
    for (const [path, sha256] of Object.entries({ ...later[version], ...versions[version] })) {
      while (Date.now() - asked < QUIET_MS) await sleep(QUIET_MS / 4); // a page that starts comes first
      const kept = await cache.match(keyOf(sha256));
      if (retired || (kept ? await isWhole(kept, sha256) : later[version]?.[path])) continue;
      await cache.delete(keyOf(sha256));
      try {
        await fileOf(path, sha256);
        mended = true;
      } catch {
        missing = path;
      }
    }
  }
  damage = missing
    ? { text: 'damaged', path: missing }
    : mended ? { text: 'mended' } : null;
  if (damage) await tellPages(null);
}

// ---- the API ---------------------------------------------------------------------------------------------------------

/**
 * True for what a script of this origin fetches. A frame with an origin of its own, such as a sandboxed one, has no service
 * worker; a link or a form of another site is a navigation.
 */
function isApiCall({ request: { url, mode, destination } }) {
  return url.startsWith(API) && mode !== 'navigate' && destination === '';
}

/** @param {FetchEvent} event */
async function answerCall(event) {
  const { request } = event;
  const body = await request.text(), { origin, pathname } = new URL(request.url);
  if (body.length > MOST_ASKED) return refusal(413, `The request is larger than ${MOST_ASKED} bytes: send less.`);
  const found = await pageThatRuns();
  if (!found) return refusal(503, 'No open page of Sonata runs a model: open one, and ask again.');
  const { port, page } = found;
  const parts = partsFrom(port, page);
  request.signal.addEventListener('abort', parts.leave);
  event.waitUntil(parts.ended);
  port.postMessage({ request: { method: request.method, path: `/${(origin + pathname).slice(SCOPE.length)}`, body } });
  try {
    const isStream = /"stream":\s*true/.test(body), encoder = new TextEncoder();
    let head, beats = 0;
    do head = await parts.next();
    while (head.status === null && (isStream || ++beats < ACCEPTED_BEATS));
    // The browser tells of a client that leaves only once it has a response. A whole answer that takes its time was accepted:
    // it begins with spaces.
    const { status, headers, text } = head.status === null ? { status: 200, headers: { 'content-type': 'application/json' }, text: ' ' } : head;
    const stream = new ReadableStream({
      start: (controller) => controller.enqueue(encoder.encode(text)),
      async pull(controller) {
        const part = await parts.next();
        if (!part) return controller.close();
        if (part.status >= 400) throw new Error(part.text);
        controller.enqueue(encoder.encode(part.text || (isStream ? '' : ' ')));
      },
      cancel: () => parts.leave(),
    });
    return new Response(stream, { status, headers });
  } catch (error) {
    return refusal(503, error.message);
  }
}

/** The first page that says it runs a model, and the port to it. @returns {Promise<{port: MessagePort, page: string}|null>} */
async function pageThatRuns() {
  const pages = await worker.clients.matchAll({ type: 'window', includeUncontrolled: true });
  const ports = /** @type {MessagePort[]} */ ([]);
  const asking = pages.map((page) => new Promise((resolve, reject) => {
    const { port1, port2 } = new MessageChannel();
    ports.push(port1);
    port1.onmessage = ({ data }) => (data.runs ? resolve({ port: port1, page: page.id }) : reject());
    page.postMessage({ kind: 'api' }, [port2]);
  }));
  const found = await Promise.race([Promise.any(asking).catch(() => null), sleep(RUNS_MS).then(() => null)]);
  for (const port of ports) if (port !== found?.port) port.close();
  return found;
}

/** The parts of an answer as they come: `next` gives undefined after the last one, and throws if the page is gone. */
function partsFrom(port, page) {
  const come = /** @type {any[]} */ ([]);
  let wake = () => {}, isOver = false, end = (/** @type {unknown} */ _) => {};
  const ended = new Promise((resolve) => { end = resolve; });
  const put = (message) => {
    if (isOver) return;
    come.push(message);
    isOver = !message.part;
    if (isOver) {
      clearInterval(looking);
      port.close();
      end(null);
    }
    wake();
  };
  const looking = setInterval(async () => {
    if (!await worker.clients.get(page)) put({ error: 'The page that ran the model was closed: ask again.' });
  }, LOOK_MS);
  port.onmessage = ({ data }) => 'runs' in data || put(data); // several modules of a page may say that they run one
  return {
    ended,
    leave: () => {
      if (!isOver) port.postMessage({ leave: true });
      put({ end: true });
    },
    next: async () => {
      while (!come.length) await new Promise((resolve) => { wake = () => resolve(null); });
      const { part, error } = come[0].part ? come.shift() : come[0];
      if (error) fail(error);
      return part;
    },
  };
}

/** An error in OpenAI's form. */
function refusal(status, message) {
  const type = status < 500 ? 'invalid_request_error' : 'server_error';
  return Response.json({ error: { message, type, param: null, code: null } }, { status });
}

// ---- what other apps share ------------------------------------------------------------------------------------------

/**
 * Hold the form that another app sends, replacing the previous one, and open the page, which asks the user about it
 * (web/shell/share_target.js). This works offline, too. Any site can send such a form, so nothing of it is stored.
 */
async function takeShared(request) {
  shared = null;
  const state = await hold(request).catch(() => 'failed');
  return Response.redirect(`${SCOPE}?shared=${state}`, 303);
}

/** @param {Request} request @returns {Promise<'yes'|'large'>} */
async function hold({ body, headers, referrer }) {
  const chunks = [], reader = body?.getReader();
  for (let size = 0; reader;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > MOST_SHARED) {
      reader.cancel().catch(() => {});
      return 'large';
    }
    chunks.push(value);
  }
  const form = await new Response(new Blob(chunks), { headers: { 'Content-Type': headers.get('Content-Type') ?? '' } }).formData();
  const from = URL.canParse(referrer) ? new URL(referrer) : null; // such as about:client
  shared = { from: from?.host && from.origin !== location.origin ? from.host : null, entries: [...form] };
  return 'yes';
}

/** Give the form to one page, once. @param {MessagePort|undefined} port */
function giveShared(port) {
  port?.postMessage(shared);
  shared = null;
}

// ---- versions --------------------------------------------------------------------------------------------------------

/**
 * Bring the site up to date. Only one update runs at a time; a caller that asks meanwhile gets the same answer.
 * @returns {Promise<Problem|null>} what the user should know; never rejects
 */
function check() {
  if (checking) return checking;
  let onListed = () => {};
  listing = new Promise((resolve) => { onListed = resolve; });
  checking = update(onListed).then(() => null, problemOf).finally(() => {
    checking = candidate = null;
    onListed();
  });
  return checking;
}

async function update(onListed) {
  const text = await readList();
  if (text === null) return;
  const version = await digest(new TextEncoder().encode(text));
  const { current, versions, later } = await state();
  if (current !== version) {
    const listed = JSON.parse(text), { files } = listed;
    if (!current) candidate = { ...listed.later, ...files }; // a file that the first page wants meanwhile is downloaded once
    onListed();
    const queue = [...Object.entries(files), ...await keptBefore(listed.later ?? {})];
    await Promise.all(Array.from({ length: DOWNLOADS }, async () => {
      for (let next = queue.shift(); next; next = queue.shift()) await fileOf(...next);
    }));
    versions[version] = files;
    later[version] = listed.later ?? {};
    if (!current) await pinAll(version); // pages that were open before anything was kept
    await save({ current: version });
  }
  await sweep();
}

/** The files under `later` whose earlier content is kept. @param {Files} later */
async function keptBefore(later) {
  const { current, later: before } = await state();
  const cache = await caches.open(CACHE);
  const isKept = (path) => cache.match(keyOf(before[current ?? '']?.[path]));
  const found = await Promise.all(Object.keys(later).map(isKept));
  return Object.entries(later).filter((_, at) => found[at]);
}

/** Keep the files that were not requested so far as well, so that all of the site works without its server. Tells the page. */
async function keepLater(page) {
  const { current, later, clients } = await state();
  const there = new Set((await (await caches.open(CACHE)).keys()).map(({ url }) => url));
  const files = Object.entries(later[clients[page.id]?.version ?? current ?? ''] ?? {}).filter(([path]) => !WANTED.some((folder) => path.startsWith(folder)));
  const missing = files.filter(([, sha256]) => !there.has(keyOf(sha256))).map((file) => fileOf(...file));
  page.postMessage({ kind: 'kept', whole: await Promise.all(missing).then(() => true, () => false) });
}

async function pinAll(version) {
  const { clients } = await state();
  for (const { id } of await worker.clients.matchAll({ type: 'all' })) clients[id] ??= { version, since: Date.now() };
}

/** precache.json as text; null if the server does not answer, or no longer serves a site of ours. */
async function readList() {
  const ask = (name) => fetch(new URL(name, SCOPE), { cache: 'no-cache', signal: AbortSignal.timeout(LIST_PATIENCE_MS) });
  let response;
  try {
    response = await ask('precache.json');
  } catch {
    return null;
  }
  const isGone = ({ status }) => status === 404 || status === 410;
  if (isGone(response) && isGone(await ask('sw.js'))) return retire();
  if (!response.ok) return null;
  const text = await response.text();
  if (isList(text)) {
    retired = false; // it came back before its last page was closed
    return text;
  }
  // A network that requires a login answers like this too, but not on localhost: there another site has taken the port.
  return LOCAL ? retire() : null;
}

function isList(text) {
  try { return typeof JSON.parse(text).files === 'object'; } catch { return false; }
}

/** The site is now served without a service worker: leave it to the network. */
async function retire() {
  retired = true;
  reading = null;
  await worker.registration.unregister();
  await caches.delete(CACHE);
  return null;
}

async function problemOf(error) {
  if (error.name === 'QuotaExceededError') {
    return { text: 'noRoom' };
  }
  if (error.name === 'Mismatch' && (await state()).current) {
    return { text: 'updateFailed', path: error.path };
  }
  return null; // the server went away, or its files are changing; the next check continues
}

// ---- state -----------------------------------------------------------------------------------------------------------

/** {current: version, versions and later: {version: {path: sha256}}, clients: {id: {version, since}}}, the same object each time */
function state() {
  reading ??= readState();
  return reading;
}

async function readState() {
  const kept = retired ? undefined : await (await caches.open(CACHE)).match(keyOf('state'));
  return { current: null, versions: {}, later: {}, clients: {}, ...await kept?.json() };
}

/** A change takes effect once it is written. */
function save(change) {
  const saved = saving.then(async () => {
    if (retired) return;
    const kept = await state();
    const cache = await caches.open(CACHE);
    await cache.put(keyOf('state'), new Response(JSON.stringify({ ...kept, ...change })));
    Object.assign(kept, change);
  });
  saving = saved.catch(() => {});
  return saved;
}

/** Forget closed pages, and the versions and files that are not needed any more. */
async function sweep() {
  const open = new Set((await worker.clients.matchAll({ type: 'all', includeUncontrolled: true })).map(({ id }) => id));
  const kept = await state();
  for (const [id, { since }] of Object.entries(kept.clients)) {
    if (!open.has(id) && Date.now() - since > NEWBORN_MS) delete kept.clients[id];
  }
  const needed = new Set([kept.current, ...Object.values(kept.clients).map(({ version }) => version)]);
  for (const version of Object.keys(kept.versions).filter((one) => !needed.has(one))) {
    delete kept.versions[version];
    delete kept.later[version];
  }
  await save({});
  const versions = [...Object.values(kept.versions), ...Object.values(kept.later)];
  const keys = new Set(['state', ...versions.flatMap(Object.values)].map(keyOf));
  const cache = await caches.open(CACHE);
  for (const { url } of await cache.keys()) if (!keys.has(url)) await cache.delete(url);
}

// ---- pages -----------------------------------------------------------------------------------------------------------

/** complete: the page starts without its server; newer: a reload brings another version. */
async function tellPages(problem, asking = /** @type {any} */ (null)) {
  const { current, clients } = await state();
  /** @type {Map<string, any>} */
  const pages = new Map((await worker.clients.matchAll({ type: 'window' })).map((page) => [page.id, page]));
  if (asking) pages.set(asking.id, asking);
  for (const [id, page] of pages) {
    const newer = Boolean(current && clients[id] && clients[id].version !== current);
    page.postMessage({ kind: 'site', complete: Boolean(current), newer, problem: problem ?? damage });
  }
}

function sleep(ms) { return new Promise((resolve) => setTimeout(resolve, ms)); }

function fail(message) { throw new Error(message); }
