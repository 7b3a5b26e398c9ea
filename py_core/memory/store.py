"""The Store: records over any `Rows`. Transactions, queries, notifications, encryption.

store = await Store.open(await SQLiteRows.open(path))
await store.put(Record("pattern", "p1", {"agent": "coder"}, vector))
async for record in store.scan("pattern"): ...
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from py_core.memory.codec import decode_rows, encode_records, open_blob, seal_blob
from py_core.memory.encryption import Crypto, Lock, NativeCrypto, unlock
from py_core.memory.errors import StoreError
from py_core.memory.migrations import MIGRATIONS, Migration, migrate
from py_core.memory.records import INDEXED, Record, index_fields
from py_core.memory.rows import (
    BLOB,
    EVERYTHING,
    LAYOUT,
    Batch,
    Change,
    FieldValue,
    Key,
    OnChange,
    Query,
    Range,
    Row,
    Rows,
)

CHUNK = 1000  # rows that a scan has in memory at once
ATTEMPTS = 20  # of a write that others get in the way of


class Transaction:
    """What happens at once, or not at all, when the `async with` block ends without an exception."""

    def __init__(self) -> None:
        self.puts: dict[Key, Record] = {}
        self.deletes: dict[Key, None] = {}
        self.expected: dict[Key, int] = {}
        self.cleared: str | None = None

    def put(self, record: Record) -> None:
        self.deletes.pop(record.key, None)
        self.puts[record.key] = record

    def delete(self, kind: str, id: str) -> None:
        self.puts.pop((kind, id), None)
        self.deletes[kind, id] = None

    def clear(self, kind: str | None = None) -> None:
        """Before everything else in this transaction, delete all records, or all of a kind."""
        self.cleared = EVERYTHING if kind is None else kind

    def expect(self, kind: str, id: str, version: int) -> None:
        """Fail with StoreError("conflict") if the record is of another version by then. 0: it must not exist."""
        self.expected[kind, id] = version


class Store:
    """Made by `Store.open`. Every method may raise StoreError."""

    def __init__(
        self, rows: Rows, lock: Lock | None, crypto: Crypto, clock: Callable[[], float], schema: int = LAYOUT
    ) -> None:
        self.crypto = crypto
        self.clock = clock
        self._rows = rows
        self._lock = lock
        self._schema = schema
        self._listeners: list[OnChange] = []
        self._writing = asyncio.Lock()
        rows.listen(self._tell)

    @classmethod
    async def open(
        cls,
        rows: Rows,
        passphrase: str | None = None,
        *,
        crypto: Crypto | None = None,
        clock: Callable[[], float] = time.time,
        migrations: Mapping[int, Migration] = MIGRATIONS,
        schema: int = LAYOUT,
    ) -> Store:
        """Raises StoreError: locked (a passphrase is needed), passphrase (it is another one), newer, damaged.

        A passphrase for a memory that has none is not used. schema, migrations: the version that this code knows.
        """
        crypto = crypto or NativeCrypto()
        meta = await rows.meta()
        version = int(meta["schema"])
        if version > schema:
            raise StoreError("newer")
        lock = None
        if header := meta.get("key"):
            if passphrase is None:
                raise StoreError("locked")
            lock = await unlock(crypto, passphrase, header)
        store = cls(rows, lock, crypto, clock, schema)
        if version < schema:
            await store._rewrite(
                lock, lambda r: migrate(r, version, schema, migrations), {"schema": str(schema)}, version
            )
        return store

    @property
    def persistent(self) -> bool:
        """Whether what is put is still there after a restart."""
        return self._rows.persistent

    @property
    def place(self) -> str:
        """Where it is kept, for people."""
        return self._rows.place

    @property
    def lock(self) -> Lock | None:
        """The key that everything is encrypted with, if any."""
        return self._lock

    async def get(self, kind: str, id: str) -> Record | None:
        found = await self.get_many([(kind, id)])
        return found[0] if found else None

    async def get_many(self, keys: Sequence[Key]) -> list[Record]:
        """Those that exist, in the order asked for."""
        return await decode_rows(await self._rows.get(keys), self._lock)

    async def put(self, record: Record) -> None:
        await self.put_many([record])

    async def put_many(self, records: Iterable[Record]) -> None:
        """All or none. A record of the same kind and id is replaced (see `update` for changing one)."""
        async with self.transaction() as transaction:
            for record in records:
                transaction.put(record)

    async def delete(self, kind: str, *ids: str) -> None:
        """Ids that do not exist are no error."""
        async with self.transaction() as transaction:
            for id in ids:
                transaction.delete(kind, id)

    async def clear(self, kind: str | None = None) -> None:
        """Delete all records, or all of a kind; for good, as far as the backend can."""
        async with self.transaction() as transaction:
            transaction.clear(kind)
        await self._rows.compact()

    async def update(self, kind: str, id: str, change: Callable[[Record], Record]) -> Record | None:
        """Replace a record by `change` of it, without losing what others write meanwhile: it may be called again.

        None when there is no such record.
        """
        for _ in range(ATTEMPTS):
            record = await self.get(kind, id)
            if record is None:
                return None
            changed = replace(change(record), kind=kind, id=id, created=record.created, updated=self.clock())
            try:
                async with self.transaction() as transaction:
                    transaction.expect(kind, id, record.version)
                    transaction.put(changed)
                return changed
            except StoreError as error:
                if error.reason != "conflict":
                    raise
        raise StoreError("conflict")

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Collects writes, and does them at the end. Reads inside see the store as it was."""
        transaction = Transaction()
        yield transaction
        if transaction.puts or transaction.deletes or transaction.cleared is not None:
            await self.commit(transaction)

    async def query(
        self,
        kind: str,
        where: Mapping[str, FieldValue | Range] | None = None,
        *,
        since: float | None = None,
        before: float | None = None,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> list[Record]:
        """Records of a kind by indexed fields (INDEXED), created in [since, before), oldest first."""
        indexed = INDEXED.get(kind, ())
        if unknown := set(where or ()) - set(indexed):
            raise StoreError("record", f"Records of kind {kind} cannot be found by {', '.join(sorted(unknown))}.")
        wanted = {name: v if isinstance(v, str | Range) else float(v) for name, v in (where or {}).items()}
        if limit is not None and limit <= 0:
            return []
        query = Query(kind, wanted, since, before, newest_first, limit)
        if not self._lock or not wanted:
            return await decode_rows(await self._rows.query(query), self._lock)
        # What is encrypted has no fields that could be searched.
        rows = await self._rows.query(replace(query, where={}, limit=None))
        records = await decode_rows(rows, self._lock)
        return [record for record in records if query.matches(index_fields(record.body, indexed))][:limit]

    async def scan(self, kind: str | None = None) -> AsyncIterator[Record]:
        """All records, in the order of their keys. What is written meanwhile may be in it or not."""
        after: Key | None = None
        while rows := await self._rows.scan(kind, after, CHUNK):
            for record in await decode_rows([row for row in rows if row.kind != BLOB], self._lock):
                yield record
            after = rows[-1].key

    async def get_blob(self, name: str) -> bytes | None:
        """What was put under this name; None when it is not there, or cannot be read."""
        rows = await self._rows.get([(BLOB, name)])
        return await open_blob(name, rows[0].body, self._lock) if rows else None

    async def put_blob(self, name: str, data: bytes) -> None:
        """Keep bytes that can be made again from the records. They are encrypted and deleted as these, not exported."""
        async with self._writing:
            now = self.clock()
            row = Row(BLOB, name, now, now, await seal_blob(name, data, self._lock))
            await self._rows.apply(Batch(puts=[row], expect_meta=self._expected_meta(self._schema)))

    async def count(self, kind: str | None = None) -> int:
        return await self._rows.count(kind)

    async def revision(self) -> int:
        """A number that every write raises."""
        return int((await self._rows.meta())["revision"])

    def on_change(self, listener: OnChange) -> Callable[[], None]:
        """`listener` is called after each write, here or in another tab. Returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def poll(self) -> None:
        """Notice what other processes wrote to the same file: tells `on_change` when there may be something."""
        if await self._rows.poll():
            self._tell(Change(elsewhere=True, everything=True))

    async def rekey(self, lock: Lock | None) -> None:
        """Encrypt everything with another key, or with none, in one transaction.

        Until it is done, everything is as before, also when the program ends in the middle. Other tabs and processes
        then get StoreError("changed") for their writes, and open the memory again.
        """
        await self._rewrite(lock, lambda record: record, {"key": lock.header if lock else None}, self._schema)

    async def close(self) -> None:
        self._rows.listen(None)
        await self._rows.close()

    async def _rewrite(
        self,
        lock: Lock | None,
        change: Callable[[Record], Record | None],
        target: Mapping[str, str | None],
        schema: int,
    ) -> None:
        """Write every record again, changed and with another key, and `target` into meta. All or nothing."""
        async with self._writing:
            for _ in range(ATTEMPTS):
                revision = str(await self.revision())
                puts, deletes = list[Record](), [row.key for row in await self._rows.scan(BLOB, None, CHUNK)]
                async for record in self.scan():
                    changed = change(record)
                    if changed is None or changed.key != record.key:
                        deletes.append(record.key)
                    if changed is not None:
                        puts.append(changed)
                expected = self._expected_meta(schema)
                batch = Batch(
                    await encode_records(puts, lock), deletes, None, target, {**expected, "revision": revision}
                )
                try:
                    await self._rows.apply(batch)
                    break
                except StoreError as error:
                    now = await self._rows.meta()
                    if all(now.get(name) == value for name, value in target.items()):
                        break  # another process did the same, or this was done by a tab that closed before it said so
                    if error.reason != "changed" or any(now.get(name) != value for name, value in expected.items()):
                        raise
            else:
                raise StoreError("busy")
            self._lock = lock
        await self._rows.compact()
        self._tell(Change(everything=True))

    async def commit(self, transaction: Transaction) -> None:
        """What the end of an `async with store.transaction()` does."""
        async with self._writing:
            now = self.clock()
            stamped = [
                replace(
                    record,
                    created=now if record.created is None else record.created,
                    updated=now if record.updated is None else record.updated,
                )
                for record in transaction.puts.values()
            ]
            batch = Batch(
                puts=await encode_records(stamped, self._lock),
                deletes=tuple(transaction.deletes),
                clear=transaction.cleared,
                expect_meta=self._expected_meta(self._schema),
                expect_versions=transaction.expected,
            )
            await self._rows.apply(batch)
        self._tell(Change(tuple(transaction.puts), tuple(transaction.deletes), transaction.cleared))

    def _expected_meta(self, schema: int) -> dict[str, str | None]:
        """Neither a newer version nor another passphrase has come since this store was opened."""
        return {"schema": str(schema), "key": self._lock.header if self._lock else None}

    def _tell(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)
