/**
 * Rows that something other than Sonata may have written: any value that a browser can keep. A value of another type than we
 * write is replaced by one that no record can be read from, so that it is counted, left out of exports, and deleted.
 */

const NAMELESS = '\0'; // prefix of the id of a row whose kind or id is not text; the rest is its key, as JSON
const UNKNOWN_TIME = -1; // replaces an invalid time: py_core/store/rows.py
const MENDED_REVISION = 2 ** 40; // the same

/** A row in the form that Python can take. Rows of version 1 have no fields. */
export function mended({ kind, id, created, updated, version, body, vector, fields }) {
  const named = typeof kind === 'string' && typeof id === 'string' && !id.startsWith(NAMELESS);
  return {
    kind: typeof kind === 'string' ? kind : '',
    id: named ? id : NAMELESS + JSON.stringify(asJson([kind, id])),
    created: timeOf(created),
    updated: timeOf(updated),
    version: Number.isSafeInteger(version) ? version : 0,
    body: body instanceof Uint8Array ? body : new Uint8Array(),
    vector: vector === undefined || vector instanceof Uint8Array ? vector : new Uint8Array(), // empty: no vector can be read
    fields: Array.isArray(fields) ? fields.filter((field) => Array.isArray(field) && typeof field[1] === 'string') : [],
  };
}

/** The key of a row to which `mended` gave this kind and id. */
export function keyOf([kind, id]) {
  return id.startsWith(NAMELESS) ? fromJson(JSON.parse(id.slice(NAMELESS.length))) : [kind, id];
}

/** The meta entries of a database, as text. py_core/store/rows.py: mended_meta */
export async function readMeta(store) {
  const [names, values] = await Promise.all([store.getAllKeys(), store.getAll()]);
  const meta = Object.fromEntries(names.map((name, index) => [name, String(values[index])]));
  if (!isNumber(meta.schema) || Number(meta.schema) < 1) meta.schema = '1';
  if (!isNumber(meta.revision)) meta.revision = String(MENDED_REVISION);
  return meta;
}

/** Ids of requests that were done, as meta stores them. @returns {string[]} */
export function requestsIn(meta) {
  try {
    const requests = JSON.parse(meta.requests ?? '[]');
    return Array.isArray(requests) ? requests : [];
  } catch {
    return [];
  }
}

/** Any key of IndexedDB: text, a number, a date, bytes, or a list of keys. */
function asJson(key) {
  if (Array.isArray(key)) return key.map(asJson);
  if (typeof key === 'string') return key;
  if (typeof key === 'number') return { number: String(key) };
  if (key instanceof Date) return { date: key.getTime() };
  return { bytes: [...new Uint8Array(key.buffer ?? key)] };
}

function fromJson(key) {
  if (Array.isArray(key)) return key.map(fromJson);
  if (typeof key === 'string') return key;
  if ('number' in key) return Number(key.number);
  return 'date' in key ? new Date(key.date) : new Uint8Array(key.bytes);
}

function timeOf(seconds) {
  return typeof seconds === 'number' && Math.abs(seconds) < 1e300 ? seconds : UNKNOWN_TIME;
}

function isNumber(text) {
  return /^\d{1,15}$/.test(text ?? '');
}
