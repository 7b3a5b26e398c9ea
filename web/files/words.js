/** Names places in files in the page's language. */
import { t } from '../i18n/i18n.js';

const PLACES = [ // as py_core/passages/chunks.py writes them
  [/^page (\d+)$/, 'files.page'],
  [/^pages (\d+)-(\d+)$/, 'files.pages'],
  [/^line (\d+)$/, 'files.line'],
  [/^line (\d+), character ([\d,]+)$/, 'files.character'],
  [/^lines (\d+)-(\d+)$/, 'files.lines'],
  [/^row (\d+)$/, 'files.row'],
  [/^rows (\d+)-(\d+)$/, 'files.rows'],
];

/** The place of a passage. @param {string} place in English, or the headings above it */
export function placeWords(place) {
  for (const [pattern, key] of PLACES) {
    const found = /** @type {RegExp} */ (pattern).exec(place);
    if (found) return t(/** @type {string} */ (key), { first: found[1], last: found[2] ?? '' });
  }
  return place;
}
