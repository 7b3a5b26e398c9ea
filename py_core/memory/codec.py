"""Records to rows and back, encrypted where there is a key."""

from __future__ import annotations

from collections.abc import Sequence

from py_core.memory.encryption import Lock, WrongKeyError
from py_core.memory.errors import StoreError
from py_core.memory.records import (
    INDEXED,
    Record,
    check_name,
    check_time,
    decode_body,
    decode_vector,
    encode_body,
    encode_vector,
    index_fields,
)
from py_core.memory.rows import BLOB, Row


def check_record(record: Record) -> tuple[bytes, bytes | None]:
    """Body and vector as bytes. Raises StoreError("record") for what cannot be kept."""
    check_name(record.kind, "kind")
    check_name(record.id, "id")
    check_time(_time(record.created))
    check_time(_time(record.updated))
    return encode_body(record.body), None if record.vector is None else encode_vector(record.vector)


async def encode_records(records: Sequence[Record], lock: Lock | None) -> list[Row]:
    """Rows of records that have their times. Raises StoreError("record") for what cannot be kept."""
    bodies, vectors = list[bytes](), list[bytes | None]()
    for record in records:
        body, vector = check_record(record)
        bodies.append(body)
        vectors.append(vector)
    if lock is None:
        fields = [tuple(index_fields(r.body, INDEXED.get(r.kind, ())).items()) for r in records]
    else:
        fields = [()] * len(records)  # they would tell what is in the body
        sealed = iter(
            await lock.cipher.seal(
                [part for pair in zip(bodies, vectors, strict=True) for part in pair if part is not None],
                _contexts([(r.kind, r.id, v is not None) for r, v in zip(records, vectors, strict=True)]),
            )
        )
        parts = [(next(sealed), None if vector is None else next(sealed)) for vector in vectors]
        bodies, vectors = [body for body, _ in parts], [vector for _, vector in parts]
    return [
        Row(record.kind, record.id, _time(record.created), _time(record.updated), body, vector, found_by)
        for record, body, vector, found_by in zip(records, bodies, vectors, fields, strict=True)
    ]


async def decode_rows(rows: Sequence[Row], lock: Lock | None) -> list[Record]:
    """Raises StoreError("damaged") where bytes are not what was written."""
    parts = [(row.body, row.vector) for row in rows]
    if lock is not None:
        sealed = [part for pair in parts for part in pair if part is not None]
        try:
            opened = iter(
                await lock.cipher.open(sealed, _contexts([(r.kind, r.id, r.vector is not None) for r in rows]))
            )
        except WrongKeyError:
            raise StoreError("damaged") from None
        parts = [(next(opened), None if vector is None else next(opened)) for _, vector in parts]
    return [
        Record(
            row.kind,
            row.id,
            decode_body(body),
            None if vector is None else decode_vector(vector),
            row.created,
            row.updated,
            row.version,
        )
        for row, (body, vector) in zip(rows, parts, strict=True)
    ]


async def seal_blob(name: str, data: bytes, lock: Lock | None) -> bytes:
    """Bytes of a row of kind BLOB, as they are stored."""
    return data if lock is None else (await lock.cipher.seal([data], _contexts([(BLOB, name, False)])))[0]


async def open_blob(name: str, data: bytes, lock: Lock | None) -> bytes | None:
    """None where the bytes are not what was written."""
    try:
        return data if lock is None else (await lock.cipher.open([data], _contexts([(BLOB, name, False)])))[0]
    except WrongKeyError:
        return None


def _contexts(keys: Sequence[tuple[str, str, bool]]) -> list[bytes]:
    """What each body and vector is bound to. Names have no control characters, so a 0 cannot be part of one."""
    return [
        f"{part}\0{kind}\0{id}".encode()
        for kind, id, has_vector in keys
        for part in (("body", "vector") if has_vector else ("body",))
    ]


def _time(seconds: float | None) -> float:
    assert seconds is not None, "the store gives every record its times"
    return float(seconds)
