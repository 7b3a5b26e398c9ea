/** Colours for code, from a worker that starts with the first code block. One block at a time. */
import { loadStyles } from '../common/page_files.js';
import { ownScript } from '../common/own_script.js';

const PATIENCE_MS = 1500; // if a grammar takes longer for a block, the block stays plain
const START_PATIENCE_MS = 30_000; // until the files are there
const MOST_FAILURES = 3; // then code stays plain

/** @typedef {[colour: string, length: number]} Run */

/** @type {{request: {language: string, text: string, from: number}, resolve: (runs: Run[]|null) => void}[]} */
const waiting = [];
let worker = /** @type {Promise<Worker>|null} */ (null);
let isBusy = false;
let failures = 0;

/**
 * @param {string} language as code_languages.js names it
 * @param {string} text including the text before the wanted part
 * @param {number} from the beginning of that part
 * @returns {Promise<Run[]|null>} null: it stays plain
 */
export function highlight(language, text, from = 0) {
  return new Promise((resolve) => {
    waiting.push({ request: { language, text, from }, resolve });
    if (!isBusy) next();
  });
}

async function next() {
  const job = waiting.shift();
  isBusy = job !== undefined;
  if (!job) return;
  job.resolve(failures < MOST_FAILURES ? await ask(job.request) : null);
  next();
}

/** @returns {Promise<Run[]|null>} */
async function ask(request) {
  const asked = await (worker ??= start()).catch(() => null);
  const answered = asked && told(asked, PATIENCE_MS);
  asked?.postMessage(request);
  const runs = await answered;
  if (runs) return runs;
  failures += 1;
  asked?.terminate();
  worker = null;
  return null;
}

async function start() {
  loadStyles('markdown/code.css').catch(() => {});
  const started = new Worker(ownScript(new URL('./highlight_worker.js', import.meta.url)), { type: 'module', name: 'sonata-highlight' });
  if (await told(started, START_PATIENCE_MS)) return started;
  started.terminate();
  throw new Error('the worker that highlights code did not start');
}

/** The worker's next message; null if it fails, or is silent for the given time. @returns {Promise<any>} */
function told(asked, patience) {
  return new Promise((resolve) => {
    const timer = setTimeout(() => say(null), patience);
    const say = (data) => {
      clearTimeout(timer);
      resolve(data);
    };
    asked.onmessage = ({ data }) => say(data);
    asked.onerror = (event) => {
      event.preventDefault();
      say(null);
    };
  });
}
