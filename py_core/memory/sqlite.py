"""Rows in one SQLite file. All of it runs in a thread of its own, off the event loop.

A commit is on the disk before `apply` returns (WAL, synchronous=FULL): writes come in batches, so this costs a few
fsyncs a second at most. Several processes may have the file open; SQLite's own locks keep them apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from py_core.memory.errors import StoreError
from py_core.memory.rows import EVERYTHING, LAYOUT, Batch, Key, OnChange, Query, Range, Row, check_expectations

T = TypeVar("T")
APPLICATION_ID = 0x534F4E41  # "SONA"
BUSY_SECONDS = 10.0

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
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memory")
        self._connection: sqlite3.Connection | None = None
        self._seen = 0  # SQLite's own count of what others committed

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
        with contextlib.suppress(FileExistsError):  # for its owner only, from the first byte
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._connection = connection
        version = _pragma(connection, "user_version")
        empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if _pragma(connection, "application_id") != APPLICATION_ID and not (version == 0 and empty):
            raise StoreError("damaged", f"{self.place} was not written by Sonata. Choose another path.")
        if version > LAYOUT:
            raise StoreError("newer")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")  # what is deleted is not left in the file
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
            select = f"SELECT {_COLUMNS} FROM records WHERE kind = ? AND id = ?"
            found = (self._open().execute(select, key).fetchone() for key in keys)
            return [_row(values) for values in found if values is not None]

        return await self._run(read)

    async def scan(self, kind: str | None, after: Key | None, limit: int) -> list[Row]:
        where, values = ["1"], list[object]()
        if kind is not None:
            where.append("kind = ?")
            values.append(kind)
        if after is not None:
            where.append("(kind, id) > (?, ?)")
            values.extend(after)
        select = f"SELECT {_COLUMNS} FROM records WHERE {' AND '.join(where)} ORDER BY kind, id LIMIT ?"
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
            f"SELECT {_COLUMNS} FROM records WHERE {' AND '.join(where)} "
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
            check_expectations(batch, meta, {key: version[0] for key, version in found.items() if version})
            revision = int(meta["revision"]) + 1
            if batch.clear is not None:
                for table in ("records", "fields"):
                    if batch.clear == EVERYTHING:
                        connection.execute(f"DELETE FROM {table}")
                    else:
                        connection.execute(f"DELETE FROM {table} WHERE kind = ?", (batch.clear,))
            keys = [*batch.deletes, *(row.key for row in batch.puts)]
            connection.executemany("DELETE FROM fields WHERE kind = ? AND id = ?", keys)
            connection.executemany("DELETE FROM records WHERE kind = ? AND id = ?", batch.deletes)
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

    async def compact(self) -> None:
        def rewrite() -> None:
            connection = self._open()
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        await self._run(rewrite)

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
            return StoreError("quota", f"The disk of {self.place} is full. Free some space, then start Sonata again.")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreError(
                "damaged",
                f"{self.place} is damaged, or Sonata did not write it. Move it away. It was not changed.",
            )
        return StoreError("unavailable", f"{self.place} cannot be used ({error}). Check its folder's permissions.")


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


def _execute_all(connection: sqlite3.Connection, script: str) -> None:
    """Unlike `executescript` inside the running transaction."""
    for statement in script.split(";"):
        connection.execute(statement)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _meta(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT name, value FROM meta").fetchall())


def _row(values: tuple[str, str, float, float, bytes, bytes | None, str, int]) -> Row:
    kind, id, created, updated, body, vector, fields, version = values
    found_by = () if fields == "[]" else tuple((name, value) for name, value in json.loads(fields))
    return Row(kind, id, created, updated, body, vector, found_by, version)
