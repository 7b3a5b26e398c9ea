"""Rows in one SQLite file. All work on it runs in a thread of its own, off the event loop.

A commit is on the disk before `apply` returns (WAL, synchronous=FULL). Writes come in batches, so this costs at most a
few fsyncs a second. Several processes may have the file open; SQLite's own locks keep them apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from py_core.store.errors import SENTENCES, StoreError
from py_core.store.rows import (
    EVERYTHING,
    LAYOUT,
    NAMELESS,
    UNCOMPACTED,
    UNKNOWN_TIME,
    Batch,
    Key,
    OnChange,
    Query,
    Range,
    Row,
    check_expectations,
    mended_meta,
)

T = TypeVar("T")
APPLICATION_ID = 0x534F4E41  # "SONA"
BUSY_SECONDS = 10.0
ROOM = 3
"""The factor of the file's size that a rewrite may need: twice in the -wal (rows are replaced), and VACUUM's copy."""
SPARE_BYTES = 4 << 20

_LAYOUT_1 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE records (
  kind TEXT NOT NULL, id TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL, version INTEGER NOT NULL,
  body BLOB NOT NULL, vector BLOB, PRIMARY KEY (kind, id)
);
CREATE INDEX records_by_time ON records (kind, created, id);
"""
_LAYOUT_2 = """
ALTER TABLE records ADD COLUMN fields TEXT NOT NULL DEFAULT '[]';
CREATE TABLE fields (kind TEXT NOT NULL, field TEXT NOT NULL, value NOT NULL, id TEXT NOT NULL,
                     PRIMARY KEY (kind, field, value, id)) WITHOUT ROWID;
CREATE INDEX fields_by_record ON fields (kind, id);
"""
_COLUMNS = "kind, id, created, updated, body, vector, fields, version"


class SQLiteRows:
    """See `Rows`. Made by `open`."""

    persistent = True

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._path = path
        self._lock_note = path.with_name(f"{path.name}.locked")
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memory")
        self._connection: sqlite3.Connection | None = None
        self._seen = 0  # SQLite's own count of other connections' commits

    @classmethod
    async def open(cls, path: Path) -> SQLiteRows:
        """Open or create the file. Raises StoreError: newer, damaged, unavailable, busy."""
        rows = cls(path)
        try:
            await rows._run(rows._connect)
        except BaseException:
            await rows.close()
            raise
        return rows

    def _connect(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # readable by its owner only, from the first byte
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._connection = connection
        connection.text_factory = _text
        version = _pragma(connection, "user_version")
        empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if _pragma(connection, "application_id") != APPLICATION_ID and not (version == 0 and empty):
            raise StoreError(
                "damaged",
                "memory.other-file",
                "{path} was not written by Sonata. Choose another path.",
                path=self.place,
            )
        if version > LAYOUT:
            raise StoreError("newer")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")  # deleted data is not left in the file
        if version < LAYOUT:
            self._upgrade(connection)
        self._seen = _pragma(connection, "data_version")

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        with _transaction(connection):
            version = _pragma(connection, "user_version")  # another process may have been faster
            if version < 1:
                _execute_all(connection, _LAYOUT_1)
                new = [("schema", str(LAYOUT)), ("revision", "0")]
                connection.executemany("INSERT INTO meta VALUES (?, ?)", new)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            if version < 2:
                _execute_all(connection, _LAYOUT_2)
            connection.execute(f"PRAGMA user_version = {LAYOUT}")

    async def meta(self) -> dict[str, str]:
        return await self._run(lambda: _meta(self._open()))

    async def get(self, keys: Sequence[Key]) -> list[Row]:
        def read() -> list[Row]:
            select = f"SELECT rowid, {_COLUMNS} FROM records WHERE "
            found = (self._open().execute(select + where, values).fetchone() for where, values in map(_where, keys))
            return [_row(values) for values in found if values is not None]

        return await self._run(read)

    async def scan(self, kind: str | None, after: Key | None, limit: int) -> list[Row]:
        where, values = ["1"], list[object]()
        if kind is not None:
            where.append("kind = ?")
            values.append(kind)
        if after is not None:
            found, place = _where(after)
            where.append(
                "(kind, id) > (?, ?)"
                if len(place) == 2
                else f"(kind, id) > (SELECT kind, id FROM records WHERE {found})"
            )
            values.extend(place)
        select = f"SELECT rowid, {_COLUMNS} FROM records WHERE {' AND '.join(where)} ORDER BY kind, id LIMIT ?"
        return await self._run(lambda: [_row(v) for v in self._open().execute(select, [*values, limit])])

    async def query(self, query: Query) -> list[Row]:
        where, values = ["kind = ?"], list[object]([query.kind])
        if query.since is not None:
            where.append("created >= ?")
            values.append(query.since)
        if query.before is not None:
            where.append("created < ?")
            values.append(query.before)
        for field, wanted in query.where.items():
            low, high = (wanted.low, wanted.high) if isinstance(wanted, Range) else (wanted, wanted)
            where.append("id IN (SELECT id FROM fields WHERE kind = ? AND field = ? AND value BETWEEN ? AND ?)")
            values.extend((query.kind, field, low, high))
        order = "DESC" if query.newest_first else "ASC"
        select = (
            f"SELECT rowid, {_COLUMNS} FROM records WHERE {' AND '.join(where)} "
            f"ORDER BY created {order}, id {order} LIMIT {-1 if query.limit is None else query.limit:d}"
        )
        return await self._run(lambda: [_row(v) for v in self._open().execute(select, values)])

    async def count(self, kind: str | None) -> int:
        select, values = "SELECT count(*) FROM records", list[object]()
        if kind is not None:
            select, values = f"{select} WHERE kind = ?", [kind]
        return await self._run(lambda: int(self._open().execute(select, values).fetchone()[0]))

    async def apply(self, batch: Batch) -> int:
        return await self._run(lambda: self._apply(batch))

    def _apply(self, batch: Batch) -> int:
        connection = self._open()
        with _transaction(connection):
            meta = _meta(connection)
            select = "SELECT version FROM records WHERE kind = ? AND id = ?"
            found = {key: connection.execute(select, key).fetchone() for key in batch.expect_versions}
            check_expectations(batch, meta, {key: _version(one[0]) for key, one in found.items() if one})
            revision = int(meta["revision"]) + 1
            if batch.clear is not None:
                for table in ("records", "fields"):
                    if batch.clear == EVERYTHING:
                        connection.execute(f"DELETE FROM {table}")
                    else:
                        connection.execute(f"DELETE FROM {table} WHERE kind = ?", (batch.clear,))
            keys = [*batch.deletes, *(row.key for row in batch.puts)]
            connection.executemany("DELETE FROM fields WHERE kind = ? AND id = ?", keys)
            for key in batch.deletes:
                where, values = _where(key)
                if key in _keys(connection, where, values):  # VACUUM may give the number of a nameless row to another
                    connection.execute(f"DELETE FROM records WHERE {where}", values)
            connection.executemany(
                f"INSERT OR REPLACE INTO records ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (r.kind, r.id, r.created, r.updated, r.body, r.vector, json.dumps(r.fields), revision)
                    for r in batch.puts
                ),
            )
            connection.executemany(
                "INSERT OR REPLACE INTO fields VALUES (?, ?, ?, ?)",
                ((row.kind, name, value, row.id) for row in batch.puts for name, value in row.fields),
            )
            for name, value in {**batch.meta, "revision": str(revision)}.items():
                if value is None:
                    connection.execute("DELETE FROM meta WHERE name = ?", (name,))
                else:
                    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
        return revision

    async def poll(self) -> bool:
        def look() -> bool:
            before, self._seen = self._seen, _pragma(self._open(), "data_version")
            return before != self._seen

        return await self._run(look)

    def listen(self, heard: OnChange | None) -> None:
        """Do nothing: SQLite does not report changes; see `poll`."""

    async def check_room(self) -> None:
        def check() -> None:
            connection = self._open()
            nbytes = ROOM * _pragma(connection, "page_count") * _pragma(connection, "page_size") + SPARE_BYTES
            free = shutil.disk_usage(self._path.parent).free
            if free < nbytes:
                needed = (
                    f"This needs {nbytes / 1e6:,.0f} MB on the disk of {self.place}, which has {free / 1e6:,.0f} MB."
                )
                raise StoreError(
                    "room",
                    "memory.native-room",
                    "{needed} Free some space, then try again. Nothing was changed.",
                    needed=needed,
                )

        await self._run(check)

    async def was_locked(self) -> bool:
        return await self._run(self._lock_note.exists)

    async def note_locked(self, locked: bool) -> None:
        def note() -> None:
            if locked:
                os.close(os.open(self._lock_note, os.O_CREAT | os.O_WRONLY, 0o600))
            else:
                self._lock_note.unlink(missing_ok=True)

        with contextlib.suppress(StoreError):
            await self._run(note)

    async def compact(self) -> None:
        def rewrite() -> None:
            connection = self._open()
            # First empty the log: the old pages, overwritten with zeros, have their place in the file even on a full
            # disk.
            if _empty_log(connection):
                connection.execute("VACUUM")
                if _empty_log(connection):
                    connection.execute("DELETE FROM meta WHERE name = ?", (UNCOMPACTED,))
                    return
            raise StoreError(
                "compacting",
                "memory.compacting-open",
                "{sentence} Another program has {path} open.",
                sentence=SENTENCES["compacting"],
                path=self.place,
            )

        try:
            await self._run(rewrite)
        except StoreError as error:
            if error.reason in ("compacting", "closed", "damaged"):
                raise
            raise StoreError(
                "compacting",
                "memory.compacting-failed",
                "{sentence} {why}",
                sentence=SENTENCES["compacting"],
                why=error,
            ) from error

    async def close(self) -> None:
        def end() -> None:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

        with contextlib.suppress(RuntimeError):  # closed before
            await asyncio.get_running_loop().run_in_executor(self._thread, end)
        self._thread.shutdown(wait=False)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError("closed")
        return self._connection

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        except RuntimeError:  # the thread has ended
            raise StoreError("closed") from None
        try:
            return await running
        except (sqlite3.Error, OSError) as error:
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreError("busy")
        if code == sqlite3.SQLITE_FULL:
            return StoreError(
                "quota",
                "memory.native-quota",
                "The disk of {path} is full. Free some space, then start Sonata again.",
                path=self.place,
            )
        # An "error" is one of our statements that does not fit the existing tables.
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            return StoreError(
                "damaged",
                "memory.native-damaged",
                "{path} is damaged, or Sonata did not write it. Move it away. It was not changed.",
                path=self.place,
            )
        return StoreError(
            "unavailable",
            "memory.native-unavailable",
            "{path} cannot be used ({why}). Check its folder's permissions.",
            path=self.place,
            why=error,
        )


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _empty_log(connection: sqlite3.Connection) -> bool:
    """Move the content of the -wal into the database, and empty it. Return False if another program is reading it."""
    return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]


def _execute_all(connection: sqlite3.Connection, script: str) -> None:
    """Run a script inside the running transaction, unlike `executescript`."""
    for statement in script.split(";"):
        connection.execute(statement)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _meta(connection: sqlite3.Connection) -> dict[str, str]:
    return mended_meta(dict(connection.execute("SELECT name, value FROM meta").fetchall()))


def _where(key: Key) -> tuple[str, tuple[object, ...]]:
    """The condition that finds a row, and its values."""
    kind, id = key
    return ("rowid = ?", (int(id[1:]),)) if id.startswith(NAMELESS) else ("kind = ? AND id = ?", (kind, id))


def _keys(connection: sqlite3.Connection, where: str, values: tuple[object, ...]) -> list[Key]:
    found = connection.execute(f"SELECT rowid, {_COLUMNS} FROM records WHERE {where}", values)
    return [_row(each).key for each in found]


def _row(values: tuple[Any, ...]) -> Row:
    """Convert any row that SQLite can hold. A value of an unexpected type makes the row unreadable as a record."""
    rowid, kind, id, created, updated, body, vector, fields, version = values
    try:
        found_by = () if fields == "[]" else tuple((name, value) for name, value in json.loads(fields))
    except (ValueError, TypeError, RecursionError):
        found_by = ()
    if not _is_name(kind) or not _is_name(id):
        kind, id = kind if _is_name(kind) else "", f"{NAMELESS}{rowid}"
    created, updated = (t if isinstance(t, int | float) else UNKNOWN_TIME for t in (created, updated))
    body = body if isinstance(body, bytes) else b""
    vector = vector if isinstance(vector, bytes | None) else b""
    return Row(kind, id, float(created), float(updated), body, vector, found_by, _version(version))


def _version(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable()  # so without the surrogates of _text


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
