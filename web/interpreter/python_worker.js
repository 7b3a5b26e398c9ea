/**
 * The user's Python: runs in a worker of an origin of its own (host_worker.js), with one port to the page.
 *
 * Messages to it: {run: code}, {needs: code}, {put: name, bytes}, {read: name}, {install: [zip]}, {wheel: bytes}, {tools: function, given}
 * (of app/tools/dropped_file.py), {stop: true}. Each but the last is answered by {end: any} or {error: string}, one after
 * the other; before, a run sends {output: JSON} of app/interpreter/session.py. The first message is {ready: true}, or {open: true} if the worker is not isolated.
 *
 * The user's code may do all that this script can do. What holds it is the origin and the policy, nothing here.
 */
import { putFiles } from '../engine/packed_files.js';

const MEMORY = 1 << 30; // bytes that Python may have
const FILES = 256 << 20; // bytes that its files may have
const PAGE = 65_536;
const FOLDER = '/home/user';
const WHEELS = '/lib/wheels';
const FORBIDDEN = ['js', 'pyodide', 'pyodide_js', '_pyodide', '_pyodide_core'];
const LOOK_MS = 100; // between two looks for a message to stop
const SIGINT = 2, SIGUSR1 = 10, SIGALRM = 14;
const NO_ROOM = 51; // Emscripten's ENOSPC

// Modules of the standard library that the page's own Python does not need, some in packages that it has.
const REST = '/lib/python_rest.zip';
const ADD_REST = `
import encodings, http, logging, sys
sys.path.append('${REST}')
for package in (encodings, http, logging):
    package.__path__.append(f'${REST}/{package.__name__}')
del encodings, http, logging, package, sys`;

let deadline = Infinity, nextLook = Infinity, isStopped = false;

/** @param {MessagePort} port @param {Record<string, Uint8Array<ArrayBuffer>>} files @param {(bytes: any) => string} address */
export async function begin(port, files, address) {
  try {
    if (!await isIsolated()) return port.postMessage({ open: true });
    const python = await boot(files, address);
    const session = sessionOf(python, files.session, (/** @type {string} */ output) => port.postMessage({ output }));
    listen(port, { python, ...session });
    port.postMessage({ ready: true });
  } catch (error) {
    port.postMessage({ error: String(error) });
  }
}

/** A policy that came with no header would not hold: the site is served without headers. */
async function isIsolated() {
  const connects = await fetch('data:,').then(() => true, () => false);
  return self.origin === 'null' && !connects;
}

/** Pyodide, from files alone: this worker can fetch nothing. */
async function boot(files, address) {
  limitMemory();
  console.error = console.warn = () => {}; // what Pyodide says of code that breaks it is no trouble of the page
  const { loadPyodide } = await import(address(files.pyodide));
  const { default: createPyodideModule } = await import(address(files.module));
  const types = { wasm: 'application/wasm', zip: 'application/zip' };
  const from = self.fetch;
  self.fetch = async (url) => {
    const kind = String(url).split('.').at(-1) ?? '';
    return new Response(files[kind], { headers: { 'Content-Type': types[kind] } });
  };
  const python = await loadPyodide({
    indexURL: 'https://python.invalid/', packages: [], lockFileContents: new TextDecoder().decode(files.lock), createPyodideModule,
    env: { HOME: FOLDER, MPLBACKEND: 'agg' },
  });
  self.fetch = from;
  python.FS.writeFile(REST, files.rest);
  python.runPython(ADD_REST);
  limitFiles(python.FS);
  return python;
}

/** Python's memory grows up to MEMORY: after that Python raises MemoryError. */
function limitMemory() {
  const { grow } = WebAssembly.Memory.prototype;
  WebAssembly.Memory.prototype.grow = function limited(pages) {
    if (this.buffer.byteLength + pages * PAGE > MEMORY) throw new RangeError('no more memory');
    return grow.call(this, pages);
  };
}

/** Files are kept in memory outside of Python's. */
function limitFiles(FS) {
  const { MEMFS } = FS.filesystems;
  const expand = MEMFS.expandFileStorage;
  let used = 0;
  MEMFS.expandFileStorage = (node, size) => {
    const before = node.contents?.length ?? 0;
    if (size > before && used + size - before > FILES) throw new FS.ErrnoError(NO_ROOM);
    expand(node, size);
    used += (node.contents?.length ?? 0) - before;
  };
}

/** app.interpreter.session.Session, and what it needs to be stopped. */
function sessionOf(python, source, tell) {
  const { sitePackages } = python._api;
  python.FS.writeFile(`${sitePackages}/sonata_session.py`, source);
  python.FS.mkdirTree(FOLDER);
  const { Session, imports_of, install_wheel } = python.pyimport('sonata_session');
  const session = Session(FOLDER, tell, python.toPy(FORBIDDEN));
  const canWait = 'Suspending' in WebAssembly;
  if (canWait) lookWhileRunning(python);
  python.setInterruptBuffer({
    get 0() { return signal(canWait); },
    set 0(_signal) { /* taken */ },
  });
  const call = (function_, ...given) => (canWait ? function_.callPromising(...given) : function_(...given));
  return { imports_of, install_wheel, call, run: (code) => call(session.run, code) };
}

/** The signal that is due: Python asks now and then while code runs. */
function signal(canWait) {
  const now = performance.now();
  if (isStopped) {
    isStopped = false;
    return SIGINT;
  }
  if (now > deadline) {
    deadline = now + 1000; // the code may have caught it
    return SIGALRM;
  }
  if (!canWait || now < nextLook) return 0;
  nextLook = now + LOOK_MS;
  return SIGUSR1;
}

/** While code runs, no message arrives: at this signal Python waits for JavaScript, which takes those that are there. */
function lookWhileRunning(python) {
  const { port1, port2 } = new MessageChannel();
  const look = () => new Promise((resolve) => {
    port1.onmessage = resolve;
    port2.postMessage(null);
  });
  python.globals.set('look', look);
  python.runPython(`
import signal
from pyodide.ffi import can_run_sync, run_sync

def look_for_messages(number, frame, look=look):
    if can_run_sync():
        run_sync(look())

signal.signal(signal.SIGUSR1, look_for_messages)
del look`);
}

/** Answer one message after the other. */
function listen(port, { python, imports_of, install_wheel, call, run }) {
  const { FS } = python;
  const at = (name) => `${FOLDER}/${name}`;
  const limited = async (seconds, begin) => {
    deadline = performance.now() + 1000 * seconds;
    nextLook = performance.now() + LOOK_MS;
    try {
      return await begin();
    } finally {
      deadline = nextLook = Infinity;
      isStopped = false;
    }
  };
  const answers = {
    run: ({ run: code, seconds }) => limited(seconds, () => run(code)),
    wheel: ({ wheel, seconds }) => limited(seconds, async () => {
      FS.writeFile('/tmp/a.whl', wheel);
      const why = await call(install_wheel, '/tmp/a.whl', WHEELS);
      FS.unlink('/tmp/a.whl');
      return why;
    }),
    tools: ({ tools: name, given, seconds }) => limited(seconds, () => call(python.pyimport('app.tools.dropped_file')[name], ...given)),
    needs: ({ needs }) => imports_of(needs).toJs(),
    put: ({ put, bytes }) => FS.writeFile(at(put), bytes),
    read: ({ read }) => FS.readFile(at(read)),
    install: ({ install }) => {
      for (const zip of install) putFiles(FS, python._api.sitePackages, zip);
      python.pyimport('importlib').invalidate_caches();
    },
  };
  let last = Promise.resolve();
  port.onmessage = ({ data }) => {
    if (data.stop) {
      isStopped = true;
      return;
    }
    const [kind] = Object.keys(data);
    last = last.then(() => answers[kind](data)).then(
      (end) => port.postMessage({ end }),
      (error) => port.postMessage({ error: String(error) }),
    );
  };
}
