/** "Run" in the head of a block of Python. What runs it is loaded with the first click. */
import { iconNode } from '../common/icon.js';
import { element } from '../common/dom.js';
import { loadStyles } from '../common/page_files.js';
import { t } from '../i18n/i18n.js';

/**
 * The table and the question that code was written for: an analysis, whose code runs as soon as it is there.
 * @typedef {{table: string, question: string}} Analysis
 */
/**
 * `chat`: the conversation on the page, by when it was opened, and its id, null if it has not begun; `ask` sends a message,
 * about a table if one is named
 * @typedef {{engine: () => import('../engine/engine.js').Engine, chat: () => {opening: number, id: string|null},
 *   ask: (text: string, table?: string|null) => void, say: (sentence: string|null) => void}} Page
 */

let page = /** @type {Page|null} */ (null);
/** @type {WeakMap<Element, (analysis: Analysis) => void>} */
const starts = new WeakMap(); // of the buttons

/** @param {Page} given @param {import('../tools/page_tools.js').PageTools} tools */
export function offerPython(given, tools) {
  page = given;
  // app/page/tools.py has the definition, and offers it if the user allows it.
  tools.offer('python', [], async (_name, { code }, signal, show) => {
    const { runForModel } = await loadPython();
    return runForModel(String(code), signal, given, show);
  });
}

/** Load the modules that run Python in the page, and their styles. */
export async function loadPython() {
  const [runs] = await Promise.all([import('./python_runs.js'), loadStyles('interpreter/python.css')]);
  return runs;
}

/** The questions about wheels. @param {HTMLElement} before they stand before it */
export async function openWheels(before) {
  const { Wheels } = await loadPython();
  return new Wheels(before, /** @type {Page} */ (page));
}

/** @param {{element: HTMLElement, text: string}} figure a block of code @returns {HTMLButtonElement} */
export function runButton(figure) {
  const made = element('button', 'code-copy code-run');
  made.type = 'button';
  made.append(iconNode('play'), element('span', '', t('python.run')));
  const start = async (/** @type {Analysis|null} */ analysis) => {
    if (!page) return;
    page.say(null);
    try {
      (await loadPython()).toggle(figure, made, page, analysis);
    } catch {
      page.say(t('python.notLoaded'));
    }
  };
  made.addEventListener('click', () => start(null));
  starts.set(made, start);
  return made;
}

/** Run the code of an answer that the user has asked for to be run. @param {Element} answer @param {Analysis} analysis */
export function runAtOnce(answer, analysis) {
  const control = answer.querySelector('.code-run');
  if (control) starts.get(control)?.(analysis);
}
