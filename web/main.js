/**
 * The page: joins the message box, the conversation and the engine.
 *
 * The page is always in one of four states: loading, ready, answering, failed. In each of them the user can type into the
 * message box, and every problem is a banner with a way out. A message that is sent while the model loads waits in a queue.
 */
import { answerRequests } from './api/worker_door.js';
import { actionsOf, Sender } from './chat/sender.js';
import { Announcer } from './shell/announcer.js';
import { Banner } from './shell/banner.js';
import { AgentChoice } from './chat/agent_choice.js';
import { ChatView } from './chat/chat_view.js';
import { Welcome } from './chat/welcome.js';
import { Composer } from './chat/composer.js';
import { ContextBar } from './chat/context_bar.js';
import { MessageQueue } from './chat/message_queue.js';
import { Navigation } from './chat/navigation.js';
import { StoredChat } from './chat/stored_chat.js';
import { Engine } from './engine/engine.js';
import { ModelTabs } from './engine/model_tabs.js';
import { keepFocus, listenForEscape } from './shell/keyboard.js';
import { Models } from './panels/models/models.js';
import { ModelMenu } from './panels/models/model_menu.js';
import { removeModel, storedModels } from './storage/model_store.js';
import { NAME as MEMORY_NAME, MemoryLock } from './sidebar/memory_lock.js';
import { describeLost, lostStorage } from './shell/lost_storage.js';
import { LoadingView } from './shell/loading_view.js';
import { Notices } from './shell/notices.js';
import { reloadToIsolate, tellOfVersions } from './shell/offline.js';
import { loadStyles } from './common/page_files.js';
import { phase } from './common/phase.js';
import { byId } from './common/dom.js';
import { ChatTitle } from './chat/chat_title.js';
import { Shortcuts } from './shell/shortcuts.js';
import { RunSettings } from './panels/settings/run_settings.js';
import { offerMultilingual, usesMultilingual } from './shell/multilingual.js';
import { engineKey, readOptions } from './shell/options.js';
import { describe, fromError, sentence } from './shell/problems.js';
import { Presence } from './learning/presence.js';
import { StatusView } from './shell/status_view.js';
import { Watchdog } from './shell/watchdog.js';
import { Chats } from './sidebar/chats.js';
import { Drawer } from './sidebar/drawer.js';
import { isNoted } from './memory/lock_note.js';
import { session } from './common/web_storage.js';
import { cut } from './common/cut.js';
import { InstallButton } from './shell/install.js';
import { takeShared } from './shell/share_target.js';
import { offerPython } from './interpreter/opener.js';
import { PageTools } from './tools/page_tools.js';
import { offerToolServers } from './mcp/opener.js';
import { offerTables } from './table/opener.js';
import { OfflineNotice } from './shell/offline_notice.js';
import { PanelOpener } from './panels/panel_opener.js';
import { said } from './i18n/engine_texts.js';
import { loadLanguage, t, translatePage } from './i18n/i18n.js';

// The workers' patience, in ms for each second of the page's: a sixth of it, so that the engine recovers by itself first.
const WORKERS_PATIENCE = 1000 / 6;

await loadLanguage();
translatePage();
const options = { ...readOptions(), multilingual: usesMultilingual() };
const announcer = new Announcer(byId('announcer', HTMLElement));
const chat = new ChatView({
  scroller: byId('scroller', HTMLElement), welcome: byId('welcome', HTMLElement), log: byId('log', HTMLElement),
}, announcer, actionsOf(() => sender));
const composer = new Composer(byId('composer', HTMLFormElement), {
  accepts: (text) => sender.accepts(text), onSend: (text) => sender.send(text), onStop: () => sender.stop(),
  onEditLast: () => chat.editLast(),
});
phase('can be typed in');
const banner = new Banner(byId('banner', HTMLElement));
const notices = new Notices(byId('notices', HTMLElement));
const welcome = new Welcome(byId('welcome', HTMLElement), {
  onAsk: useExample, onDraft: (text) => composer.draft(text), openModels: () => models.open(),
});
const title = new ChatTitle(byId('chat-title', HTMLElement));
const contextBar = new ContextBar(byId('context-bar', HTMLButtonElement), () => engine.model.memoryUse());
const stored = new StoredChat(chat, notices, { onGone, onTitle: showTitle });
const agentChoice = new AgentChoice(byId('agent-choice', HTMLElement), { stored, notices }, () => engine);
const queue = new MessageQueue(chat, {
  onCancel: (question) => { sender.giveBack(question); sender.answerNext(); },
  onUrgent: () => { composer.focus(); sender.answerNext(); },
});
const navigation = new Navigation({ stored, queue, composer }, {
  stop: () => sender.stop(), forget, engine: () => engine, isReady: () => state === 'ready', hasBegun: () => chat.hasBegun,
});
const presence = new Presence();
const run = new RunSettings(options, () => load());
const panels = new PanelOpener({
  root: byId('panel', HTMLElement), stage: byId('stage', HTMLElement), links: byId('sidebar', HTMLElement),
}, notices, { onResume: (id) => navigation.resume(id), page: { run, get models() { return models; }, engine: () => engine, lock: lockNow } });
const drawer = new Drawer({
  bar: byId('sidebar', HTMLElement), rest: [byId('content', HTMLElement)], shade: byId('sidebar-shade', HTMLElement),
  openers: [byId('sidebar-open', HTMLElement)], closer: byId('sidebar-close', HTMLElement),
});
const chats = new Chats(byId('chats', HTMLElement), {
  current: () => stored.id, open: (id) => navigation.resume(id), chosen: () => { drawer.chosen(); panels.uncover(); },
});
const lock = new MemoryLock(byId('memory-lock', HTMLElement), { notices, banner, drawer, composer }, () => sender.answerNext());
const status = new StatusView(byId('status', HTMLElement), byId('model-chip', HTMLElement));
const loading = new LoadingView(byId('loading', HTMLElement));
const models = new Models(notices, {
  check: async (files, stem) => (state === 'failed' ? { title: stem, licence: '' } : engine.checkModel({ files, stem })), onChange: () => { run.reset('context'); load(); },
  attach: (files) => attachments.then((view) => view.attach(files)),
  panel: { open: () => panels.open('settings/model'), leave: () => panels.uncover() },
});
new ModelMenu(byId('model-menu', HTMLElement), byId('model-choices', HTMLElement), models);
let attached = /** @type {import('./files/attachments.js').Attachments|null} */ (null); // once it is loaded
const attachments = openAttachments();
const tabs = new ModelTabs(engineKey(options), { patience: options.patience, onMoved: (take) => load({ moved: true, take }) });
const watchdog = new Watchdog(options.patience, onSilence);
const offlineNotice = new OfflineNotice(notices, byId('works-offline', HTMLElement));
offerTables(() => engine, (sentence) => notices.say('table', sentence), byId('log', HTMLElement));
const pageTools = new PageTools();
offerPython({
  engine: () => engine, chat: () => ({ opening: stored.openings, id: stored.id }), say: (sentence) => notices.say('python', sentence), ask,
}, pageTools);
new InstallButton(byId('install', HTMLButtonElement));
offerToolServers(pageTools);
answerRequests(() => started?.then(({ api }) => (asked) => api.request(asked)) ?? null);

let state = /** @type {'loading'|'ready'|'answering'|'failed'} */ ('loading');
let engine = /** @type {Engine} */ (/** @type {unknown} */ (null)); // set from the first `load` on
let started = /** @type {Promise<Engine>|null} */ (null); // once the model of `engine` runs
let lost = /** @type {import('./shell/lost_storage.js').Lost[]} */ ([]);
const keeps = /** @type {Record<string, boolean>} */ ({ chats: true, model: true }); // until they are known not to be kept
let isUncaughtSaid = false;
let runner = /** @type {any} */ (null); // facts about the engine for the status line, as StatusView.showInfo takes them
const sender = new Sender(
  { chat, composer, banner, notices, announcer, stored, queue, navigation, status, watchdog, models, welcome, contextBar, agentChoice, lock },
  {
    engine: () => engine, state: () => state, setState, runner: () => runner, fail, follow, tell,
    delay: () => attached?.delay ?? null,
  },
);
models.adapters.onChange(() => {
  runner = runner && { ...runner, answersWith: models.adapters.current?.name };
  if (['ready', 'answering'].includes(state)) status.showInfo(runner);
});

for (const id of ['new-chat', 'new-chat-top']) {
  byId(id, HTMLElement).addEventListener('click', startNewChat);
}
byId('sidebar', HTMLElement).addEventListener('click', (event) => {
  if (event.target instanceof Element && event.target.closest('a')) drawer.chosen();
});
byId('skip', HTMLElement).addEventListener('click', (event) => {
  event.preventDefault(); // the address says which chat is open
  composer.focus();
});
new Shortcuts([
  { keys: ['Enter'], text: 'shortcuts.send' },
  { keys: ['Shift', 'Enter'], text: 'shortcuts.newLine' },
  { keys: ['ArrowUp'], text: 'shortcuts.editLast' },
  { keys: ['Escape'], text: 'shortcuts.stop' },
  { keys: ['/'], text: 'shortcuts.write', run: () => composer.focus() },
  { keys: ['Ctrl', 'Shift', 'O'], text: 'shortcuts.newChat', run: startNewChat },
  { keys: ['Ctrl', 'K'], text: 'shortcuts.search', run: () => { drawer.show(); chats.focusSearch(); } },
  { keys: ['Ctrl', 'B'], text: 'shortcuts.sidebar', run: () => drawer.toggle() },
  { keys: ['Ctrl', ','], text: 'shortcuts.settings', run: () => panels.open('settings') },
]);
listenForEscape(byId('log', HTMLElement), () => sender.stop());
keepFocus(() => composer.focus());
addEventListener('pagehide', () => sender.keepQuestions());
if (matchMedia('(pointer: fine)').matches) composer.focus();
notices.say('options', options.refused.map(({ said, isWhole, ...of }) => (
  t(isWhole ? 'problems.noWholeNumber' : 'problems.noSeconds', { said: cut(said), ...of })
)).join(' ') || null);
isNoted(MEMORY_NAME).then((isEncrypted) => isEncrypted && session.keep(false)); // until the memory is open, and says so
if (!await reloadToIsolate()) {
  tellOfVersions(notices, () => offlineNotice.siteKept());
  load();
  addEventListener('error', ({ error }) => tellUncaught(error));
  addEventListener('unhandledrejection', ({ reason }) => tellUncaught(reason));
  lostStorage(tabs).then((names) => {
    lost = names;
    sayLost();
    onMemory(engine); // may have reported a part of it
  });
  takeShared({
    addText: (text) => composer.add(text), addFiles: async (files) => (await attachments).attach(files),
    say: (sentence) => notices.say('shared', sentence),
  });
}

// ---- loading ----------------------------------------------------------------------------------------------------

/**
 * Start an engine that replaces the current one.
 * @param {{moved?: boolean, take?: boolean}} [why] moved: another tab runs the model now, or none any more. take: this tab must
 *   run it, whichever did before
 */
async function load({ moved = false, take = engine !== null } = {}) {
  const again = engine !== null;
  engine?.dispose();
  pageTools.leave();
  if (moved) {
    run.reread();
    models.reread();
    notices.say('tabs', t('tabs.moved'));
    sender.askAgain();
  } else {
    sender.interrupt();
  }
  if (again && !panels.hasFocus) composer.focus();
  navigation.opening = Promise.resolve();
  banner.hide();
  byId('model-chip', HTMLElement).hidden = false; // shell/first_paint.js may have reported a harmless fault as fatal
  models.adapters.end();
  setState('loading');
  run.tell(null);
  offlineNotice.modelRuns(null);
  status.show('loading', t('status.loading'));
  loading.begin(options.routing);
  chat.follow();
  watchdog.feed();
  const link = tabs.connect({ take });
  const current = (engine = new Engine(link));
  current.memory.onChange(() => onMemory(current));
  panels.use(current);
  chats.use(current);
  onMemory(current);
  // For tests and developers, in the console.
  const loseDevice = () => current.loseDevice();
  window.sonata = { engine: current, chat, tools: pageTools, info: null, lastAnswer: null, loseDevice, load: () => load(), storedModels, removeModel };
  try {
    const model = await models.model();
    if (current !== engine) return;
    const starting = current.start(
      {
        model, ...run.choice, maxTokens: options.maxTokens,
        autotune: options.autotune, tiers: options.tiers, patience: options.patience * WORKERS_PATIENCE, routing: options.routing,
        multilingual: options.multilingual,
      },
      (progress) => {
        if (current !== engine) return;
        if (state === 'loading') onProgress(progress);
        else sender.onRecovery();
      },
    );
    started = starting.then(() => current);
    started.catch(() => {});
    const info = await starting;
    if (current !== engine || state !== 'loading') return;
    window.sonata.info = info;
    const runs = info.runs ?? model; // another tab may run a different model than this tab would
    const { isElsewhere } = await link;
    runner = { ...info, model: runs.title ?? info.model, isElsewhere };
    await models.adapters.begin(current, { sha256: runs.sha256 ?? undefined, title: runner.model });
    if (current !== engine) return;
    onMemory(current); // if another tab runs the model, it may be loaded already, and reports no more progress
    tell(pageTools.use(current));
    learn(current, runs.sha256 ?? null); // answers wait for it if they can, the page does not
    await readStored(current, again);
    if (current !== engine || state !== 'loading') return;
    onReady(info);
    if (options.routing) offerMultilingual(notices);
    offlineNotice.modelRuns(info.notice ? null : model.sha256 ?? null);
  } catch (error) {
    if (current === engine && state === 'loading') fail(fromError(error));
  }
}

/** Allow teaching the engine, and let it learn while the user is idle. */
function learn(current, base) {
  presence.use(null);
  const opening = current.model.openLearning({ base: base ?? '', idle: options.idle });
  opening.then(() => { if (current === engine) presence.use(current); }, () => {});
  tell(opening);
}

/** The memory or the router is ready, or has failed. Chatting needs neither. */
async function onMemory(current) {
  const info = await current.memory.info().catch(() => null);
  if (current !== engine || !info) return;
  document.documentElement.dataset.routing = info.routing;
  document.documentElement.dataset.learning = info.learning;
  document.documentElement.dataset.memory = info.state;
  current.memory.counts().then((counts) => current === engine && welcome.showMemory(counts), () => {});
  if (info.state !== 'opening') session.keep(!info.encrypted);
  keeps.chats = info.persistent || info.state !== 'ready';
  sayLost();
  const isSaid = !keeps.chats && lost.includes('chats');
  notices.say('memory', isSaid ? null : keeps.chats ? info.problem : `${info.problem ?? ''} ${t('notices.notKept')}`.trim());
  lock.use(current.memory, info.state, Boolean(stored.id) && !stored.isShown);
  await follow(current);
  showBelongings();
}

/** Send a message that the page offers. @param {string} text @param {string|null} [table] the attached table that it is about */
function ask(text, table = null) {
  if (sender.accepts(text)) sender.send(text, table);
}

/** The files of the conversation. The page is painted before they are known. */
async function openAttachments() {
  const [{ Attachments }] = await Promise.all([import('./files/attachments.js'), loadStyles('files/files.css')]);
  const elements = { root: byId('files', HTMLElement), form: byId('composer', HTMLFormElement) };
  const parts = { stored, navigation, composer, queue, notices, announcer };
  const page = { engine: () => engine, tools: pageTools, isReady: () => state === 'ready', onChange: () => sender.answerNext(), ask };
  return attached = new Attachments(elements, parts, page);
}

/** The conversation on the page may be another now, or its files, or its agent may be. */
function showBelongings() {
  agentChoice.refresh();
  attachments.then((view) => view.refresh(), () => {});
}

/** Show what another tab has added to the conversation on the page, or what the memory holds of it. */
async function follow(current) {
  const more = await stored.look(current, queue);
  if (more && current === engine && state === 'ready') stored.read(current);
}

/** The model is loaded: it reads the conversation on the page, as far as it is stored. */
async function readStored(current, again) {
  if (stored.id) await current.memory.opened();
  await stored.look(current, queue);
  const isRead = await stored.read(current);
  if (again && !isRead && chat.hasAnswers) chat.addNote(t('loading.again'));
}

function onProgress(progress) {
  watchdog.feed();
  if (banner.isShown) banner.hide();
  loading.progress(progress);
}

function onReady(info) {
  watchdog.stop();
  banner.hide();
  loading.end();
  welcome.showModel(info.parameters);
  keeps.model = !info.notice;
  sayLost();
  notices.say('model', keeps.model || lost.includes('model') ? null : said(info.notice));
  notices.say('tabs', null);
  notices.say('context', run.inAddress('context') ? info.need && said(info.need) : null);
  run.tell({ ...info, model: runner.model });
  status.showInfo(runner);
  phase('ready');
  announcer.say(t('loading.ready'));
  setState('ready');
  sender.answerNext();
}

/** The engine can do nothing more until it is loaded again. */
function fail(error) {
  const problem = describe(error);
  watchdog.stop();
  loading.end();
  run.tell(null);
  sender.interrupt();
  status.show('failed', t('status.failed'));
  setState('failed');
  banner.show(problem, waysOut(problem));
}

function waysOut({ kind, details }) {
  if (details) return [{ label: t('problems.reload'), run: () => location.reload() }];
  const actions = /** @type {{label: string, run: () => unknown}[]} */ ([{ label: t('problems.loadAgain'), run: () => load() }]);
  const ofTheGpu = ['BackendError', 'DeviceLostError', 'NoWebGPUError'].includes(kind);
  const onTheCpu = ['wasm', 'numpy'].includes(window.sonata.info?.backend ?? run.choice.backend);
  const useCpu = () => { run.useCpu(); load(); };
  if (models.address.isNamed) actions.push({ label: t('problems.ownModel'), run: () => models.leaveAddress() });
  else if (models.chosen) actions.push({ label: t('problems.pageModel'), run: () => models.use(null) });
  if (run.values.memory) actions.push({ label: t('run.usualMemory'), run: () => run.choose('memory', null) });
  if (run.values.context) actions.push({ label: t('run.usualContext'), run: () => run.choose('context', null) });
  if (ofTheGpu && !onTheCpu) actions.push({ label: t('problems.useCpu'), run: useCpu });
  return actions;
}

function onSilence() {
  if (models.address.isAsking) return watchdog.feed();
  const wait = () => { watchdog.feed(); composer.focus(); };
  const message = t(state === 'loading' ? 'problems.silentLoading' : 'problems.silentModel');
  banner.show({ message }, [{ label: t('problems.loadAgain'), run: () => load() }, { label: t('problems.wait'), run: wait }]);
}

/** The model starts a new conversation. */
function forget() {
  banner.hide();
  status.showRate(null);
  tell(engine.conversation.begin());
}

/** @param {string|null} text null: another conversation, about which nothing is known yet */
function showTitle(text) {
  title.show(text);
  showBelongings();
  if (text === null) contextBar.show(null);
  chats.mark();
}

/** The conversation on the page was deleted. */
function onGone() {
  if (state === 'ready') forget();
}

function startNewChat() {
  drawer.chosen();
  panels.uncover();
  navigation.newChat();
}

/** Forget the key of the memory: a new engine opens it, and asks for the passphrase. */
function lockNow() {
  navigation.newChat();
  load();
}

function useExample(text) {
  composer.focus(); // the example is about to vanish, and the focus with it
  if (state === 'failed') composer.text = text;
  else sender.send(text);
}

/** Reports what the browser forbids to keep; the engine knows that for chats and the model. */
function sayLost() {
  notices.say('lost', describeLost(lost.filter((name) => !keeps[name])));
}

/** Reports uncaught errors, once: a fault seldom comes alone. */
function tellUncaught(error) {
  if (isUncaughtSaid || !error) return; // no error: a note of the browser, such as one about a ResizeObserver
  isUncaughtSaid = true;
  const message = sentence(cut(String(error.message || error)));
  notices.say('uncaught', t('problems.uncaught', { message }), { label: t('notices.reload'), run: () => location.reload() });
}

/** Wait for the engine's answer only to report a failure. */
function tell(promise) {
  const current = engine;
  promise.catch((error) => {
    if (current === engine) fail(fromError(error));
  });
}

function setState(next) {
  state = next;
  document.documentElement.dataset.state = next;
  presence.answering(next === 'answering');
  composer.setState({ open: next === 'ready' || next === 'loading', answering: next === 'answering' });
}
