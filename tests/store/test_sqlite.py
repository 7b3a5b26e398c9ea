"""Behaviour of SQLite alone: foreign files, old layouts, several processes, a full disk."""

from __future__ import annotations

import asyncio
import resource
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from py_core.store import sqlite
from py_core.store.errors import StoreError
from py_core.store.records import Record
from py_core.store.rows import LAYOUT, Change
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store
from tests.store.places import ANY_BODY

ROOT = Path(__file__).parents[2]


async def opened(path: Path) -> Store:
    return await Store.open(await SQLiteRows.open(path), kinds=ANY_BODY)


async def refusal(path: Path) -> StoreError:
    with pytest.raises(StoreError) as raised:
        await opened(path)
    return raised.value


async def read_all(path: Path) -> list[Record]:
    rows = await SQLiteRows.open(path)
    try:
        store = await Store.open(rows, kinds=ANY_BODY)
        return [record async for record in store.scan()]
    finally:
        await rows.close()


async def test_a_file_of_version_1_is_brought_to_the_present_version(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(sqlite._LAYOUT_1)
        connection.execute("INSERT INTO meta VALUES ('schema', '1'), ('revision', '7')")
        for n in range(1500):
            row = ("pattern", f"p{n:04d}", n, n, 7, b'{"agent":"coder"}' if n % 2 else b'{"agent":"tester"}', None)
            connection.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute(f"PRAGMA application_id = {sqlite.APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
    connection.close()

    store = await opened(path)

    assert await store.count() == 1500
    assert len(await store.query("pattern", {"agent": "coder"})) == 750
    assert await store.revision() == 8
    await store.close()
    store = await opened(path)
    assert await store.revision() == 8
    await store.close()


async def test_a_newer_layout_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    await (await opened(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {LAYOUT + 1}")
    connection.close()
    before = path.read_bytes()
    error = await refusal(path)
    assert error.reason == "newer"
    assert "Update Sonata" in str(error)
    assert path.read_bytes() == before


async def test_files_of_others_and_damaged_ones_are_refused_and_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    text = tmp_path / "text.sqlite"
    text.write_bytes(b"Dear diary, " * 1000)
    good = tmp_path / "good.sqlite"
    store = await opened(good)
    await store.put_many(Record("pattern", f"p{n}", {"x": "y" * 500}) for n in range(200))
    await store.close()
    cut = tmp_path / "cut.sqlite"
    cut.write_bytes(good.read_bytes()[:40_000])
    for path in (other, text, cut):
        before = path.read_bytes()
        with pytest.raises(StoreError, match=path.name) as raised:
            await read_all(path)
        assert raised.value.reason == "damaged", path
        assert path.read_bytes() == before


async def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    error = await refusal(tmp_path / "file" / "memory.sqlite")
    assert error.reason == "unavailable"
    assert "cannot be used" in str(error)


@contextmanager
def largest_file(nbytes: int) -> Iterator[None]:
    """As on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


async def test_a_full_disk_loses_nothing_that_was_stored(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    store = await opened(path)
    await store.put(Record("pattern", "kept", {"x": 1}))
    with largest_file(200_000), pytest.raises(StoreError) as raised:
        await store.put_many(Record("pattern", f"p{n}", {"x": "y" * 5000}) for n in range(200))
    assert raised.value.reason in ("quota", "unavailable")
    assert [record.id async for record in store.scan()] == ["kept"]
    await store.put(Record("pattern", "after"))
    await store.close()
    store = await opened(path)
    assert [record.id async for record in store.scan()] == ["after", "kept"]
    await store.close()


OTHER = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from py_core.store.records import Record
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store

async def main():
    store = await Store.open(await SQLiteRows.open(Path(sys.argv[1])))
    for n in range(int(sys.argv[3])):
        await store.put(Record("pattern", f"{sys.argv[2]}{n}"))
        await store.update("policy", "counter", lambda r: replace(r, body={"n": r.body["n"] + 1}))
    await store.close()

asyncio.run(main())
"""


async def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    store = await opened(path)
    await store.put(Record("policy", "counter", {"n": 0}))
    told: list[Change] = []
    store.on_change(told.append)
    commands = [(sys.executable, "-c", OTHER, path, name, "25") for name in "abc"]
    others = [await asyncio.create_subprocess_exec(*command, cwd=ROOT) for command in commands]
    for n in range(25):
        await store.put(Record("pattern", f"here{n}"))
    assert [await other.wait() for other in others] == [0, 0, 0]

    assert await store.count("pattern") == 100
    counter = await store.get("policy", "counter")
    assert counter is not None
    assert counter.body == {"n": 75}
    await store.poll()
    assert told[-1] == Change(elsewhere=True, everything=True)
    told.clear()
    await store.poll()
    assert told == []
    await store.close()


async def test_a_lock_that_is_not_given_back_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.1)
    path = tmp_path / "memory.sqlite"
    store = await opened(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="Another program") as raised:
        await store.put(Record("pattern", "a"))
    assert raised.value.reason == "busy"
    holder.execute("ROLLBACK")
    holder.close()
    await store.put(Record("pattern", "a"))
    await store.close()
