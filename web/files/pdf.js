/** The text of a PDF, page by page, by PDF.js, which is loaded when the first one is attached. */
import { ownScript } from '../common/own_script.js';
import { userError } from '../common/user_error.js';
import { t } from '../i18n/i18n.js';

const here = (path) => new URL(`../vendor/pdf/${path}`, import.meta.url).href;

/**
 * @param {ArrayBuffer} data
 * @param {string} name for sentences
 * @param {(page: number, pages: number) => void} onPage
 * @returns {Promise<string>} the pages' texts, with a form feed between two
 */
export async function textOfPdf(data, name, onPage) {
  let library;
  try {
    library = await import(here('pdf.min.mjs'));
  } catch {
    throw userError('LoadError', t('files.noReader'));
  }
  const worker = new Worker(ownScript(new URL(here('pdf.worker.min.mjs'))), { type: 'module', name: 'sonata-pdf' });
  const port = library.PDFWorker.create({ port: worker });
  const opening = library.getDocument({ verbosity: library.VerbosityLevel.ERRORS, data, worker: port, cMapUrl: here('cmaps/'), cMapPacked: true, useSystemFonts: true });
  try {
    const pdf = await opening.promise;
    const texts = [];
    for (let number = 1; number <= pdf.numPages; number += 1) {
      onPage(number, pdf.numPages);
      const page = await pdf.getPage(number);
      const { items } = await page.getTextContent();
      texts.push(items.map((item) => `${item.str ?? ''}${item.hasEOL ? '\n' : ''}`).join(''));
      page.cleanup();
    }
    return texts.map((text) => text.replaceAll('\f', ' ')).join('\f');
  } catch (error) {
    const why = error.name === 'PasswordException' ? 'files.pdfLocked' : 'files.pdfDamaged';
    throw userError('FileError', t(why, { name }));
  } finally {
    opening.destroy().catch(() => {});
    worker.terminate();
  }
}
