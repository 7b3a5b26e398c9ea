/** Reads a file of the user as bytes for Python: a PDF becomes its text first, and a spreadsheet CSV. */
import { userError } from '../common/user_error.js';
import { t } from '../i18n/i18n.js';
import { isGguf } from './split_models.js';

// As in app/files/text.py: a file that is too large is not even read.
const MOST_BYTES = 4_000_000;
const MOST_PDF_BYTES = 100_000_000;
const PDF = 'application/pdf';
const WORKBOOK = /\.xls[xm]?$/i;

/** @param {File} file */
function isPdf(file) {
  return file.type === PDF || /\.pdf$/i.test(file.name);
}

/**
 * @param {File} file
 * @param {(page: number, pages: number) => void} onPage called for each page of a PDF
 * @param {AbortSignal} signal stops it: then it rejects with the signal's reason
 * @returns {Promise<{data: Uint8Array, type: string, sheets?: File[]}>} `sheets`: of a spreadsheet, as files; `data` is the first.
 *   Rejects with a sentence for the user
 */
export async function readFile(file, onPage, signal) {
  if (await isGguf(file)) return { data: new TextEncoder().encode('GGUF'), type: file.type }; // Python says what to do with it
  const most = isPdf(file) ? MOST_PDF_BYTES : MOST_BYTES;
  if (file.size > most) throw userError('FileError', t('files.tooLarge', { name: file.name, megabytes: most / 1e6 }));
  let bytes;
  try {
    bytes = await file.arrayBuffer();
  } catch { // it is a folder, or was deleted meanwhile
    throw userError('FileError', t('files.notRead', { name: file.name }));
  }
  if (WORKBOOK.test(file.name)) {
    const { sheetsOf } = await import('../interpreter/python_runs.js');
    const sheets = await sheetsOf(new Uint8Array(bytes), file.name, signal);
    const base = file.name.replace(WORKBOOK, '');
    const named = sheets.map(({ name, text }, at) => new File([text], at ? `${base}, ${name.replace(/[/\\]/g, '_')}.csv` : `${base}.csv`, { type: 'text/csv' }));
    return { data: new Uint8Array(await named[0].arrayBuffer()), type: 'text/csv', sheets: named };
  }
  if (!isPdf(file)) return { data: new Uint8Array(bytes), type: file.type };
  const { textOfPdf } = await import('./pdf.js');
  const text = await textOfPdf(bytes, file.name, onPage, signal);
  return { data: new TextEncoder().encode(text || '\f'), type: PDF };
}
