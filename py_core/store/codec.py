"""Converts records to rows and back, encrypted if there is a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

from py_core.store.encryption import Lock, WrongKeyError
from py_core.store.errors import StoreError
from py_core.store.kinds import Kinds
from py_core.store.records import (
    Record,
    check_name,
    check_time,
    decode_body,
    decode_vector,
    encode_body,
    encode_vector,
    index_fields,
    is_name,
)
from py_core.store.rows import BLOB, Key, Row


def check_record(record: Record) -> tuple[bytes, bytes | None]:
    """Body and vector as bytes. Raises StoreError("record") if the record cannot be kept."""
    check_name(record.kind)
    check_name(record.id)
    check_time(_time(record.created))
    check_time(_time(record.updated))
    return encode_body(record.body), None if record.vector is None else encode_vector(record.vector)


def can_be_kept(record: Record) -> bool:
    """True if `check_record` accepts the record."""
    try:
        check_record(record)
    except StoreError:
        return False
    return True


async def encode_records(records: Sequence[Record], lock: Lock | None, kinds: Kinds) -> list[Row]:
    """Rows of records that have their times. Raises StoreError("record") if a record cannot be kept."""
    return await seal_rows([_row(record, kinds) for record in records], lock)


def _row(record: Record, kinds: Kinds) -> Row:
    body, vector = check_record(record)
    fields = tuple(index_fields(record.body, kinds[record.kind].indexed).items())
    return Row(record.kind, record.id, _time(record.created), _time(record.updated), body, vector, fields)


async def decode_rows(rows: Sequence[Row], lock: Lock | None) -> tuple[list[Record], list[Key]]:
    """The records, and the keys of rows that are damaged or have invalid names or times."""
    opened, unreadable = await open_rows(rows, lock)
    records = list[Record]()
    for row in opened:
        if not (is_name(row.kind) and is_name(row.id) and isfinite(row.created) and isfinite(row.updated)):
            unreadable.append(row.key)
            continue
        try:
            body, vector = decode_body(row.body), None if row.vector is None else decode_vector(row.vector)
        except StoreError:
            unreadable.append(row.key)
        else:
            records.append(Record(row.kind, row.id, body, vector, row.created, row.updated, row.version))
    return records, unreadable


async def open_rows(rows: Sequence[Row], lock: Lock | None) -> tuple[list[Row], list[Key]]:
    """Rows with their bytes in the clear, and the keys of those that this key does not open."""
    if lock is None:
        return list(rows), []
    sealed = [part for row in rows for part in (row.body, row.vector) if part is not None]
    try:
        parts = iter(await lock.cipher.open(sealed, _contexts([(r.kind, r.id, r.vector is not None) for r in rows])))
    except WrongKeyError:
        if len(rows) == 1:
            return [], [rows[0].key]
        half = len(rows) // 2  # a cipher opens all or none: search for those that it cannot open
        first, second = await open_rows(rows[:half], lock), await open_rows(rows[half:], lock)
        return first[0] + second[0], first[1] + second[1]
    opened = [replace(row, body=next(parts), vector=None if row.vector is None else next(parts)) for row in rows]
    return opened, []


async def seal_rows(rows: Sequence[Row], lock: Lock | None) -> list[Row]:
    """Encrypt rows for storing, if there is a key. They then have no fields, which would reveal the body."""
    if lock is None:
        return list(rows)
    plain = [part for row in rows for part in (row.body, row.vector) if part is not None]
    parts = iter(await lock.cipher.seal(plain, _contexts([(r.kind, r.id, r.vector is not None) for r in rows])))
    return [
        replace(row, body=next(parts), vector=None if row.vector is None else next(parts), fields=()) for row in rows
    ]


async def seal_blob(name: str, data: bytes, lock: Lock | None) -> bytes:
    """The stored bytes of a row of kind BLOB."""
    return data if lock is None else (await lock.cipher.seal([data], _contexts([(BLOB, name, False)])))[0]


async def open_blob(name: str, data: bytes, lock: Lock | None) -> bytes | None:
    """Return the bytes that were written; None if these are not what was written."""
    try:
        return data if lock is None else (await lock.cipher.open([data], _contexts([(BLOB, name, False)])))[0]
    except WrongKeyError:
        return None


def with_fields(row: Row, kinds: Kinds) -> Row:
    """Return a row in the clear with the fields that it is found by; no fields if its body cannot be read."""
    try:
        body = decode_body(row.body)
    except StoreError:
        return replace(row, fields=())
    return replace(row, fields=tuple(index_fields(body, kinds[row.kind].indexed).items()))


def _contexts(keys: Sequence[tuple[str, str, bool]]) -> list[bytes]:
    """The name to which each body and vector is bound. Names have no control characters, so none contains a 0."""
    return [
        f"{part}\0{kind}\0{id}".encode("utf-8", "surrogatepass")  # a damaged database may have any names
        for kind, id, has_vector in keys
        for part in (("body", "vector") if has_vector else ("body",))
    ]


def _time(seconds: float | None) -> float:
    assert seconds is not None, "the store gives every record its times"
    return float(seconds)
