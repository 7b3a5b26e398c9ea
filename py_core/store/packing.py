"""Many rows as one JSON text and one run of bytes: the format between Python and JavaScript, and of exports.

The JSON is a list with an entry per row: [kind, id, created, updated, body bytes, vector bytes or -1, fields, version].
The bytes are each row's body and then its vector, in the same order. web/memory/packing.js does the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from py_core.store.errors import StoreError
from py_core.store.rows import Row

LARGEST_TIME = 1e300  # an int may have more digits than a float can hold


def pack(rows: Sequence[Row]) -> tuple[list[list[Any]], bytes]:
    head, parts = list[list[Any]](), list[bytes]()
    for row in rows:
        vector_bytes = -1 if row.vector is None else len(row.vector)
        times = (row.created, row.updated)
        head.append([row.kind, row.id, *times, len(row.body), vector_bytes, list(map(list, row.fields)), row.version])
        parts.append(row.body)
        if row.vector is not None:
            parts.append(row.vector)
    return head, b"".join(parts)


def unpack(head: Sequence[Any], data: bytes) -> list[Row]:
    """Unpack rows. Raises StoreError("damaged") unless the head fits the bytes exactly."""
    rows, at = list[Row](), 0
    for entry in head:
        if not _is_entry(entry):
            raise StoreError("damaged")
        kind, id, created, updated, body_bytes, vector_bytes, fields, version = entry
        body = data[at : at + body_bytes]
        at += body_bytes
        vector = None if vector_bytes < 0 else data[at : at + vector_bytes]
        at += max(vector_bytes, 0)
        found_by = tuple((name, value) for name, value in fields)
        rows.append(Row(kind, id, float(created), float(updated), body, vector, found_by, version))
    if at != len(data):
        raise StoreError("damaged")
    return rows


def _is_entry(entry: Any) -> bool:
    match entry:
        case [str(), str(), created, updated, int(body), int(vector), list(fields), int()]:
            times = all(isinstance(t, int | float) and abs(t) <= LARGEST_TIME for t in (created, updated))
            named = all(isinstance(f, list) and len(f) == 2 and isinstance(f[0], str) for f in fields)
            return times and named and body >= 0 and vector >= -1
    return False


def head_json(head: list[list[Any]]) -> str:
    return json.dumps(head, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
