"""Blobs that belong to a record: they have its kind and id in their names, and are deleted with it."""

from __future__ import annotations

from py_core.store.kinds import Kinds
from py_core.store.rows import BLOB, Key, Row, Rows
from py_core.store.transaction import Transaction

PREFIX_CHUNK = 64


def blob_name(kind: str, id: str, *parts: str) -> str:
    """The name of bytes that belong to a record (Kind.has_blobs), for Store.put_blob."""
    return "/".join((f"{kind}:{id}", *parts))


async def blobs_with(rows: Rows, transaction: Transaction, kinds: Kinds) -> list[Key]:
    """The keys of the blobs whose records a transaction deletes completely or in part."""
    gone = dict[str, None]()
    for kind, id in transaction.deletes:
        if kinds[kind].has_blobs:
            gone[f"{blob_name(kind, id)}/"] = None
        elif whole := kinds[kind].part_of:
            gone[f"{blob_name(whole, id.partition('/')[0])}/"] = None
    if cleared := transaction.cleared:
        owner = kinds[cleared].part_of or cleared
        if kinds[owner].has_blobs:
            gone[f"{owner}:"] = None
    return [row.key for prefix in gone for row in await rows_starting_with(rows, BLOB, prefix)]


async def rows_starting_with(rows: Rows, kind: str, prefix: str) -> list[Row]:
    """The rows of a kind whose ids begin with `prefix` and are longer, in the order of their ids."""
    found = list[Row]()
    after: Key = (kind, prefix)
    while chunk := await rows.scan(kind, after, PREFIX_CHUNK):
        found += [row for row in chunk if row.id.startswith(prefix)]
        if not chunk[-1].id.startswith(prefix):
            break
        after = chunk[-1].key
    return found
