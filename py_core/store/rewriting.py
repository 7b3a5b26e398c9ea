"""Rewrites every row in one transaction: with another key, or in the format of another version."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from py_core.messages import Message
from py_core.store.codec import decode_rows, encode_records, open_rows, seal_rows, with_fields
from py_core.store.encryption import Lock
from py_core.store.errors import StoreError
from py_core.store.kinds import Kinds
from py_core.store.ledger import LEDGER, Ledger, seal_ledger
from py_core.store.records import Record
from py_core.store.rows import ATTEMPTS, BLOB, CHUNK, NAMELESS, UNCOMPACTED, Batch, Key, Row, Rows

Anew = Callable[[list[Row]], Awaitable[tuple[list[Row], list[Key]]]]
"""Returns replacements for rows, and the keys of the rows that are deleted."""


def sealing_anew(old: Lock | None, new: Lock | None, kinds: Kinds) -> Anew:
    """Seal bytes, not records: a damaged body must not stay in the clear. Rows that the old key does not open stay."""

    async def change(rows: list[Row]) -> tuple[list[Row], list[Key]]:
        opened, _ = await open_rows([row for row in rows if not row.id.startswith(NAMELESS)], old)
        nameless = [row for row in rows if row.id.startswith(NAMELESS)]
        named = [replace(row, kind="damaged", id=uuid.uuid4().hex) for row in nameless]
        sealed = await seal_rows([*(with_fields(row, kinds) for row in opened), *named], new)
        return sealed, [row.key for row in nameless]

    return change


def migrating(rows: Rows, lock: Lock | None, version: int, schema: int, kinds: Kinds) -> Anew:
    """Migrate rows from an old version to this one. Rows that cannot be read stay as they are."""

    async def change(found: list[Row]) -> tuple[list[Row], list[Key]]:
        puts, deletes = list[Record](), list[Key]()
        keys = [key for row in found if (key := kinds.partner_of(row.key, version)) is not None]
        partners = {partner.key: partner for partner in (await decode_rows(await rows.get(keys), lock))[0]}
        for record in (await decode_rows(found, lock))[0]:
            key = kinds.partner_of(record.key, version)
            changed = kinds.migrated(record, version, schema, partners.get(key) if key else None)
            if changed is None or changed.key != record.key:
                deletes.append(record.key)
            if changed is not None:
                puts.append(changed)
        return await encode_records(puts, lock, kinds), deletes

    return change


async def nothing(rows: list[Row]) -> tuple[list[Row], list[Key]]:
    """Leaves every row as it is: only the ledger is made again."""
    return [], []


async def compact(rows: Rows) -> Message | None:
    """Compact the files, or return a sentence about why that must wait for the next start."""
    try:
        await rows.compact()
    except StoreError as error:
        if error.reason != "compacting":
            raise
        return error.message
    return None


async def rewrite(
    rows: Rows,
    change: Anew,
    lock: Lock | None,
    target: Mapping[str, str | None],
    expected: Mapping[str, str | None],
) -> None:
    """Replace all rows with those that `change` returns, and put `target` into meta: all or nothing. Blobs are deleted.

    lock: the key of the rows afterwards. If other programs change something meanwhile, this begins again, unless meta
    differs from `expected`: then it raises StoreError("changed").
    """
    for _ in range(ATTEMPTS):
        revision = (await rows.meta())["revision"]
        puts, deletes = list[Row](), list[Key]()
        ledger = Ledger()
        after: Key | None = None
        while found := await rows.scan(None, after, CHUNK):
            after = found[-1].key
            deletes += [row.key for row in found if row.kind == BLOB]
            here = [row for row in found if row.kind != BLOB]
            changed, gone = await change(here)
            puts += changed
            deletes += gone
            replaced = {*gone, *(row.key for row in changed)}
            ledger = ledger.changed([], [*changed, *(row for row in here if row.key not in replaced)])
        meta = {**target, LEDGER: await seal_ledger(ledger, lock) if lock else None}
        batch = Batch(puts, deletes, None, meta, {**expected, "revision": revision})
        try:
            await rows.apply(batch)
            return
        except StoreError as error:
            now = await rows.meta()
            if all(now.get(name) == value for name, value in target.items() if name != UNCOMPACTED):
                return  # another program did the same, or a tab did it and closed before it said so
            if error.reason != "changed" or any(now.get(name) != value for name, value in expected.items()):
                raise
    raise StoreError("busy")
