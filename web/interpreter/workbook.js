/**
 * The sheets of a spreadsheet as CSV. A stranger made the file, so it is read in a worker of its own, where nothing of the page can
 * be reached (decision 0116), by openpyxl (app/interpreter/workbook.py).
 */
import { userError } from '../common/user_error.js';
import { t } from '../i18n/i18n.js';
import { loadPackages } from './chat_python.js';
import { Interpreter, part } from './interpreter.js';

const OLE = [0xd0, 0xcf, 0x11, 0xe0]; // begins an old spreadsheet, and one that is encrypted
const ENCRYPTED = 'E\0n\0c\0r\0y\0p\0t\0e\0d\0P\0a\0c\0k\0a\0g\0e\0';

/**
 * @param {Uint8Array<ArrayBuffer>} bytes @param {string} name of the file @param {AbortSignal} signal ends the worker
 * @returns {Promise<{name: string, text: string}[]>} the sheets that are not empty, at least one. Rejects with a sentence
 */
export async function sheetsOf(bytes, name, signal) {
  const refuse = (why) => userError('FileError', t(`files.workbook_${why}`, { name }));
  if (OLE.every((byte, at) => bytes[at] === byte)) {
    throw refuse(new TextDecoder('latin1').decode(bytes).includes(ENCRYPTED) ? 'encrypted' : 'old');
  }
  const python = await Interpreter.start();
  const end = () => python.end();
  signal.addEventListener('abort', end);
  try {
    await loadPackages(python, ['openpyxl', 'et-xmlfile']);
    const source = new TextDecoder().decode(await part('interpreter/workbook.py'));
    await python.put('book.xlsx', bytes);
    await python.run(`${source}\nread_workbook('book.xlsx', 'sheets.json')`, () => {});
    signal.throwIfAborted();
    const found = await python.read('sheets.json').then((json) => JSON.parse(new TextDecoder().decode(json)), () => ({ problem: 'large' }));
    if (!Array.isArray(found?.sheets)) throw refuse(['damaged', 'empty'].includes(found?.problem) ? found.problem : 'large');
    return found.sheets.map(([sheet, text]) => ({ name: String(sheet), text: String(text) }));
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener('abort', end);
    end();
  }
}
