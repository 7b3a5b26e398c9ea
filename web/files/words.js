/** Sizes and places of files, in the page's language. */
import { currentLanguage, t } from '../i18n/i18n.js';

/** @param {number} bytes */
export function formatSize(bytes) {
  const units = ['byte', 'kilobyte', 'megabyte'];
  const at = bytes < 1000 ? 0 : bytes < 1e6 ? 1 : 2;
  const value = bytes / 1000 ** at;
  const digits = at && value < 10 ? 1 : 0;
  return new Intl.NumberFormat(currentLanguage(), { style: 'unit', unit: units[at], maximumFractionDigits: digits }).format(value);
}

/** @param {number} share 0 to 1 */
export function formatShare(share) {
  return new Intl.NumberFormat(currentLanguage(), { style: 'percent' }).format(share);
}

const PLACES = [ // as py_core/passages/chunks.py writes them
  [/^page (\d+)$/, 'files.page'],
  [/^line (\d+)$/, 'files.line'],
  [/^line (\d+), character ([\d,]+)$/, 'files.character'],
  [/^lines (\d+)-(\d+)$/, 'files.lines'],
  [/^row (\d+)$/, 'files.row'],
  [/^rows (\d+)-(\d+)$/, 'files.rows'],
];

/** Where a passage stands. @param {string} place in English, or the headings above it */
export function placeWords(place) {
  for (const [pattern, key] of PLACES) {
    const found = /** @type {RegExp} */ (pattern).exec(place);
    if (found) return t(/** @type {string} */ (key), { first: found[1], last: found[2] ?? '' });
  }
  return place;
}
