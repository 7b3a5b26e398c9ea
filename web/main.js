/**
 * The page: joins the message box, the conversation and the engine.
 *
 * The page is always in one of four states: loading, ready, answering, failed. In each of them the message box can be
 * typed in, and every problem is a banner with a way out. A message that is sent while the model loads waits in a queue.
 */
import { Announcer } from './page/announcer.js';
import { BackendMenu } from './page/backend_menu.js';
import { Banner } from './page/banner.js';
import { ChatView } from './chat/chat_view.js';
import { Composer } from './chat/composer.js';
import { MessageQueue } from './chat/message_queue.js';
import { Navigation } from './chat/navigation.js';
import { StoredChat } from './chat/stored_chat.js';
import { Engine } from './engine/engine.js';
import { keepFocus, listenForEscape } from './page/keyboard.js';
import { GpuDialog } from './page/gpu_dialog.js';
import { ModelsMenu } from './models_view/models_menu.js';
import { removeModel, storedModels } from './storage/model_store.js';
import { LoadingView } from './page/loading_view.js';
import { MemoryButton } from './page/memory_button.js';
import { Notices } from './page/notices.js';
import { askToPersist, reloadToIsolate, tellOfVersions } from './page/offline.js';
import { byId } from './page/dom.js';
import { readOptions } from './page/options.js';
import { describe, fromError } from './page/problems.js';
import { whyTooLong } from './chat/message_length.js';
import { Presence } from './learning/presence.js';
import { StatusView } from './page/status_view.js';
import { Watchdog } from './page/watchdog.js';

// Milliseconds of a worker's for a second of the page's: a sixth, so that the engine has helped itself before.
const WORKERS_PATIENCE = 1000 / 6;

const RECOVERING = 'The graphics card was reset. The answer continues in a moment.';
const NOT_READ = 'The model was loaded again. It does not know what is above.';

/** @typedef {{view: import('./chat/chat_view.js').TurnView, question: string, stream: any, ended: boolean}} Turn */

const options = readOptions();
const announcer = new Announcer(byId('announcer', HTMLElement));
const chat = new ChatView({
  scroller: byId('scroller', HTMLElement), welcome: byId('welcome', HTMLElement), log: byId('log', HTMLElement),
}, announcer, (question) => send(question));
const composer = new Composer(byId('composer', HTMLFormElement), { accepts, onSend: send, onStop: stop });
const banner = new Banner(byId('banner', HTMLElement));
const notices = new Notices(byId('notices', HTMLElement));
const memoryButton = new MemoryButton(byId('memory-button', HTMLElement), notices, (id) => navigation.resume(id));
const stored = new StoredChat(chat, notices, onGone);
const queue = new MessageQueue(chat, giveBack);
const navigation = new Navigation({ stored, queue, composer }, {
  stop, forget, engine: () => engine, isReady: () => state === 'ready',
});
const presence = new Presence();
const status = new StatusView(byId('status', HTMLElement));
const loading = new LoadingView(byId('loading', HTMLElement));
const menu = new BackendMenu(byId('backend', HTMLSelectElement), options, () => load());
const models = new ModelsMenu(byId('models-button', HTMLElement), byId('models-dialog', HTMLDialogElement), notices, {
  check: async (files) => { if (state !== 'failed') await engine.checkModel(files); }, onChange: () => load(),
});
const gpuDialog = new GpuDialog(byId('gpu-dialog', HTMLDialogElement), byId('gpu-speed', HTMLButtonElement));
const watchdog = new Watchdog(options.patience, onSilence);

let state = /** @type {'loading'|'ready'|'answering'|'failed'} */ ('loading');
let engine = /** @type {Engine} */ (/** @type {unknown} */ (null)); // there from the first `load` on
let turn = /** @type {Turn|null} */ (null); // the running one
let runner = /** @type {any} */ (null); // what the status line says of the engine, as StatusView.showInfo takes it
let recovering = false;
models.adapters.onChange(() => {
  runner = runner && { ...runner, answersWith: models.adapters.current?.name };
  if (['ready', 'answering'].includes(state)) status.showInfo(runner);
});

byId('new-chat', HTMLElement).addEventListener('click', () => navigation.newChat());
for (const button of document.querySelectorAll('#welcome button')) {
  button.addEventListener('click', () => useExample(button.textContent?.trim() ?? ''));
}
listenForEscape(byId('log', HTMLElement), stop);
keepFocus(() => composer.focus());
addEventListener('pagehide', keepQuestions);
if (matchMedia('(pointer: fine)').matches) composer.focus();
if (!await reloadToIsolate()) {
  tellOfVersions(notices);
  load();
}

// ---- loading ----------------------------------------------------------------------------------------------------

/** Start an engine, in place of the one there is. */
async function load() {
  const again = engine !== null;
  engine?.dispose();
  if (turn) interrupt(turn);
  if (again) composer.focus();
  navigation.opening = Promise.resolve();
  banner.hide();
  gpuDialog.withdraw();
  models.adapters.end();
  setState('loading');
  status.show('loading', 'Loading the model');
  loading.begin(options.routing);
  chat.follow();
  watchdog.feed();
  const current = (engine = new Engine());
  current.memory.onChange(() => onMemory(current));
  memoryButton.use(current);
  // For tests and developers, in the console.
  const loseDevice = () => current.loseDevice();
  window.sonata = { engine: current, info: null, lastAnswer: null, loseDevice, load, storedModels, removeModel };
  try {
    const model = await models.model();
    if (current !== engine) return;
    const info = await current.start(
      {
        model, context: options.context, maxTokens: options.maxTokens, ...menu.choice, workers: options.workers,
        autotune: options.autotune, patience: options.patience * WORKERS_PATIENCE, routing: options.routing,
      },
      (progress) => {
        if (current !== engine) return;
        if (state === 'loading') onProgress(progress);
        else if (turn) onRecovery();
      },
    );
    if (current !== engine || state !== 'loading') return;
    window.sonata.info = info;
    runner = { ...info, model: model.title ?? info.model };
    await models.adapters.begin(current, { sha256: model.sha256, title: runner.model });
    if (current !== engine) return;
    learn(current, model.sha256 ?? null); // answers wait for it where they can, the page does not
    await readStored(current, again);
    if (current === engine && state === 'loading') onReady(info);
  } catch (error) {
    if (current === engine && state === 'loading') fail(fromError(error));
  }
}

/** Let the engine be taught, and learn while nobody does anything. */
function learn(current, base) {
  presence.use(null);
  const opening = current.openLearning(base, options.idle);
  opening.then(() => { if (current === engine) presence.use(current); }, () => {});
  tell(opening);
}

/** The memory or the router is there, or is not. Chatting needs neither. */
async function onMemory(current) {
  const info = await current.memory.info().catch(() => null);
  if (current !== engine || !info) return;
  document.documentElement.dataset.routing = info.routing;
  document.documentElement.dataset.learning = info.learning;
  document.documentElement.dataset.memory = info.state;
  notices.say('memory', info.problem);
  const what = stored.id && !stored.isShown ? 'This conversation is in the locked memory:' : 'The memory is locked:';
  const locked = info.state === 'locked' ? what : null;
  notices.say('locked', locked, { label: 'unlock', run: () => memoryButton.open() });
  await follow(current);
}

/** Show what another tab has added to the conversation on the page, or what the memory has of it. */
async function follow(current) {
  const more = await stored.look(current, queue);
  if (more && current === engine && state === 'ready') stored.read(current);
}

/** The model is loaded: it reads the conversation on the page, as far as that is stored. */
async function readStored(current, again) {
  if (stored.id) await current.memory.opened();
  await stored.look(current, queue);
  const isRead = await stored.read(current);
  if (again && !isRead && chat.hasAnswers) chat.addNote(NOT_READ);
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
  if (info.backend === 'webgpu') gpuDialog.offer(engine);
  notices.say('model', info.notice);
  notices.say('context', info.need);
  status.showInfo(runner);
  announcer.say('The model is ready.');
  setState('ready');
  answerNext();
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
  const actions = /** @type {{label: string, run: () => unknown}[]} */ ([{ label: 'Load again', run: load }]);
  const ofTheGpu = ['BackendError', 'DeviceLostError', 'NoWebGPUError'].includes(kind);
  const onTheCpu = ['wasm', 'numpy'].includes(window.sonata.info?.backend ?? menu.choice.backend);
  const useCpu = () => { menu.useCpu(); load(); };
  if (models.address.isNamed) actions.push({ label: 'Use my usual model', run: () => models.leaveAddress() });
  else if (models.chosen) actions.push({ label: 'Use the model of this page', run: () => models.use(null) });
  if (ofTheGpu && !onTheCpu) actions.push({ label: 'Use the CPU instead', run: useCpu });
  return actions;
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
  if (models.address.isAsking) return watchdog.feed();
  const wait = () => { watchdog.feed(); composer.focus(); };
  const message = state === 'loading'
    ? 'Loading has made no progress for a while. Check your connection. You can wait, or load again.'
    : 'The model has said nothing for a while. It may still be working: you can wait, stop the answer, or load again.';
  banner.show({ message }, [{ label: 'Load again', run: load }, { label: 'Wait', run: wait }]);
}

// ---- asking -----------------------------------------------------------------------------------------------------

/** Whether a message may fit; one that surely does not is neither shown nor sent. */
function accepts(question) {
  const why = whyTooLong(question, state === 'loading' ? null : runner);
  notices.say('length', why);
  return why === null;
}

function send(question) {
  if (state === 'ready') ask(question);
  else queue.add(question);
}

function answerNext() {
  const next = state === 'ready' ? queue.take() : null;
  if (next) ask(next.question, next.view);
}

/** @param {boolean} again another answer to the last question, in place of the one there is */
async function ask(question, view = chat.addTurn(question), again = false) {
  const current = /** @type {Turn} */ ({ view, question, stream: null, ended: false });
  const storing = stored.begin(again);
  turn = current;
  if (state === 'ready') banner.hide();
  setState('answering');
  watchdog.feed();
  const asked = engine;
  try {
    await navigation.opening;
    if (current.ended) return;
    current.stream = await asked.respond(question, again);
    for await (const event of current.stream) {
      if (asked !== engine) return;
      if (event.type === 'stored') {
        storing.stored(event);
        if (event.request) view.offerFeedback(event.request, asked.learning);
      }
      if (current.ended || event.type === 'stored') continue; // an answer that was stopped is stored, too
      watchdog.feed();
      if (banner.isShown) banner.hide();
      onEvent(current, event);
    }
    if (!current.ended) throw new Error('the answer ended without a word');
  } catch (error) {
    if (!current.ended) fail(fromError(error));
  } finally {
    storing.end();
    if (asked === engine) follow(asked);
  }
}

function onEvent(current, event) {
  endRecovery();
  if (event.type === 'delta') {
    current.view.append(event.text);
  } else if (event.type === 'thought') {
    current.view.appendThought(event.text);
  } else if (event.type === 'reading') {
    current.view.showReading(event.done, event.total);
  } else if (event.type === 'route') {
    current.view.showRoute(event, engine.memory);
  } else if (event.type === 'lesson') {
    current.view.showLesson(event, engine.learning);
  } else if (event.type === 'learned') {
    current.view.showLearned(event, engine.learning);
  } else if (event.type === 'done') {
    window.sonata.lastAnswer = event;
    status.showRate(event.decodeTokS);
    models.measure(event.newTokens, event.decodeTokS);
    end(current, event);
    answerNext();
    askToPersist(); // not before: a visitor who only looks in is not asked anything
  } else if (event.kind === 'ContextFullError') {
    interrupt(current);
    banner.show(describe(event), []);
    answerNext();
  } else {
    fail(event);
  }
}

/** The answer is over for the page, whatever the worker still does. */
function end(current, ending) {
  if (current.ended) return;
  current.ended = true;
  endRecovery();
  current.view.finish(ending, () => tryAgain(current));
  watchdog.stop();
  if (turn === current) turn = null;
  if (state === 'answering') setState('ready');
}

function tryAgain({ view, question }) {
  if (state !== 'ready') return;
  view.remove();
  ask(question, chat.addTurn(question), true);
}

/** The answer failed: keep what there is of it, and give the question back to the message box. */
function interrupt(current) {
  current.stream?.return();
  end(current, { reason: 'failed' });
  if (!current.view.text) current.view.remove();
  giveBack(current.question);
}

/** Put a question that has no answer back into the message box. */
function giveBack(question) {
  if (!composer.text) composer.text = question;
  composer.focus();
}

/** @returns {boolean} whether there was an answer to stop */
function stop() {
  if (!turn) return false;
  banner.hide();
  end(turn, { reason: 'stopped' });
  tell(engine.stop());
  answerNext();
  return true;
}

/** The model starts a new conversation. */
function forget() {
  banner.hide();
  status.showRate(null);
  tell(engine.newChat());
}

/** The conversation on the page was deleted. */
function onGone() {
  if (state === 'ready') forget();
}

/** The page is about to go: what was asked and has no answer yet goes back into the message box. */
function keepQuestions() {
  const questions = [...(turn ? [turn.question] : []), ...queue.questions];
  if (questions.length) composer.keep(questions.join('\n\n'));
}

function useExample(text) {
  composer.focus(); // the example is about to vanish, and the focus with it
  if (state === 'failed') composer.text = text;
  else send(text);
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
  presence.answering(next === 'answering');
  composer.setState({ open: next === 'ready' || next === 'loading', answering: next === 'answering' });
}
