/** Rows of the memory as one JSON text and one run of bytes, as py_core/store/packing.py describes. */

/** @returns {{ head: string, data: Uint8Array }} */
export function pack(rows) {
  const head = rows.map(({ kind, id, created, updated, body, vector, fields, version }) => [
    kind, id, created, updated, body.length, vector ? vector.length : -1, fields.map((field) => field.slice(1)), version,
  ]);
  const data = new Uint8Array(head.reduce((sum, entry) => sum + entry[4] + Math.max(entry[5], 0), 0));
  let at = 0;
  for (const { body, vector } of rows) {
    for (const part of [body, vector]) {
      if (!part) continue;
      data.set(part, at);
      at += part.length;
    }
  }
  return { head: JSON.stringify(head), data };
}

/** The rows of a head (already parsed) and its bytes, as IndexedDB keeps them. */
export function unpack(head, data) {
  let at = 0;
  // slice, not subarray: a view would be stored with all the bytes around it
  const take = (length) => data.slice(at, (at += length));
  return head.map(([kind, id, created, updated, bodyBytes, vectorBytes, fields]) => {
    const body = take(bodyBytes);
    const vector = vectorBytes < 0 ? undefined : take(vectorBytes);
    return { kind, id, created, updated, body, vector, fields: fields.map((field) => [kind, ...field]) };
  });
}
