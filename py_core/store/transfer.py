"""Everything in one file, and back.

The file is a line of JSON that describes it, a line of JSON with an entry a record, and the records' bytes:

    {"format": "sonata-memory", "version": 1, "schema": 2, "records": 3, "bytes": 5120, "sha256": "...", "key": null}
    [["pattern", "p1", 1700000000.0, 1700000000.0, 180, 1536, [], 7], ...]
    ...

`bytes` and `sha256` are of all that follows the first line. An entry is packing.py's. With a "key" (encryption.py)
bodies and vectors are encrypted; kinds, ids and times are readable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from py_core.messages import Message
from py_core.store.codec import can_be_kept, decode_rows, encode_records
from py_core.store.encryption import Lock, new_lock, unlock
from py_core.store.errors import StoreError
from py_core.store.packing import head_json, pack, unpack
from py_core.store.records import Record, decode_body, decode_list
from py_core.store.rows import LAYOUT
from py_core.store.store import Store

FORMAT, VERSION = "sonata-memory", 1
BEGINNING = f'{{"format": "{FORMAT}"'.encode()
LONGEST_FIRST_LINE = 10_000


async def export(store: Store, passphrase: str | None = None, *, in_the_clear: bool = False) -> bytes:
    """The whole memory as a file. Encrypted with its own passphrase if one is given, otherwise with that of the memory,
    if any.

    Records that cannot be read are skipped; `store.unreadable` has their keys afterwards. in_the_clear: not encrypted,
    even if the memory is.
    """
    lock = store.lock
    if in_the_clear:
        lock = None
    elif passphrase is not None:
        lock = await new_lock(store.crypto, passphrase)
    records = [record async for record in store.scan()]
    rows = [replace(row, fields=()) for row in await encode_records(records, lock, store.kinds)]
    head, data = pack(rows)
    rest = head_json(head).encode() + b"\n" + data
    first = {
        "format": FORMAT,
        "version": VERSION,
        "schema": LAYOUT,
        "records": len(rows),
        "bytes": len(rest),
        "sha256": hashlib.sha256(rest).hexdigest(),
        "key": lock.header if lock else None,
    }
    return json.dumps(first).encode() + b"\n" + rest


@dataclass(frozen=True, slots=True)
class Imported:
    """written: the number of records. left_out: the number of the file's records that could not be read."""

    written: int
    left_out: int


async def import_file(
    store: Store, data: bytes, mode: Literal["merge", "replace"], passphrase: str | None = None
) -> Imported:
    """Write the records of an export, in one transaction. Records that cannot be read are skipped.

    merge: if a record is in both, the last changed one stays. replace: the existing records are deleted. Raises
    StoreError: file (truncated, changed, foreign, or nothing in it can be read), newer, locked (it needs its
    passphrase), passphrase.
    """
    records, left_out = await read_export(store, data, passphrase)
    if left_out and not records:
        raise StoreError(
            "file",
            "import.nothing-readable",
            "Nothing in this file can be read. Choose another file. Nothing was changed.",
        )
    async with store.transaction() as transaction:
        if mode == "replace":
            transaction.clear()
        else:
            records = await newer(records, store)
        for record in records:
            transaction.put(record)
    return Imported(len(transaction.puts), left_out)


async def newer(records: Iterable[Record], store: Store) -> list[Record]:
    """The records that the store lacks, or has in an older state. A new part comes with the store's own record of the
    whole that it is a part of (Kind.part_of), because each change of a part also writes the whole."""
    records = list(records)
    here = {r.key: r.updated or 0.0 for r in await store.get_many([record.key for record in records])}
    found = [r for r in records if r.key not in here or (r.updated or 0.0) > here[r.key]]
    wholes = {(whole, record.id.partition("/")[0]) for record in found if (whole := store.kinds[record.kind].part_of)}
    grown = sorted(wholes - {record.key for record in found})
    return found + await store.get_many(grown)


async def read_export(store: Store, data: bytes, passphrase: str | None = None) -> tuple[list[Record], int]:
    """The records of an export in the form of the current version, and the number that could not be read."""
    first, rest = _checked(data)
    lock: Lock | None = None
    if first["key"] is not None:
        if passphrase is None:
            raise StoreError(
                "locked", "import.locked", "A passphrase protects this file. Type the passphrase of the file."
            )
        lock = await unlock(store.crypto, passphrase, first["key"])
    line, _, payload = rest.partition(b"\n")
    try:
        head = decode_list(line)
        rows = unpack(head, payload)
    except StoreError as error:
        raise StoreError(
            "file", "import.damaged", "The file is damaged. Choose another file. Nothing was changed."
        ) from error
    decoded, unreadable = await decode_rows(rows, lock)
    records, left_out = list[Record](), len(unreadable)
    known = {record.key: record for record in decoded}
    for record in decoded:
        partner = store.kinds.partner_of(record.key, first["schema"])
        migrated = store.kinds.migrated(record, first["schema"], LAYOUT, known.get(partner) if partner else None)
        if migrated is None or store.kinds.is_retired(migrated.key):
            continue
        if can_be_kept(migrated) and store.kinds.problem_of(migrated) is None:
            records.append(migrated)
        else:
            left_out += 1
    return records, left_out


def _checked(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The first line, and the data after it, checked to be complete and unchanged."""
    end = data.find(b"\n", 0, LONGEST_FIRST_LINE)
    try:
        first = decode_body(data[: max(end, 0)])
        ours = first["format"] == FORMAT
        version, schema, nbytes = (int(first[name]) for name in ("version", "schema", "bytes"))
        digest, key = str(first["sha256"]), first["key"]
    except (StoreError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise StoreError("file") from error
    if not ours or not (key is None or isinstance(key, str)) or schema < 1:
        raise StoreError("file")
    if version > VERSION or schema > LAYOUT:
        raise StoreError(
            "newer", "import.newer", "A newer version of Sonata made this file. Update Sonata to import it."
        )
    rest = data[end + 1 :]
    if len(rest) < nbytes:
        said = Message(
            "import.truncated",
            "The file is truncated: it has {length} of {wanted} bytes. Copy it again.",
            length=f"{len(rest):,}",
            wanted=f"{nbytes:,}",
        )
        raise StoreError("file", "import.nothing-changed", "{said} Nothing was changed.", said=said)
    if len(rest) > nbytes or hashlib.sha256(rest).hexdigest() != digest:
        raise StoreError(
            "file",
            "import.changed-file",
            "The file was changed after Sonata made it. Choose another file. Nothing was changed.",
        )
    return {**first, "schema": schema}, rest
