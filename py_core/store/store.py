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

from py_core.messages import Message
from py_core.store.blobs import blobs_with, rows_starting_with
from py_core.store.codec import decode_rows, encode_records, open_blob, seal_blob
from py_core.store.encryption import Crypto, Lock, NativeCrypto, unlock
from py_core.store.errors import StoreError
from py_core.store.kinds import ANY, Kinds
from py_core.store.ledger import LEDGER, LOCK_GONE, NO_LEDGER, KeptLedger, Step, tampered
from py_core.store.records import Record, index_fields
from py_core.store.rewriting import Anew, compact, migrating, nothing, rewrite, sealing_anew
from py_core.store.rows import (
    ATTEMPTS,
    BLOB,
    CHUNK,
    EVERYTHING,
    LAYOUT,
    UNCOMPACTED,
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
from py_core.store.transaction import Transaction
from py_core.store.volatile import VolatileRows

Merge = Callable[[list[Record], "Store"], Awaitable[list[Record]]]
"""Returns the records that a store takes over from another store (transfer.newer)."""


class Store:
    """Made by `Store.open`. Every method may raise StoreError.

    A record that cannot be read (its bytes are damaged, or it does not fit its kind) is skipped by all reads, and its
    key is in `unreadable`. It can still be deleted and replaced.
    """

    def __init__(
        self,
        rows: Rows,
        lock: Lock | None,
        crypto: Crypto,
        clock: Callable[[], float],
        kinds: Kinds,
        schema: int = LAYOUT,
    ) -> None:
        self.crypto = crypto
        self.clock = clock
        self.kinds = kinds
        self.unreadable: set[Key] = set()
        """Keys of the unreadable records found so far."""
        self.uncompacted: Message | None = None
        """The reason why the files may still hold data that was since encrypted or deleted, as a sentence."""
        self.suspicion: Message | None = None
        """A sentence about what a program other than Sonata seems to have done to the memory; see `check`."""
        self.locked_rows: Rows | None = None
        """The rows that need a passphrase. Until `unlock` the store holds its records in plain memory."""
        self._listeners: list[OnChange] = []
        self._writing = asyncio.Lock()
        self._use(rows, lock, schema)

    @classmethod
    async def open(
        cls,
        rows: Rows,
        passphrase: str | None = None,
        *,
        kinds: Kinds = ANY,
        crypto: Crypto | None = None,
        clock: Callable[[], float] = time.time,
        schema: int = LAYOUT,
    ) -> Store:
        """Open the store, bring its records to this version, and delete the retired ones.

        A passphrase for a memory without encryption is ignored. kinds: records that do not fit them are neither read
        nor written. schema: the version that this code knows. Raises StoreError: locked (a passphrase is needed),
        passphrase (it is wrong), newer, damaged.
        """
        crypto = crypto or NativeCrypto()
        meta = await rows.meta()
        version = int(meta["schema"])
        if version > schema:
            raise StoreError("newer")
        uncompacted = await compact(rows) if UNCOMPACTED in meta else None
        lock = None
        if (header := meta.get("key")) is not None:
            if passphrase is None:
                raise StoreError("locked")
            lock = await unlock(crypto, passphrase, header)
        store = cls(rows, lock, crypto, clock, kinds, schema)
        store.uncompacted = uncompacted
        was_locked = await rows.was_locked()
        if lock is None and was_locked:
            store.suspicion = LOCK_GONE
        elif lock is not None and LEDGER not in meta and (was_locked or version == schema):
            store.suspicion = tampered([NO_LEDGER])
        if version < schema:
            await store._migrate(version)
        await store._delete_retired()
        if lock is not None and not was_locked:
            await rows.note_locked(True)
        return store

    @classmethod
    async def open_lockable(cls, rows: Rows, *, kinds: Kinds = ANY, crypto: Crypto) -> Store:
        """Open as `open` does. If a passphrase is needed, the records are in plain memory until `unlock` gets it."""
        try:
            return await cls.open(rows, kinds=kinds, crypto=crypto)
        except StoreError as error:
            if error.reason != "locked":
                raise
        store = await cls.open(VolatileRows(), kinds=kinds, crypto=crypto)
        store.locked_rows = rows
        return store

    async def unlock(self, passphrase: str | None, merge: Merge) -> None:
        """Continue with the locked rows. `merge` returns which of the records that were written meanwhile are added to
        them.

        The store object stays the same and notifies no listener; `tell_all` does. Raises what `open` raises; the store
        is then still locked.
        """
        if self.locked_rows is None:
            return
        opened = await Store.open(self.locked_rows, passphrase, kinds=self.kinds, crypto=self.crypto, clock=self.clock)
        async with self._writing:
            if self.locked_rows is None:  # two callers unlocked it at once
                return
            await opened.put_many(await merge([record async for record in self.scan()], opened))
            temporary = self._rows
            self.locked_rows = None
            self.unreadable, self.uncompacted, self.suspicion = opened.unreadable, opened.uncompacted, opened.suspicion
            self._use(opened._rows, opened._lock, opened._schema)
        temporary.listen(None)
        await temporary.close()

    async def delete_locked(self) -> None:
        """Delete the content of the locked rows, and their passphrase, which may be lost."""
        if self.locked_rows is not None:
            await self.locked_rows.note_locked(False)
            meta = {"key": None, LEDGER: None, UNCOMPACTED: "yes"}
            await self.locked_rows.apply(Batch(clear=EVERYTHING, meta=meta))

    def _use(self, rows: Rows, lock: Lock | None, schema: int) -> None:
        self._rows, self._lock, self._schema = rows, lock, schema
        self._ledger = KeptLedger(rows, lock, self.kinds) if lock else None
        rows.listen(self._tell)

    @property
    def persistent(self) -> bool:
        """True if records are still there after a restart."""
        return self._rows.persistent

    @property
    def place(self) -> str:
        """The place of the store, in words for people."""
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
        """Store all records or none. A record of the same kind and id is replaced (`update` changes a record)."""
        async with self.transaction() as transaction:
            for record in records:
                transaction.put(record)

    async def delete(self, kind: str, *ids: str) -> None:
        """Delete records. Missing ids are no error."""
        async with self.transaction() as transaction:
            for id in ids:
                transaction.delete(kind, id)

    async def delete_unreadable(self) -> int:
        """Search everything, and delete what cannot be read. Returns the number of deleted records."""
        async for _ in self.scan():
            pass
        gone = tuple(self.unreadable)
        async with self.transaction() as transaction:
            for key in gone:
                transaction.delete(*key)
        return len(gone)

    async def clear(self, kind: str | None = None) -> None:
        """Delete all records, or all of a kind, from the files too; otherwise `uncompacted` tells why not."""
        transaction = Transaction()
        transaction.clear(kind)
        await self.commit(transaction, {UNCOMPACTED: "yes"})
        if kind is None and self.suspicion is not None:
            await self.accept()
        async with self._writing:
            self.uncompacted = await compact(self._rows)

    async def compact(self) -> None:
        """Rewrite the files without deleted and overwritten data; otherwise `uncompacted` tells why that must wait."""
        async with self._writing:
            self.uncompacted = await compact(self._rows)

    async def update(self, kind: str, id: str, change: Callable[[Record], Record]) -> Record | None:
        """Replace a record by `change` of it without losing concurrent writes: `change` may be called again.

        Returns None if there is no such record.
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
        """Collect writes, and do them at the end. Reads inside see the store as it was before."""
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
        """Records of a kind by indexed fields (Kind.indexed), created in [since, before), oldest first."""
        indexed = self.kinds[kind].indexed
        if unknown := set(where or ()) - set(indexed):
            raise StoreError(
                "record",
                "memory.not-indexed",
                "Records of kind {kind} cannot be found by {names}.",
                kind=kind,
                names=", ".join(sorted(unknown)),
            )
        wanted = {name: v if isinstance(v, str | Range) else float(v) for name, v in (where or {}).items()}
        if limit is not None and limit <= 0:
            return []
        query = Query(kind, wanted, since, before, newest_first, limit)
        if not self._lock or not wanted:
            return await self._decode(await self._rows.query(query))
        # Encrypted rows have no fields to search.
        rows = await self._rows.query(replace(query, where={}, limit=None))
        records = await self._decode(rows)
        return [record for record in records if query.matches(index_fields(record.body, indexed))][:limit]

    async def scan(self, kind: str | None = None) -> AsyncIterator[Record]:
        """All records, in the order of their keys. Records that are written meanwhile may be included or not."""
        async for rows in self._chunks(kind):
            for record in await self._decode(rows):
                yield record

    async def starting_with(self, kind: str, prefix: str) -> list[Record]:
        """The records of a kind whose ids begin with `prefix`, in the order of their ids."""
        return await self._decode(await rows_starting_with(self._rows, kind, prefix))

    async def keys_starting_with(self, kind: str, prefix: str) -> list[Key]:
        """The keys of a kind's records whose ids begin with `prefix`, including those that cannot be read."""
        return [row.key for row in await rows_starting_with(self._rows, kind, prefix)]

    async def _chunks(self, kind: str | None = None) -> AsyncIterator[list[Row]]:
        after: Key | None = None
        while rows := await self._rows.scan(kind, after, CHUNK):
            yield [row for row in rows if row.kind != BLOB]
            after = rows[-1].key

    async def get_blob(self, name: str) -> bytes | None:
        """The bytes put under this name; None if they are missing or cannot be read."""
        return (await self.get_blobs([name])).get(name)

    async def get_blobs(self, names: Sequence[str]) -> dict[str, bytes]:
        """The blobs that exist and can be read, by their names."""
        rows = await self._rows.get([(BLOB, name) for name in names])
        opened = {row.id: await open_blob(row.id, row.body, self._lock) for row in rows}
        return {name: data for name, data in opened.items() if data is not None}

    async def put_blob(self, name: str, data: bytes, expected: Mapping[Key, int] | None = None) -> None:
        """Keep bytes that can be made again from the records. They are encrypted and deleted like records, but not
        exported. expected: versions of records; raises StoreError("conflict") if a record has another version."""
        async with self._writing:
            row = Row(BLOB, name, now := self.clock(), now, await seal_blob(name, data, self._lock))
            meta = self._expected_meta(self._schema)
            await self._rows.apply(Batch([row], expect_meta=meta, expect_versions=expected or {}))

    async def _decode(self, rows: Sequence[Row]) -> list[Record]:
        """The records that can be read. The others are noted, and reported if they are the first."""
        decoded, unreadable = await decode_rows(rows, self._lock)
        records = list[Record]()
        for record in decoded:
            if self.kinds.problem_of(record) is None:
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
        """Call `listener` after each write, here or in another tab. Returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def poll(self) -> None:
        """Check for writes of other processes to the same file: notifies `on_change` if there may be any."""
        if await self._rows.poll():
            self.tell_all()

    def tell_all(self) -> None:
        """Notify `on_change` that everything may have changed."""
        self._tell(Change(elsewhere=True, everything=True))

    async def rekey(self, lock: Lock | None) -> None:
        """Encrypt everything with another key, or with none, in one transaction.

        Until this is done, nothing changes, even if the program ends in the middle. Other tabs and processes then get
        StoreError("changed") for their writes, and open the memory again. Afterwards `uncompacted` tells if the files
        may still hold the earlier data. Raises StoreError("room") if there is too little space.
        """
        await self._rows.check_room()
        await self.check()  # not possible afterwards
        if lock is None:
            await self._rows.note_locked(False)
        target = {"key": lock.header, UNCOMPACTED: "yes"} if lock else {"key": None}
        await self._rewrite(sealing_anew(self._lock, lock, self.kinds), lock, target, self._schema)
        if lock is not None:
            await self._rows.note_locked(True)

    async def close(self) -> None:
        self._rows.listen(None)
        await self._rows.close()
        if self.locked_rows is not None:
            await self.locked_rows.close()

    async def _migrate(self, version: int) -> None:
        target: dict[str, str | None] = {"schema": str(self._schema)}
        if self._lock:
            target[UNCOMPACTED] = "yes"  # older versions left in the files what they held before the passphrase
        await self._rewrite(
            migrating(self._rows, self._lock, version, self._schema, self.kinds), self._lock, target, version
        )

    async def _delete_retired(self) -> None:
        kinds = [kind.name for kind in self.kinds if kind.retired]
        keys = [key for kind in kinds for key in await self.keys_starting_with(kind, "")]
        async with self.transaction() as transaction:
            for key in filter(self.kinds.is_retired, keys):
                transaction.delete(*key)

    async def _rewrite(self, change: Anew, lock: Lock | None, target: Mapping[str, str | None], schema: int) -> None:
        """Rewrite the rows (rewriting.py), then use `lock`."""
        async with self._writing:
            await rewrite(self._rows, change, lock, target, self._expected_meta(schema))
            self._lock = lock
            self._ledger = KeptLedger(self._rows, lock, self.kinds) if lock else None
            if UNCOMPACTED in target:
                self.uncompacted = await compact(self._rows)
        self._tell(Change(everything=True))

    async def check(self, step: Step = contextlib.nullcontext) -> Message | None:
        """Compare an encrypted memory with its ledger, one piece per step: `suspicion` then tells the differences."""
        if self._ledger is not None and self.suspicion is None and (said := await self._ledger.differences(step)):
            self.suspicion = tampered(said)
            self._tell(Change())
        return self.suspicion

    async def accept(self) -> None:
        """Accept the memory as it is: `suspicion` is cleared, and the differences are not reported again."""
        if self._lock is None:
            await self._rows.note_locked(False)
        else:
            await self._rewrite(nothing, self._lock, {}, self._schema)
        self.suspicion = None
        self._tell(Change())

    async def commit(self, transaction: Transaction, meta: Mapping[str, str | None] | None = None) -> None:
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
                if (problem := self.kinds.problem_of(record)) is not None:
                    raise StoreError("record", "memory.unfit-record", "{why}", why=problem)
            gone = tuple(transaction.deletes)
            batch = Batch(
                puts=await encode_records(stamped, self._lock, self.kinds),
                deletes=(*gone, *await blobs_with(self._rows, transaction, self.kinds)),
                clear=transaction.cleared,
                meta=meta or {},
                expect_meta=self._expected_meta(self._schema),
                expect_versions=transaction.expected,
            )
            await (self._ledger or self._rows).apply(batch)
        self.unreadable.difference_update(transaction.puts, gone)
        if transaction.cleared is not None:
            self.unreadable = {key for key in self.unreadable if transaction.cleared not in (EVERYTHING, key[0])}
        self._tell(Change(tuple(transaction.puts), gone, transaction.cleared))

    def _expected_meta(self, schema: int) -> dict[str, str | None]:
        """The condition that version and passphrase have not changed since this store was opened."""
        return {"schema": str(schema), "key": self._lock.header if self._lock else None}

    def _tell(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)
