"""The Store: records over any `Rows`. Transactions, queries, notifications, encryption.

store = await Store.open(await SQLiteRows.open(path))
await store.put(Record("pattern", "p1", {"agent": "coder"}, vector))
async for record in store.scan("pattern"): ...
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from py_core.memory.codec import decode_rows, encode_records, fields_of, open_blob, open_rows, seal_blob, seal_rows
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
from py_core.memory.transaction import Transaction

CHUNK = 1000  # rows that a scan has in memory at once
PREFIX_CHUNK = 64
ATTEMPTS = 20  # of a write that others get in the way of

ProblemOf = Callable[[Record], str | None]
"""Why a record cannot be used, as a sentence; None if it can (schemas.py)."""


class Store:
    """Made by `Store.open`. Every method may raise StoreError.

    A record that cannot be read (its bytes are damaged, or `problem_of` finds fault) is left out of all that is read,
    and its key is in `unreadable`. Deleting and replacing it work.
    """

    def __init__(
        self,
        rows: Rows,
        lock: Lock | None,
        crypto: Crypto,
        clock: Callable[[], float],
        problem_of: ProblemOf,
        schema: int = LAYOUT,
    ) -> None:
        self.crypto = crypto
        self.clock = clock
        self.problem_of = problem_of
        self.unreadable: set[Key] = set()
        """Keys of unreadable records that were met so far."""
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
        problem_of: ProblemOf = lambda record: None,
        migrations: Mapping[int, Migration] = MIGRATIONS,
        schema: int = LAYOUT,
    ) -> Store:
        """Raises StoreError: locked (a passphrase is needed), passphrase (it is another one), newer, damaged.

        A passphrase for a memory that has none is not used. problem_of: what it finds fault with is neither read nor
        written. schema, migrations: the version that this code knows.
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
        store = cls(rows, lock, crypto, clock, problem_of, schema)
        if version < schema:
            await store._migrate(version, migrations)
        return store

    @property
    def persistent(self) -> bool:
        """Whether records are still there after a restart."""
        return self._rows.persistent

    @property
    def place(self) -> str:
        """Where the store lies, in words for people."""
        return self._rows.place

    @property
    def lock(self) -> Lock | None:
        """The key that everything is encrypted with, if any."""
        return self._lock

    async def get(self, kind: str, id: str) -> Record | None:
        found = await self.get_many([(kind, id)])
        return found[0] if found else None

    async def get_many(self, keys: Sequence[Key]) -> list[Record]:
        """The records that exist, in the order of `keys`."""
        return await self._decode(await self._rows.get(keys))

    async def put(self, record: Record) -> None:
        await self.put_many([record])

    async def put_many(self, records: Iterable[Record]) -> None:
        """All or none. A record of the same kind and id is replaced (see `update` for changing one)."""
        async with self.transaction() as transaction:
            for record in records:
                transaction.put(record)

    async def delete(self, kind: str, *ids: str) -> None:
        """Delete records. Missing ids are no error."""
        async with self.transaction() as transaction:
            for id in ids:
                transaction.delete(kind, id)

    async def delete_unreadable(self) -> int:
        """Look through everything, and delete what cannot be read. Returns how many records."""
        async for _ in self.scan():
            pass
        gone = tuple(self.unreadable)
        async with self.transaction() as transaction:
            for key in gone:
                transaction.delete(*key)
        return len(gone)

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
            return await self._decode(await self._rows.query(query))
        # What is encrypted has no fields that could be searched.
        rows = await self._rows.query(replace(query, where={}, limit=None))
        records = await self._decode(rows)
        return [record for record in records if query.matches(index_fields(record.body, indexed))][:limit]

    async def scan(self, kind: str | None = None) -> AsyncIterator[Record]:
        """All records, in the order of their keys. What is written meanwhile may be in it or not."""
        async for rows in self._chunks(kind):
            for record in await self._decode(rows):
                yield record

    async def starting_with(self, kind: str, prefix: str) -> list[Record]:
        """The records of a kind whose ids start so, in the order of their ids."""
        return await self._decode(await self._rows_starting_with(kind, prefix))

    async def keys_starting_with(self, kind: str, prefix: str) -> list[Key]:
        """The keys of a kind's records whose ids start so, also of those that cannot be read."""
        return [row.key for row in await self._rows_starting_with(kind, prefix)]

    async def _rows_starting_with(self, kind: str, prefix: str) -> list[Row]:
        found = list[Row]()
        after: Key = (kind, prefix)
        while rows := await self._rows.scan(kind, after, PREFIX_CHUNK):
            found += [row for row in rows if row.id.startswith(prefix)]
            if not rows[-1].id.startswith(prefix):
                break
            after = rows[-1].key
        return found

    async def _chunks(self, kind: str | None = None) -> AsyncIterator[list[Row]]:
        after: Key | None = None
        while rows := await self._rows.scan(kind, after, CHUNK):
            yield [row for row in rows if row.kind != BLOB]
            after = rows[-1].key

    async def get_blob(self, name: str) -> bytes | None:
        """The bytes put under this name; None when they are missing, or cannot be read."""
        rows = await self._rows.get([(BLOB, name)])
        return await open_blob(name, rows[0].body, self._lock) if rows else None

    async def put_blob(self, name: str, data: bytes) -> None:
        """Keep bytes that can be made again from the records. They are encrypted and deleted as these, not exported."""
        async with self._writing:
            now = self.clock()
            row = Row(BLOB, name, now, now, await seal_blob(name, data, self._lock))
            await self._rows.apply(Batch(puts=[row], expect_meta=self._expected_meta(self._schema)))

    async def _decode(self, rows: Sequence[Row]) -> list[Record]:
        """The records that can be read; the others are noted, and told of when they are the first."""
        decoded, unreadable = await decode_rows(rows, self._lock)
        records = list[Record]()
        for record in decoded:
            if self.problem_of(record) is None:
                records.append(record)
            else:
                unreadable.append(record.key)
        if not self.unreadable.issuperset(unreadable):
            meta = await self._rows.meta()
            if any(meta.get(name) != value for name, value in self._expected_meta(self._schema).items()):
                raise StoreError("changed")  # nothing is damaged: another tab has set a passphrase
            is_first = not self.unreadable
            self.unreadable.update(unreadable)
            if is_first:
                self._tell(Change())
        return records

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

        async def seal_anew(rows: list[Row]) -> tuple[list[Row], list[Key]]:
            # Bytes, not records: a damaged body must not stay in the clear. What the old key does not open stays.
            opened, _ = await open_rows(rows, self._lock)
            return await seal_rows([fields_of(row) for row in opened], lock), []

        await self._rewrite(seal_anew, lock, {"key": lock.header if lock else None}, self._schema)

    async def close(self) -> None:
        self._rows.listen(None)
        await self._rows.close()

    async def _migrate(self, version: int, migrations: Mapping[int, Migration]) -> None:
        """Every record from an old version to this one. What cannot be read stays as it is."""

        async def migrated(rows: list[Row]) -> tuple[list[Row], list[Key]]:
            puts, deletes = list[Record](), list[Key]()
            for record in (await decode_rows(rows, self._lock))[0]:
                changed = migrate(record, version, self._schema, migrations)
                if changed is None or changed.key != record.key:
                    deletes.append(record.key)
                if changed is not None:
                    puts.append(changed)
            return await encode_records(puts, self._lock), deletes

        await self._rewrite(migrated, self._lock, {"schema": str(self._schema)}, version)

    async def _rewrite(
        self,
        change: Callable[[list[Row]], Awaitable[tuple[list[Row], list[Key]]]],
        lock: Lock | None,
        target: Mapping[str, str | None],
        schema: int,
    ) -> None:
        """Put and delete what `change` makes of all rows, and `target` into meta; then use `lock`. All or nothing."""
        async with self._writing:
            for _ in range(ATTEMPTS):
                revision = str(await self.revision())
                puts, deletes = list[Row](), [row.key for row in await self._rows.scan(BLOB, None, CHUNK)]
                async for rows in self._chunks():
                    changed, gone = await change(rows)
                    puts += changed
                    deletes += gone
                expected = self._expected_meta(schema)
                batch = Batch(puts, deletes, None, target, {**expected, "revision": revision})
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
        """Store a transaction; the end of `async with store.transaction()` calls this."""
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
            for record in stamped:
                if (problem := self.problem_of(record)) is not None:
                    raise StoreError("record", problem)
            batch = Batch(
                puts=await encode_records(stamped, self._lock),
                deletes=tuple(transaction.deletes),
                clear=transaction.cleared,
                expect_meta=self._expected_meta(self._schema),
                expect_versions=transaction.expected,
            )
            await self._rows.apply(batch)
        self.unreadable.difference_update(transaction.puts, transaction.deletes)
        if transaction.cleared is not None:
            self.unreadable = {key for key in self.unreadable if transaction.cleared not in (EVERYTHING, key[0])}
        self._tell(Change(tuple(transaction.puts), tuple(transaction.deletes), transaction.cleared))

    def _expected_meta(self, schema: int) -> dict[str, str | None]:
        """The condition that nobody changed version or passphrase since this store was opened."""
        return {"schema": str(schema), "key": self._lock.header if self._lock else None}

    def _tell(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)
