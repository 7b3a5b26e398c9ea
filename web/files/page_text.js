/**
 * The text of a PDF's page from the pieces that PDF.js finds on it. A gap wider than a space becomes a tab, an empty cell lies
 * between two tabs; lines that are drawn from the bottom up are reversed; columns of prose are read one after the other.
 */
const GAP = 1.5; // heights of a letter: spaces are narrower
const MOST_CELLS = 60; // of a line; a line with more is not a row of a table
const SAYS = new Set(['FreeText', 'Text', 'Highlight', 'Underline', 'StrikeOut', 'Squiggly', 'Square', 'Circle', 'Line', 'Polygon', 'PolyLine', 'Ink', 'Stamp', 'Caret']);

/** @typedef {{text: string, x: number, end: number}} Cell a piece of a line, from its left to its right edge */
/** @typedef {{cells: Cell[], y: number, size: number}} Line */
/** @typedef {{x: number, end: number}} Span the extent of a column */

/** @param {any[]} items of `getTextContent` @returns {string} */
export function pageText(items) {
  if (!items.every(isPlain)) return items.map((item) => `${item.str ?? ''}${item.hasEOL ? '\n' : ''}`).join('');
  const lines = linesOf(items);
  if (isUpward(lines)) lines.sort((one, other) => other.y - one.y);
  const texts = [];
  for (let at = 0; at < lines.length;) {
    const { rows, columns } = block(lines, at);
    texts.push(...(isProse(rows, columns) ? columnByColumn(rows, columns) : rows.map((row) => rowText(row, columns))));
    at += rows.length;
  }
  return texts.join('\n');
}

/**
 * Values of forms as "name: value", and the text of notes. @param {any[]} annotations of `getAnnotations` @returns {string[]}
 */
export function fieldsAndNotes(annotations) {
  const said = annotations.map((one) => {
    if (one.subtype === 'Widget') return field(one);
    const text = SAYS.has(one.subtype) ? one.contentsObj?.str.trim() : '';
    return text && one.titleObj?.str ? `${one.titleObj.str}: ${text}` : text;
  });
  return [...new Set(said)].filter(Boolean).map((text) => text.replaceAll(/\r\n?/g, '\n'));
}

function field({ fieldName, alternativeText, fieldValue, options, password }) {
  const shown = (value) => options?.find(({ exportValue }) => exportValue === value)?.displayValue ?? value;
  const values = [fieldValue].flat().filter((value) => typeof value === 'string' && value.trim());
  return values.length && !password ? `${alternativeText || fieldName}: ${values.map(shown).join(', ')}` : '';
}

/** True if text runs left to right, and level. */
function isPlain({ str, dir, transform }) {
  return str === undefined || !str.trim() || (dir === 'ltr' && transform[0] > 0 && !transform[1] && !transform[2]);
}

/** @param {any[]} items @returns {Line[]} without empty ones */
function linesOf(items) {
  const lines = [];
  let line = /** @type {Line} */ ({ cells: [], y: 0, size: 0 });
  let isOpen = false; // the next piece continues the last cell
  for (const { str, transform, width, height, hasEOL } of items) {
    const last = line.cells.at(-1);
    if (str?.trim()) {
      const [x, y] = [transform[4], transform[5]];
      if (last && isOpen) Object.assign(last, { text: last.text + str, end: Math.max(last.end, x + width) });
      else line.cells.push({ text: str, x, end: x + width });
      if (!last) Object.assign(line, { y, size: height });
      isOpen = true;
    } else if (str && last) {
      isOpen = isOpen && width <= GAP * line.size;
      if (isOpen) last.text += str;
    }
    if (!hasEOL) continue;
    if (line.cells.length) lines.push(line);
    line = { cells: [], y: 0, size: 0 };
    isOpen = false;
  }
  return line.cells.length ? [...lines, line] : lines;
}

/** True if most lines stand above the previous one. @param {Line[]} lines */
function isUpward(lines) {
  const steps = lines.slice(1).map(({ y, size }, at) => (Math.abs(y - lines[at].y) > size / 2 ? Math.sign(y - lines[at].y) : 0));
  return steps.reduce((sum, step) => sum + step, 0) > 0;
}

/**
 * The lines from a given one on that share its columns.
 * @param {Line[]} lines @returns {{rows: Line[], columns: Span[]}} one line alone, if it is not cut by a gap
 */
function block(lines, first) {
  const several = ({ cells }) => cells.length > 1 && cells.length <= MOST_CELLS;
  let columns = /** @type {Span[]} */ (lines[first].cells), after = first + 1;
  if (!several(lines[first])) return { rows: [lines[first]], columns };
  let end = after, known = columns;
  for (; after < lines.length && lines[after].cells.length <= MOST_CELLS && lines[after].y < lines[after - 1].y; after += 1) {
    const joined = join([...columns, ...lines[after].cells]);
    if (joined.length < 2) break;
    columns = joined;
    const isNear = lines[after - 1].y - lines[after].y < 2 * lines[after].size; // the longer of two columns continues
    if (several(lines[after]) || (isNear && end === after)) [end, known] = [after + 1, columns];
  }
  return { rows: lines.slice(first, end), columns: known };
}

/** Merges overlapping spans. @param {Span[]} spans @returns {Span[]} from left to right */
function join(spans) {
  const joined = /** @type {Span[]} */ ([]);
  for (const { x, end } of [...spans].sort((one, other) => one.x - other.x)) {
    const last = joined.at(-1);
    if (last && x < last.end) last.end = Math.max(last.end, end);
    else joined.push({ x, end });
  }
  return joined;
}

/** Each row's cells by their columns. @param {Line} row @param {Span[]} columns @returns {string[]} */
function cellsOf({ cells }, columns) {
  const texts = columns.map(() => /** @type {string[]} */ ([]));
  let at = 0;
  for (const { text, x } of [...cells].sort((one, other) => one.x - other.x)) {
    while (at < columns.length - 1 && x >= columns[at].end) at += 1;
    texts[at].push(text.trim());
  }
  return texts.map((parts) => parts.join('\t'));
}

function rowText(row, columns) {
  return cellsOf(row, columns).join('\t').trimEnd();
}

/**
 * True if sentences continue in the next line of their column, so that it is not a table. @param {Line[]} rows @param {Span[]}
 * columns
 */
function isProse(rows, columns) {
  if (rows.length < 3 || columns.length < 2 || columns.length > 3) return false;
  const cells = rows.map((row) => cellsOf(row, columns));
  return columns.every((_, number) => {
    const texts = cells.map((row) => row[number]).filter(Boolean);
    const words = texts.reduce((sum, text) => sum + text.split(/\s+/).length, 0);
    const goesOn = texts.slice(1).filter((text) => /^\p{Ll}/u.test(text)).length;
    return words >= 3 * texts.length && goesOn >= 0.4 * (texts.length - 1);
  });
}

function columnByColumn(rows, columns) {
  const cells = rows.map((row) => cellsOf(row, columns));
  return columns.flatMap((_, number) => cells.map((row) => row[number]).filter(Boolean));
}
