/**
 * The page: joins the message box, the conversation and the engine.
 *
 * The page is always in one of four states: loading, ready, answering, failed. In each of them the message box can be
 * typed in, and every problem is a banner with a way out.
 */
import { Announcer } from './page/announcer.js';
import { BackendMenu } from './page/backend_menu.js';
import { Banner } from './page/banner.js';
import { ChatView } from './chat/chat_view.js';
import { Composer } from './chat/composer.js';
import { Engine } from './engine/engine.js';
import { GpuDialog } from './page/gpu_dialog.js';
import { removeModel, storedModels } from './storage/model_store.js';
import { chooseModel } from './storage/model_list.js';
import { Notices } from './page/notices.js';
import { askToPersist, reloadToIsolate, watchForVersions } from './page/offline.js';
import { readOptions } from './page/options.js';
import { describe, fromError } from './page/problems.js';
import { LoadingView, StatusView } from './page/status_view.js';
import { Watchdog } from './page/watchdog.js';

// Milliseconds of a worker's for a second of the page's: a sixth, so that the engine has helped itself before.
const WORKERS_PATIENCE = 1000 / 6;

const RECOVERING = 'The graphics card was reset; going on in a moment.';

const byId = (id) => document.getElementById(id);
const options = readOptions();
const announcer = new Announcer(byId('announcer'));
const chat = new ChatView({ scroller: byId('chat'), welcome: byId('welcome'), log: byId('log') }, announcer);
const composer = new Composer(byId('composer'), { onSend: ask, onStop: stop });
const banner = new Banner(byId('banner'));
const notices = new Notices(byId('notices'));
const status = new StatusView(byId('status'));
const loading = new LoadingView(byId('loading'));
const menu = new BackendMenu(byId('backend'), options, () => reloadEngine());
const gpuDialog = new GpuDialog(byId('gpu-dialog'), byId('gpu-speed'));
const watchdog = new Watchdog(options.patience, onSilence);

let state = 'loading';
let engine = null;
let turn = null; // the running turn: {view, question, stream, ended}
let runner = null; // what the status line says of the engine, as StatusView.showInfo takes it
let recovering = false;
let memoryFrame = null; // the Memory view, once it was opened

byId('new-chat').addEventListener('click', newChat);
byId('memory-button').addEventListener('click', openMemory);
for (const button of document.querySelectorAll('#welcome button')) {
  button.addEventListener('click', () => useExample(button.textContent.trim()));
}
if (matchMedia('(pointer: fine)').matches) composer.focus();
begin();

// ---- loading ----------------------------------------------------------------------------------------------------

async function begin() {
  if (await reloadToIsolate()) return;
  watchForVersions(onSite);
  load();
}

/** What the service worker found: never a reason to reload by itself, in the middle of a chat. */
function onSite({ complete, newer, problem }) {
  if (complete) document.documentElement.dataset.offline = 'ready';
  notices.say('version', newer ? 'A new version is ready:' : null, { label: 'reload', run: () => location.reload() });
  notices.say('site', problem);
}

/** Start an engine, in place of the one there is. */
async function load() {
  const again = engine !== null;
  engine?.dispose();
  if (turn) interrupt(turn);
  banner.hide();
  gpuDialog.withdraw();
  setState('loading');
  status.show('loading', 'Loading the model');
  loading.begin();
  chat.follow();
  watchdog.feed();
  const current = (engine = new Engine());
  current.memory.onChange(() => onMemory(current));
  memoryFrame?.use(current.memory);
  expose(current);
  try {
    const model = await chooseModel(options.modelUrl);
    const info = await current.start(
      {
        model, maxTokens: options.maxTokens, ...menu.choice, workers: options.workers, autotune: options.autotune,
        patience: options.patience * WORKERS_PATIENCE, routing: options.routing,
      },
      (progress) => {
        if (current !== engine) return;
        if (state === 'loading') onProgress(progress);
        else if (turn) onRecovery();
      },
    );
    if (current !== engine || state !== 'loading') return;
    window.sonata.info = info;
    onReady(info, model.title, again);
  } catch (error) {
    if (current === engine && state === 'loading') fail(fromError(error));
  }
}

/** The memory or the router is there, or is not. Chatting needs neither. */
async function onMemory(current) {
  const info = await current.memory.info().catch(() => null);
  if (current !== engine || !info) return;
  document.documentElement.dataset.routing = info.routing;
  document.documentElement.dataset.memory = info.state;
  notices.say('memory', info.problem);
  const locked = info.state === 'locked' ? 'What Sonata remembers is locked:' : null;
  notices.say('locked', locked, { label: 'unlock', run: () => byId('memory-button').click() });
}

function onProgress(progress) {
  watchdog.feed();
  if (banner.isShown) banner.hide();
  loading.progress(progress);
}

function onReady(info, title, again) {
  watchdog.stop();
  banner.hide();
  loading.end();
  if (info.backend === 'webgpu') gpuDialog.offer(engine);
  notices.say('model', info.notice);
  runner = { ...info, model: title ?? info.model };
  status.showInfo(runner);
  if (again && !chat.isEmpty) chat.addNote('The model was loaded again. It does not remember what is above.');
  announcer.say('The model is ready.');
  setState('ready');
}

/** The engine can do nothing more until it is loaded again. */
function fail(error) {
  const problem = describe(error);
  watchdog.stop();
  loading.end();
  gpuDialog.withdraw();
  if (turn) interrupt(turn);
  status.show('failed', 'The model is not running');
  setState('failed');
  banner.show(problem, waysOut(problem));
}

function waysOut({ kind, details }) {
  if (details) return [{ label: 'Reload the page', run: () => location.reload() }];
  const actions = [{ label: 'Load again', run: () => reloadEngine() }];
  const ofTheGpu = ['BackendError', 'DeviceLostError', 'NoWebGPUError'].includes(kind);
  const onTheCpu = ['wasm', 'numpy'].includes(window.sonata.info?.backend ?? menu.choice.backend);
  if (ofTheGpu && !onTheCpu) actions.push({ label: 'Use the CPU instead', run: useCpu });
  return actions;
}

function useCpu() {
  menu.useCpu();
  reloadEngine();
}

function reloadEngine() {
  composer.focus();
  load();
}

/** The GPU was lost in the middle of a turn, and the engine is on its way back. */
function onRecovery() {
  watchdog.feed();
  if (recovering) return;
  recovering = true;
  status.show('loading', RECOVERING);
  announcer.say(RECOVERING);
}

function endRecovery() {
  if (recovering) status.showInfo(runner);
  recovering = false;
}

function onSilence() {
  const message = state === 'loading'
    ? 'Loading has made no progress for a while. Check your connection; you can wait, or load again.'
    : 'The engine has said nothing for a while. It may still be working: you can wait, stop the answer, or load again.';
  banner.show({ message }, [
    { label: 'Load again', run: () => reloadEngine() },
    { label: 'Wait', run: () => watchdog.feed() },
  ]);
}

// ---- asking -----------------------------------------------------------------------------------------------------

async function ask(question) {
  const current = { view: chat.addTurn(question), question, stream: null, ended: false };
  turn = current;
  if (state === 'ready') banner.hide();
  setState('answering');
  watchdog.feed();
  try {
    const stream = await engine.respond(question);
    current.stream = stream;
    if (current.ended) return void stream.return();
    for await (const event of stream) {
      if (current.ended) return;
      watchdog.feed();
      if (banner.isShown) banner.hide();
      onEvent(current, event);
    }
    if (!current.ended) throw new Error('the answer ended without a word');
  } catch (error) {
    if (!current.ended) fail(fromError(error));
  }
}

function onEvent(current, event) {
  endRecovery();
  if (event.type === 'delta') {
    current.view.append(event.text);
  } else if (event.type === 'reading') {
    current.view.showReading(event.done, event.total);
  } else if (event.type === 'route') {
    current.view.showRoute(event, engine.memory);
  } else if (event.type === 'done') {
    window.sonata.lastAnswer = event;
    status.showRate(event.decodeTokS);
    end(current, event);
    askToPersist(); // not before: a visitor who only looks in is not asked anything
  } else if (event.kind === 'ContextFullError') {
    interrupt(current);
    banner.show(describe(event), [{ label: 'New chat', run: newChat }]);
  } else {
    fail(event);
  }
}

/** The answer is over for the page, whatever the worker still does. */
function end(current, ending) {
  if (current.ended) return;
  current.ended = true;
  endRecovery();
  current.stream?.return();
  current.view.finish(ending);
  watchdog.stop();
  if (turn === current) turn = null;
  if (state === 'answering') setState('ready');
}

/** The answer failed: keep what there is of it, and give the question back to the message box. */
function interrupt(current) {
  end(current, { reason: 'failed' });
  if (!current.view.text) current.view.remove();
  if (!composer.text) composer.text = current.question;
}

function stop() {
  if (!turn) return;
  banner.hide();
  end(turn, { reason: 'stopped' });
  tell(engine.stop());
}

function newChat() {
  if (turn) stop();
  chat.clear();
  composer.focus();
  if (state !== 'ready') return;
  banner.hide();
  status.showRate(null);
  tell(engine.newChat());
}

/** Go on with a conversation of an earlier day, in place of the one on the page. */
async function resume(id) {
  if (turn) stop();
  let turns;
  try {
    turns = await engine.resume(id);
    notices.say('resume', null);
  } catch (error) {
    return notices.say('resume', describe(fromError(error)).message);
  }
  chat.clear();
  let view = null;
  for (const { role, content } of turns) {
    if (role === 'user') {
      view = chat.addTurn(content);
    } else if (view) {
      view.append(content);
      view.finish({ reason: 'end' });
      view = null;
    }
  }
  composer.focus();
}

function useExample(text) {
  if (state === 'ready') return ask(text);
  composer.text = text;
  composer.focus();
}

/** The Memory view is loaded when it is first asked for. */
async function openMemory() {
  try {
    memoryFrame ??= new (await import('./memory_view/frame.js')).MemoryFrame({ onResume: resume });
    notices.say('memory-view', null);
    await memoryFrame.open(engine.memory);
  } catch {
    notices.say('memory-view', 'The Memory view could not be loaded. Check your connection, then try again.');
  }
}

/** Wait for the engine's word only to report that it failed. */
function tell(promise) {
  const current = engine;
  promise.catch((error) => {
    if (current === engine) fail(fromError(error));
  });
}

function setState(next) {
  state = next;
  document.documentElement.dataset.state = next;
  composer.setState({ ready: next === 'ready', answering: next === 'answering' });
}

/**
 * For tests and developers, in the console: `sonata.loseDevice()`, `sonata.info`, `sonata.lastAnswer`,
 * `sonata.storedModels()`, `sonata.removeModel(sha256)`.
 */
function expose(current) {
  const loseDevice = () => current.loseDevice();
  window.sonata = { engine: current, info: null, lastAnswer: null, loseDevice, load, storedModels, removeModel };
}
