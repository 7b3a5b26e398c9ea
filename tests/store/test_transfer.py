"""Export to one file and import: on every backend, and from one to the other."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from py_core.store.encryption import NativeCrypto
from py_core.store.errors import StoreError
from py_core.store.passphrase import set_passphrase
from py_core.store.records import Record
from py_core.store.rows import LAYOUT
from py_core.store.store import Store
from py_core.store.transfer import export, import_file
from py_core.store.volatile import VolatileRows
from tests.store.browser.page import Tab
from tests.store.places import ANY_BODY, FEW_ITERATIONS, PASSPHRASE, Place, make_place

VECTOR = np.arange(8, dtype=np.float32)
RECORDS = [
    Record("pattern", "a", {"agent": "coder", "text": "fix ä"}, VECTOR, 1.0, 10.0),
    Record("pattern", "b", {"agent": "tester"}, None, 2.0, 20.0),
    Record("turn", "s/1", {"session": "s", "content": "hello"}, None, 3.0, 30.0),
]


async def everything(store: Store) -> list[Record]:
    return sorted([record async for record in store.scan()], key=lambda record: record.created or 0)


async def test_export_delete_all_import(store: Store) -> None:
    await store.put_many(RECORDS)
    lock = store.lock
    data = await export(store)
    await store.clear()
    assert await everything(store) == []

    assert (await import_file(store, data, "replace", PASSPHRASE if lock else None)).written == 3

    assert await everything(store) == RECORDS
    assert [r.id for r in await store.query("pattern", {"agent": "coder"})] == ["a"]


async def test_merging_keeps_what_was_changed_last(store: Store) -> None:
    await store.put_many(RECORDS)
    data = await export(store, in_the_clear=True)
    here = [
        replace(RECORDS[0], body={"agent": "changed here since"}, updated=11.0),
        replace(RECORDS[1], body={"agent": "older here"}, updated=19.0),
        Record("policy", "only here", {}, None, 4.0, 4.0),
    ]
    await store.clear()
    await store.put_many(here)

    assert (await import_file(store, data, "merge")).written == 2

    assert await everything(store) == [here[0], RECORDS[1], RECORDS[2], here[2]]
    assert (await import_file(store, data, "replace")).written == 3
    assert await everything(store) == RECORDS


async def test_a_passphrase_of_its_own(store: Store) -> None:
    await store.put_many(RECORDS)
    data = await export(store, "for the file")
    assert b"hello" not in data
    assert VECTOR.tobytes() not in data
    for passphrase, reason in ((None, "locked"), ("wrong", "passphrase")):
        with pytest.raises(StoreError) as raised:
            await import_file(store, data, "replace", passphrase)
        assert raised.value.reason == reason
    assert await everything(store) == RECORDS
    await store.clear()
    await import_file(store, data, "replace", "for the file")
    assert await everything(store) == RECORDS


def sample(passphrase: str | None = None) -> tuple[Store, bytes]:
    async def make() -> tuple[Store, bytes]:
        store = await Store.open(VolatileRows(), kinds=ANY_BODY)
        await store.put_many(RECORDS)
        if passphrase:
            await set_passphrase(store, passphrase, iterations=FEW_ITERATIONS)
        return store, await export(store)

    return asyncio.run(make())


async def refused(store: Store, data: bytes) -> str:
    """Returns the error's sentence, after which everything is unchanged."""
    before = await everything(store)
    with pytest.raises(StoreError) as raised:
        await import_file(store, data, "replace", PASSPHRASE)
    assert raised.value.reason in ("file", "newer", "damaged")
    assert await everything(store) == before
    return str(raised.value)


def test_cut_anywhere_it_is_refused() -> None:
    store, data = sample()
    for length in range(len(data)):
        sentence = asyncio.run(refused(store, data[:length]))
        assert sentence.endswith((".", "!"))
    assert "truncated" in asyncio.run(refused(store, data[:-1]))


@pytest.mark.no_cover
@pytest.mark.parametrize("examples", [50, pytest.param(600, marks=pytest.mark.all)])
def test_changed_anywhere_it_is_refused(examples: int) -> None:
    settings(max_examples=examples, deadline=None)(given(st.data(), st.booleans())(check_one_byte))()


def check_one_byte(choose: st.DataObject, encrypted: bool) -> None:
    store, data = SAMPLES[encrypted]
    place = choose.draw(st.integers(0, len(data) - 1))
    changed = bytearray(data)
    changed[place] ^= choose.draw(st.integers(1, 255))
    start = data.index(b"\n") + 1
    if place >= start:
        assert "nothing was changed" in asyncio.run(refused(store, bytes(changed))).lower()
        return
    before = asyncio.run(everything(store))
    with contextlib.suppress(StoreError):  # in the first line a change may have no effect, as in "records"
        asyncio.run(import_file(store, bytes(changed), "merge", PASSPHRASE))
    assert asyncio.run(everything(store)) == before


SAMPLES = {False: sample(), True: sample(PASSPHRASE)}


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=50).map(lambda text: f'{{"format": "{text}"}}\n'.encode()))
def test_foreign_files_are_refused(data: bytes) -> None:
    asyncio.run(refused(SAMPLES[False][0], data))


async def test_a_newer_export_is_refused() -> None:
    store, data = await asyncio.to_thread(sample)
    for old, new in (
        (b'"version": 1', b'"version": 2'),
        (f'"schema": {LAYOUT}'.encode(), f'"schema": {LAYOUT + 1}'.encode()),
    ):
        assert "newer version" in await refused(store, data.replace(old, new, 1))


async def test_between_python_and_the_page(tmp_path: Path, get_tab: Callable[[], Tab]) -> None:
    """With a passphrase, and with the whole of it running in Pyodide."""
    tab = get_tab()
    native = make_place("sqlite", tmp_path, get_tab)
    store = await native.open()
    await store.put_many(RECORDS)
    await set_passphrase(store, PASSPHRASE, iterations=FEW_ITERATIONS)
    sent = base64.b64encode(await export(store)).decode()

    found, back = await tab.call("run", IN_PAGE, sent, PASSPHRASE)

    assert found == [["a", 1.0], ["added", 0.0]]
    other = await make_place("sqlite", tmp_path, get_tab).open()
    assert (await import_file(other, base64.b64decode(back), "replace", "from the page")).written == 4
    records = {record.id: record async for record in other.scan()}
    assert [records[r.id] for r in RECORDS] == RECORDS
    assert records["added"].body == {"agent": "page", "text": "written in the page"}
    await store.close()
    await other.close()
    assert isinstance(other.crypto, NativeCrypto)


IN_PAGE = """
import numpy as np
from py_core.store.encryption import ITERATIONS
from py_core.store.passphrase import set_passphrase
from py_core.store.records import Record
from py_core.store.store import Store
from py_core.store.transfer import export, import_file
from py_core.store.vectors import VectorSearch
from py_core.store.write_batch import BatchedWriter

async def main(data, passphrase):
    rows = await IndexedDBRows.open(memory_store, "transfer")
    store = await Store.open(rows, crypto=crypto)
    await set_passphrase(store, "of the page")
    assert (await import_file(store, base64.b64decode(data), "replace", passphrase)).written == 3
    search = VectorSearch(store)
    writer = BatchedWriter(store)
    body = {"agent": "page", "text": "written in the page"}
    writer.put(Record("pattern", "added", body, np.array([1, 0, 0, 0, 0, 0, 0, 0], np.float32)))
    await writer.flush()
    found = await search.search("pattern", np.arange(8, dtype=np.float32), 5)
    exported = await export(store, "from the page")
    await store.close()
    again = await Store.open(await IndexedDBRows.open(memory_store, "transfer"), "of the page", crypto=crypto)
    assert await again.count() == 4
    await again.close()
    return [[record.id, round(s, 6)] for record, s in found], base64.b64encode(exported).decode()
"""


async def test_an_encrypted_memory_exports_encrypted_unless_told_otherwise(place: Place) -> None:
    store = await place.open()
    await store.put_many(RECORDS)
    assert (b"hello" in await export(store)) is not place.encrypted
    assert b"hello" in await export(store, in_the_clear=True)
