/** Extracts the text of a PDF, page by page, with PDF.js, which is loaded when the first PDF is attached. */
import { ownScript } from '../common/own_script.js';
import { userError } from '../common/user_error.js';
import { t } from '../i18n/i18n.js';
import { fieldsAndNotes, pageText } from './page_text.js';

// A file of 2 kB may say that it has a billion pages, draw one form in another without end, or unpack to gigabytes.
const MOST_PAGES = 5000;
const MOST_CHARACTERS = 2_000_000; // app/files/text.py accepts half of it, and says so
const MOST_PAGE_MS = 20_000;
const MOST_MS = 180_000;

const vendor = (path) => new URL(`../vendor/pdf/${path}`, import.meta.url).href;

/**
 * @param {ArrayBuffer} data
 * @param {string} name for error messages
 * @param {(page: number, pages: number) => void} onPage
 * @param {AbortSignal} signal stops it: then it rejects with the signal's reason
 * @returns {Promise<string>} the pages' texts, separated by form feeds
 */
export async function textOfPdf(data, name, onPage, signal) {
  let library;
  try {
    library = await import(vendor('pdf.min.mjs'));
  } catch {
    throw userError('FileError', t('files.noReader'));
  }
  signal.throwIfAborted();
  const worker = new Worker(ownScript(new URL('./pdf_worker.js', import.meta.url)), { type: 'module', name: 'sonata-pdf' });
  const port = library.PDFWorker.create({ port: worker });
  const opening = library.getDocument({ verbosity: library.VerbosityLevel.ERRORS, data, worker: port, cMapUrl: vendor('cmaps/'), cMapPacked: true, useSystemFonts: true });
  const watch = new Watch(worker, name, signal);
  try {
    return await Promise.race([textOfPages(opening, name, onPage, watch), watch.stopped]);
  } catch (error) {
    if (signal.aborted || error.name === 'FileError') throw error;
    const why = error.name === 'PasswordException' ? 'files.pdfLocked' : 'files.pdfDamaged';
    throw userError('FileError', t(why, { name }));
  } finally {
    watch.end();
    opening.destroy().catch(() => {});
    worker.terminate();
  }
}

async function textOfPages(opening, name, onPage, watch) {
  const pdf = await opening.promise;
  if (pdf.numPages > MOST_PAGES) throw userError('FileError', t('files.pdfPages', { name, pages: pdf.numPages, most: MOST_PAGES }));
  const texts = [];
  let room = MOST_CHARACTERS, isForm = false;
  for (let number = 1; number <= pdf.numPages; number += 1) {
    onPage(number, pdf.numPages);
    watch.next();
    const page = await pdf.getPage(number);
    const items = [];
    const reader = page.streamTextContent().getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      for (const item of part.value.items) room -= (item.str?.length ?? 0) + 1;
      if (room < 0) throw watch.tooMuch;
      items.push(...part.value.items);
    }
    const annotations = await page.getAnnotations();
    isForm ||= annotations.some(({ subtype }) => subtype === 'Widget');
    const beside = fieldsAndNotes(annotations);
    for (const text of beside) room -= text.length;
    if (room < 0) throw watch.tooMuch;
    texts.push([pageText(items), ...beside].filter(Boolean).join('\n').replaceAll('\f', ' '));
    page.cleanup();
  }
  if (isForm && !texts.some((text) => text.trim())) throw userError('FileError', t('files.pdfEmptyForm', { name }));
  return texts.join('\f');
}

/** Stops the reading of a PDF that takes too long or too much memory, or that the user removed. */
class Watch {
  tooMuch;
  stopped;
  #stop = /** @type {(why: any) => void} */ (() => {});
  #until = performance.now() + MOST_MS;
  #timer = 0;
  #ended = new AbortController();

  constructor(worker, name, signal) {
    this.tooMuch = userError('FileError', t('files.pdfTooMuch', { name }));
    this.stopped = /** @type {Promise<never>} */ (new Promise((_, reject) => { this.#stop = reject; }));
    this.stopped.catch(() => {});
    signal.addEventListener('abort', () => this.#stop(signal.reason), { signal: this.#ended.signal });
    worker.addEventListener('message', ({ data }) => { if (data?.isTooLarge) this.#stop(this.tooMuch); }, { signal: this.#ended.signal });
    this.next();
  }

  /** Called when another page begins. */
  next() {
    clearTimeout(this.#timer);
    const left = Math.min(MOST_PAGE_MS, this.#until - performance.now());
    this.#timer = setTimeout(() => this.#stop(this.tooMuch), left);
  }

  end() {
    clearTimeout(this.#timer);
    this.#ended.abort();
  }
}
