"""Records that cannot be read, in a file or in the database: they are left out and counted, and all else works."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.memory.api import MemoryApi
from app.native_runtime import native_router_parts
from app.protocol import to_json
from app.records.kinds import KINDS
from app.records.memory import Memory
from app.routing.factory import RouterParts
from app.runtime import Runtime
from py_core.store.errors import StoreError
from py_core.store.passphrase import set_passphrase
from py_core.store.rows import Batch
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store
from py_core.store.transfer import Imported, export, import_file
from py_core.store.volatile import VolatileRows
from tests.runtime import runtime_over
from tests.store.bad_records import (
    PATTERN,
    POLICY,
    SESSION,
    TURN,
    VECTOR,
    BadFile,
    bad_files,
    file_of,
    good_rows,
    nested,
    with_body,
)
from tests.store.browser.page import Tab
from tests.store.places import PASSPHRASE

Mode = Literal["merge", "replace"]
GOOD = asyncio.run(good_rows())
ONE_BAD = {
    "an extra field": with_body(GOOD[POLICY], extra=1),
    "a missing field": with_body(GOOD[POLICY], confidence=...),
    "a field of another type": with_body(GOOD[POLICY], confidence="high"),
    "a value of no policy": with_body(GOOD[POLICY], value={"a": 1}),
    "a number that is infinite": with_body(GOOD[POLICY], value=float("inf")),
    "more turns than there can be": with_body(GOOD[SESSION], turns=10**7),
    "a role that nobody has": with_body(GOOD[TURN], role="root"),
    "a vector that is too short": replace(GOOD[PATTERN], vector=VECTOR.tobytes()[4:]),
    "no vector": replace(GOOD[PATTERN], vector=None),
    "half a number": replace(GOOD[PATTERN], vector=b"123"),
    "a time after the year 9999": replace(GOOD[TURN], created=1e18),
    "no JSON": replace(GOOD[TURN], body=b"{"),
    "lists without end": replace(GOOD[TURN], body=b'{"a":' + b"[" * 100_000),
    "details that are too deep": with_body(GOOD[TURN], details={"a": nested(49)}),
    "a route whose ranks are none": with_body(GOOD[TURN], details={"route": {"ranked": [5]}}),
    "a thought without its text": with_body(GOOD[TURN], details={"thinking": {"seconds": 5}}),
    "an unknown kind": replace(GOOD[TURN], kind="dream"),
    "the id of another conversation": replace(GOOD[TURN], id="other/000000"),
}


async def check_that_all_works(store: Store) -> None:
    """The operations of an application on a memory: none may fail."""
    memory = await Memory.open(store)
    await memory.patterns.all()
    for session in await memory.sessions.all():
        await memory.sessions.path(session.id)
    await memory.log.spikes()
    await memory.log.percentiles()
    await memory.log.trends()
    assert isinstance(memory.policies.get("answers.length", 0), int)
    data = await export(store, in_the_clear=True)
    await import_file(store, data, "replace")  # whatever was exported can be imported
    assert not store.unreadable
    await memory.sessions.start("After all that")
    for session in await memory.sessions.all():
        await memory.sessions.delete(session.id)
    await memory.writer.close()


async def test_an_import_leaves_out_what_cannot_be_read_and_counts_it() -> None:
    for name, bad in ONE_BAD.items():
        store = await Store.open(VolatileRows(), kinds=KINDS)
        good = [row for row in GOOD if row.kind != bad.kind]
        assert await import_file(store, file_of([*good, bad]), "replace") == Imported(len(good), 1), name
        assert await store.count() == len(good), name
        assert not store.unreadable, name
        with pytest.raises(StoreError, match="Nothing in this file can be read"):
            await import_file(store, file_of([bad]), "replace")
        assert await store.count() == len(good), name


async def test_a_bad_record_in_the_database_is_left_out_wherever_it_is_read() -> None:
    for name, bad in ONE_BAD.items():
        rows = VolatileRows()
        good = [row for row in GOOD if row.kind != bad.kind]
        await rows.apply(Batch(puts=[*good, bad]))
        store = await Store.open(rows, kinds=KINDS)
        assert [record.key async for record in store.scan()] == sorted(row.key for row in good), name
        assert store.unreadable == {bad.key}, name
        await check_that_all_works(store)
        assert await store.count(bad.kind) == 0, name


async def test_a_bad_record_can_be_replaced_and_deleted_and_goes_with_its_conversation(store: Store) -> None:
    rows = store._rows
    damaged = [replace(ONE_BAD["no JSON"], id=f"{GOOD[SESSION].id}/000001"), ONE_BAD["an extra field"]]
    await rows.apply(Batch(puts=[GOOD[SESSION], GOOD[TURN], *damaged]))
    if store.lock is not None:  # plain data cannot be opened with a key
        assert await store.get("session", GOOD[SESSION].id) is None
        assert await store.delete_unreadable() == 4
        assert await store.count() == 0
        return
    store.kinds = KINDS
    memory = await Memory.open(store)
    assert [turn.content for turn in await memory.sessions.path(GOOD[SESSION].id)] == ["How many sheep?"]
    assert len(store.unreadable) == 2
    await memory.sessions.delete(GOOD[SESSION].id)
    assert await store.count() == 1
    await memory.policies.set("answers.length", 5, confidence=1.0, source="user")
    assert not store.unreadable
    await rows.apply(Batch(puts=damaged))
    await store.clear()
    assert await store.count() == 0


async def test_a_damaged_body_does_not_stay_behind_in_the_clear(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    rows = await SQLiteRows.open(path)
    await rows.apply(Batch(puts=[replace(GOOD[TURN], body=b"{a secret")]))
    store = await Store.open(rows, kinds=KINDS)
    await set_passphrase(store, PASSPHRASE, iterations=1000)
    assert await store.get(*GOOD[TURN].key) is None
    await store.close()
    assert b"a secret" not in b"".join(file.read_bytes() for file in sorted(tmp_path.iterdir()))  # noqa: ASYNC240


async def test_a_write_of_what_could_not_be_read_again_is_refused() -> None:
    store = await Store.open(VolatileRows(), kinds=KINDS)
    memory = await Memory.open(store)
    with pytest.raises(StoreError, match="title of a conversation is text of at most 1,000"):
        await memory.sessions.start("x" * 1001)
    with pytest.raises(StoreError, match="value of a policy"):
        await memory.policies.set("p", float("nan"), confidence=1.0, source="user")
    assert await store.count() == 0


def test_every_kind_has_a_schema() -> None:
    assert {row.kind for row in GOOD} == {kind.name for kind in KINDS.in_use}


MODES = st.sampled_from(["merge", "replace"])


@pytest.mark.no_cover
@pytest.mark.parametrize("examples", [10, pytest.param(120, marks=pytest.mark.all)])
def test_whatever_is_in_a_file_the_memory_works_afterwards_in_sqlite(examples: int) -> None:
    async def check(file: BadFile, mode: Mode) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "memory.sqlite"
            store = await Store.open(await SQLiteRows.open(path), kinds=KINDS)
            await check_import(store, file, mode)
            await store.close()
            again = await Store.open(await SQLiteRows.open(path), kinds=KINDS)
            await check_that_all_works(again)
            await again.close()

    @settings(max_examples=examples, deadline=None)
    @given(bad_files(GOOD), MODES)
    def draw(file: BadFile, mode: Mode) -> None:
        asyncio.run(check(file, mode))

    draw()


@pytest.mark.parametrize("examples", [10, pytest.param(120, marks=pytest.mark.all)])
def test_whatever_is_in_a_file_the_memory_works_afterwards_in_the_page(
    get_tab: Callable[[], Tab], examples: int
) -> None:
    """All of it in Pyodide: many files, one call."""
    files: list[str] = []

    @settings(max_examples=examples, deadline=None, database=None)
    @given(bad_files(GOOD))
    def collect(file: BadFile) -> None:
        files.append(base64.b64encode(zlib.compress(file.data)).decode())

    collect()
    assert len(files) >= examples
    assert asyncio.run(get_tab().call("run", IN_PAGE, files)) == []


IN_PAGE = """
import zlib
from app.records.kinds import KINDS
from app.records.memory import Memory
from py_core.store.store import Store
from py_core.store.transfer import export, import_file

async def main(files):
    trouble = []
    for number, file in enumerate(files):
        try:
            await check(zlib.decompress(base64.b64decode(file)))
        except Exception as error:
            trouble.append(f"{number}: {type(error).__name__}: {error}")
    return trouble

async def open_store():
    rows = await IndexedDBRows.open(memory_store, "bad-files")
    return await Store.open(rows, crypto=crypto, kinds=KINDS)

async def check(data):
    store = await open_store()
    await store.clear()
    try:
        await import_file(store, data, "replace")
    except StoreError as error:
        assert error.reason == "file" and await store.count() == 0, error
    await store.close()
    store = await open_store()
    memory = await Memory.open(store)
    await memory.patterns.all()
    for session in await memory.sessions.all():
        await memory.sessions.path(session.id)
    await memory.log.trends()
    await import_file(store, await export(store), "merge")
    assert not store.unreadable
    for session in await memory.sessions.all():
        await memory.sessions.delete(session.id)
    await store.clear()
    assert await store.count() == 0
    await memory.close()
"""


async def check_import(store: Store, file: BadFile, mode: Mode) -> None:
    try:
        imported = await import_file(store, file.data, mode)
    except StoreError as error:
        assert error.reason == "file"  # noqa: PT017 - the other way is as good
        assert await store.count() == 0
        return
    keys = {record.key async for record in store.scan()}
    assert not store.unreadable
    assert file.untouched <= keys
    assert imported.written == len(keys)
    assert imported.written + imported.left_out <= len(file.rows)


# ---- the whole application ----


@pytest.fixture(scope="module")
def parts(dist: Path) -> RouterParts:
    return native_router_parts()


async def open_runtime(path: Path, parts: RouterParts) -> Runtime:
    return await runtime_over(path, parts)


@pytest.mark.all
@pytest.mark.no_cover
def test_after_any_import_the_view_lists_routes_exports_and_deletes(parts: RouterParts) -> None:
    """Seconds each; imports are fuzzed more often above."""

    async def check(file: BadFile) -> None:
        with tempfile.TemporaryDirectory() as folder:
            runtime = await open_runtime(Path(folder) / "memory.sqlite", parts)
            with contextlib.suppress(StoreError):
                await MemoryApi(runtime).import_file(file.data, "replace", None)
            await runtime.close()
            runtime = await open_runtime(Path(folder) / "memory.sqlite", parts)
            assert (runtime.memory_stage.state, runtime.routing_stage.state, runtime.problem) == (
                "ready",
                "ready",
                None,
            )
            await check_the_view(runtime)
            await runtime.close()

    @settings(max_examples=6, deadline=None)
    @given(bad_files(GOOD))
    def draw(file: BadFile) -> None:
        asyncio.run(check(file))

    draw()


async def check_the_view(runtime: Runtime) -> None:
    api = MemoryApi(runtime)
    shown = [
        await api.info(),
        await api.counts(),
        await api.patterns(search="sheep"),
        await api.conversations(search="sheep"),
    ]
    shown += [await api.log(search="sheep"), await api.log("errors"), await api.log("slow"), await api.statistics()]
    shown += [await api.policies(), await api.agents(), await api.map()]
    for conversation in (await api.conversations())["items"]:
        shown.append(await api.conversation(conversation["id"]))
    assert json.dumps(shown, allow_nan=False, default=to_json)
    assert runtime.routing is not None
    assert (await runtime.routing.route("count the sheep")).agent
    await api.export_file(None)
    await api.correct("", "count the sheep", "planner")
    await api.add_agent({"id": "cook", "title": "Cook", "definition": "Cooks.", "system_prompt": "You cook."})
    await api.delete_all()
    assert set((await api.counts()).values()) <= {0, 1}  # the policy that names the embedder


@pytest.mark.parametrize(
    "name",
    [
        "no JSON",
        *(
            pytest.param(name, marks=pytest.mark.all)
            for name in ("an extra field", "more turns than there can be", "a vector that is too short")
        ),
    ],
)
async def test_a_bad_record_is_told_once_and_locks_nothing_out(name: str, parts: RouterParts, tmp_path: Path) -> None:
    rows = await SQLiteRows.open(tmp_path / "memory.sqlite")
    bad = ONE_BAD[name]
    await rows.apply(Batch(puts=[*GOOD, replace(bad, id=f"{bad.id}0")]))
    await rows.close()
    runtime = await open_runtime(tmp_path / "memory.sqlite", parts)
    assert (runtime.memory_stage.state, runtime.routing_stage.state) == ("ready", "ready")
    api = MemoryApi(runtime)
    await api.export_file(None)
    assert (await api.info())["unreadable"] == 1
    assert runtime.problem is not None
    assert "left out" in str(runtime.problem)
    runtime.problem = None
    await check_the_view(runtime)
    assert runtime.problem is None
    await runtime.close()


async def test_what_cannot_be_read_is_deleted_on_request(parts: RouterParts, tmp_path: Path) -> None:
    rows = await SQLiteRows.open(tmp_path / "memory.sqlite")
    await rows.apply(Batch(puts=[*GOOD, *(replace(bad, id=f"{n}") for n, bad in enumerate(ONE_BAD.values()))]))
    await rows.close()
    runtime = await open_runtime(tmp_path / "memory.sqlite", parts)
    api = MemoryApi(runtime)
    assert await api.remove_unreadable() == len(ONE_BAD)
    assert (await api.info())["unreadable"] == 0
    assert await api.remove_unreadable() == 0
    assert (await api.conversations())["total"] == 1
    await runtime.close()
