/** The rows of a table: sorted, and as CSV, JSON, and what a spreadsheet takes from the clipboard. */
import { currentLanguage } from '../i18n/i18n.js';

/**
 * @typedef {import('../protocol_calls.js').TableCell & {isEdited?: boolean}} Cell
 * @typedef {import('../protocol_calls.js').TableColumn} Column
 */

const FORMULA = /^[=@\t\r]|^[+-](?![\d\s()./-]*$)/; // what a spreadsheet may take for a formula; not a number or a telephone
const ISO = /(\d{4})-(\d{1,2})-(\d{1,2})/;
const DOTTED = /(\d{1,2})[./]\s?(\d{1,2})[./]\s?(\d{4})/;
const DAY_FIRST = /(\d{1,2})\.?\s+(\p{L}{3})\p{L}*\.?,?\s+(\d{4})/u;
const MONTH_FIRST = /(\p{L}{3})\p{L}{0,9}\.?\s{1,3}(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})/u;
const MONTHS = ['jan', 'feb', 'mar mär mae', 'apr', 'may mai', 'jun', 'jul', 'aug', 'sep', 'oct okt', 'nov', 'dec dez'];

/**
 * @param {Cell[][]} rows @param {Column[]} columns @param {{column: number, direction: 1|-1}|null} sorting
 * @returns {Cell[][]} empty cells come last
 */
export function sorted(rows, columns, sorting) {
  if (!sorting || !columns[sorting.column]) return rows;
  const { column, direction } = sorting;
  const { compare } = new Intl.Collator(currentLanguage(), { numeric: true });
  const keys = new Map(rows.map((row) => [row, keyOf(row[column].value, columns[column].kind)]));
  const order = (one, other) => {
    const [a, b] = [keys.get(one), keys.get(other)];
    if (a === '' || b === '') return Number(a === '') - Number(b === '');
    if (typeof a === 'number' && typeof b === 'number') return direction * (a - b);
    return typeof a === typeof b ? direction * compare(String(a), String(b)) : typeof a === 'number' ? -1 : 1;
  };
  return [...rows].sort(order);
}

/** @returns {number|string} a number for a number, or for a date that can be read */
function keyOf(value, kind) {
  if (kind === 'number') return value === '' || Number.isNaN(Number(value)) ? value : Number(value);
  return (kind === 'date' && dateKey(value)) || value;
}

/** @param {string} text @returns {number} 20260303; 0 if it is no whole date, in English or German. 3/4/2026 is in April. */
function dateKey(text) {
  const monthOf = (word) => MONTHS.findIndex((names) => names.split(' ').includes(word.toLowerCase())) + 1;
  const key = (year, month, day) => (month ? 10_000 * Number(year) + 100 * Number(month) + Number(day) : 0);
  const [iso, dotted, day, month] = [ISO, DOTTED, DAY_FIRST, MONTH_FIRST].map((form) => form.exec(text));
  if (iso) return key(iso[1], iso[2], iso[3]);
  if (dotted) return key(dotted[3], dotted[2], dotted[1]);
  if (day) return key(day[3], monthOf(day[2]), day[1]);
  return month ? key(month[3], monthOf(month[1]), month[2]) : 0;
}

/** A cell that is no formula: a text from elsewhere must not run in a spreadsheet. @param {string} value */
const harmless = (value) => (FORMULA.test(value) ? `'${value}` : value);

/** RFC 4180, with the mark by which spreadsheets know UTF-8. @param {Cell[][]} rows @param {Column[]} columns */
export function asCsv(rows, columns) {
  const quoted = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  return `\ufeff${lines(rows, columns).map((cells) => `${cells.map(quoted).join(',')}\r\n`).join('')}`;
}

/** For the clipboard: tabs between cells. @param {Cell[][]} rows @param {Column[]} columns */
export function asTabs(rows, columns) {
  return lines(rows, columns).map((cells) => cells.map((cell) => cell.replace(/\s+/g, ' ')).join('\t')).join('\n');
}

/** A list of objects; numbers are numbers, and null if there is none. @param {Cell[][]} rows @param {Column[]} columns */
export function asJson(rows, columns) {
  const valueOf = ({ value }, kind) => {
    if (kind !== 'number') return value;
    return value === '' ? null : Number.isNaN(Number(value)) ? value : Number(value);
  };
  const objects = rows.map((row) => Object.fromEntries(row.map((cell, at) => [columns[at].name, valueOf(cell, columns[at].kind)])));
  return `${JSON.stringify(objects, null, 2)}\n`;
}

/** @param {Cell[][]} rows @param {Column[]} columns */
function lines(rows, columns) {
  return [columns.map(({ name }) => name), ...rows.map((row) => row.map(({ value }) => value))].map((cells) => cells.map(harmless));
}
