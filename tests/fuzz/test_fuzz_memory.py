"""Whatever the rows of a database or an exported file contain, the memory opens, lists, exports and deletes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from app.memory.api import MemoryApi
from app.protocol import to_json
from app.records.kinds import KINDS
from app.runtime import Runtime, RuntimeConfig
from py_core.store.errors import StoreError
from py_core.store.passphrase import set_passphrase
from py_core.store.rows import LAYOUT, Batch
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store
from py_core.store.transfer import import_file
from tests.fuzz.harness import check_sentence, fuzzed, hostile
from tests.store.bad_records import JUNK, bad_files, file_of, good_rows

PASSPHRASE = "correct horse"
GOOD = [replace(row, created=time.time(), updated=time.time()) for row in asyncio.run(good_rows())]
NAMES = [row.kind for row in GOOD]


def database(passphrase: str | None) -> bytes:
    """A file with a record of each kind."""

    async def make(path: Path) -> None:
        store = await Store.open(await SQLiteRows.open(path), kinds=KINDS)
        await store._rows.apply(Batch(puts=GOOD))
        if passphrase:
            await set_passphrase(store, passphrase, iterations=1)
        await store.close()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.sqlite"
        asyncio.run(make(path))
        return path.read_bytes()


DATABASES = {passphrase: database(passphrase) for passphrase in (None, PASSPHRASE)}

invalid_text = st.sampled_from(["CAST(x'ff' AS TEXT)", "CAST(x'00' AS TEXT)", "CAST(x'eda080' AS TEXT)"])
values = st.one_of(
    st.sampled_from([None, 0, -1, 2**63 - 1, LAYOUT + 1, 1e308, float("inf"), b"", b"\xff"]),
    st.sampled_from(["", "\0", "text", "[]", "{}", '[["agent",{}]]', "[5]"]),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.binary(max_size=50),
)
columns = st.sampled_from(["kind", "id", "created", "updated", "version", "body", "vector", "fields"])
changes = st.lists(
    st.one_of(
        st.tuples(st.just("records"), st.sampled_from(NAMES), columns, values | invalid_text.map(lambda sql: (sql,))),
        st.tuples(
            st.just("meta"),
            st.sampled_from(["schema", "revision", "uncompacted", "ledger", "more"]),
            st.just("value"),
            values | invalid_text.map(lambda sql: (sql,)),
        ),
        st.tuples(st.just("gone"), st.sampled_from(["schema", "revision", "ledger"]), st.none(), st.none()),
    ),
    min_size=1,
    max_size=4,
)


def damage(path: Path, changed: list[tuple[str, str, str | None, Any]]) -> set[str]:
    """Returns the kinds whose records are unchanged."""
    touched = set[str]()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for table, name, column, value in changed:
            sql, bound = (value[0], ()) if isinstance(value, tuple) else ("?", (value,))
            if table == "gone":
                connection.execute("DELETE FROM meta WHERE name = ?", (name,))
            elif table == "meta" and value is not None:
                connection.execute(f"INSERT OR REPLACE INTO meta VALUES (?, {sql})", (name, *bound))
            elif table == "records" and (value is not None or column == "vector"):
                connection.execute(f"UPDATE OR REPLACE records SET {column} = {sql} WHERE kind = ?", (*bound, name))
                touched.add(name)
    return set(NAMES) - touched


async def use_everything(path: Path, passphrase: str | None) -> set[str]:
    """Uses the memory like the page. Returns the kinds of the records that could be read."""
    runtime = await Runtime.open(RuntimeConfig(lambda: SQLiteRows.open(path)))
    if runtime.memory_stage.state == "locked":
        await runtime.unlock(passphrase)
    api, memory = MemoryApi(runtime), runtime.memory
    assert memory is not None
    if not memory.store.persistent:  # of a future version, as it says
        assert runtime.problem is not None
        assert "newer version of Sonata" in str(runtime.problem)
        await runtime.close()
        return set(NAMES)
    await memory.background.settled()
    shown: list[Any] = [await api.info(), await api.patterns(), await api.conversations("sheep"), await api.log()]
    shown += [await api.log("slow"), await api.statistics(), await api.policies()]
    shown += [await api.conversation(entry["id"]) for entry in (await api.conversations())["items"]]
    assert json.dumps(shown, allow_nan=False, default=to_json)
    if runtime.problem is not None:
        check_sentence(str(runtime.problem))
    kinds = {record.kind async for record in memory.store.scan()}
    await set_passphrase(memory.store, "another horse", old=passphrase, iterations=1)
    assert {record.kind async for record in memory.store.scan()} == kinds
    memory.store.suspicion = None
    assert await memory.store.check() is None
    await api.remove_unreadable()
    file = await api.export_file(None)
    await api.import_file(file, "replace", "another horse")
    assert {record.kind async for record in memory.store.scan()} == kinds
    await api.delete_all()
    assert await memory.store.count() == 0
    await runtime.close()
    return kinds


@fuzzed(st.sampled_from([None, PASSPHRASE]), changes, share=0.3)
def test_a_database_with_any_values_opens_lists_exports_and_deletes(
    passphrase: str | None, changed: list[tuple[str, str, str | None, Any]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.sqlite"
        path.write_bytes(DATABASES[passphrase])
        untouched = damage(path, changed)
        before = path.read_bytes()
        assert untouched <= asyncio.run(use_everything(path, passphrase))
        if any(change[:2] == ("meta", "schema") and change[3] == LAYOUT + 1 for change in changed[-1:]):
            assert path.read_bytes() == before


# ---- exported files ----


def entry_changed(data: bytes, number: int, place: int, value: Any) -> bytes:
    """With another value in an entry of its second line, and a correct checksum."""
    first, head, rest = data.split(b"\n", 2)
    entries = json.loads(head)
    entries[number % len(entries)][place] = value
    rest = json.dumps(entries).encode() + b"\n" + rest
    described = {**json.loads(first), "bytes": len(rest), "sha256": hashlib.sha256(rest).hexdigest()}
    return json.dumps(described).encode() + b"\n" + rest


def first_changed(data: bytes, name: str, value: Any) -> bytes:
    first, rest = data.split(b"\n", 1)
    described = {**json.loads(first), name: value}
    if value is ...:
        del described[name]
    return json.dumps(described).encode() + b"\n" + rest


FILE = file_of(GOOD)
junk = hostile | JUNK | st.sampled_from([10**400, -(10**400), 1e300, float("nan"), 2**53, [["a", 1]], [["agent", []]]])
names = st.sampled_from(["format", "version", "schema", "records", "bytes", "sha256", "key"])
files = st.one_of(
    bad_files(GOOD).map(lambda file: file.data),
    st.builds(entry_changed, st.just(FILE), st.integers(0, 9), st.integers(0, 7), junk),
    st.builds(first_changed, st.just(FILE), names, junk | st.just(...)),
    st.builds(lambda at, more: FILE[:at] + more + FILE[at:], st.integers(0, len(FILE)), st.binary()),
    st.binary(max_size=300),
)


@fuzzed(files, st.sampled_from(["merge", "replace"]), st.sampled_from([None, PASSPHRASE]), share=0.3)
def test_an_import_is_refused_and_changes_nothing_or_says_how_many_it_left_out(
    data: bytes, mode: Any, passphrase: str | None
) -> None:
    async def check(path: Path) -> None:
        store = await Store.open(await SQLiteRows.open(path), passphrase, kinds=KINDS)
        before = [record async for record in store.scan()]
        try:
            imported = await import_file(store, data, mode, passphrase)
        except StoreError as error:
            check_sentence(str(error))
            assert error.reason in ("file", "newer", "locked", "passphrase", "damaged")  # noqa: PT017
            assert [record async for record in store.scan()] == before
        else:
            assert 0 <= imported.left_out <= 2 * len(GOOD)
            count = await store.count()
            assert imported.written <= count <= imported.written + (len(before) if mode == "merge" else 0)
        assert await store.check() is None
        await store.close()
        assert not store.unreadable
        await use_everything(path, passphrase)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.sqlite"
        path.write_bytes(DATABASES[passphrase])
        asyncio.run(check(path))
