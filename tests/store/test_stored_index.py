"""The graph of an index is stored beside its vectors: read if it fits, extended, rebuilt, never trusted."""

from __future__ import annotations

import asyncio
from functools import cache

import numpy as np
import pytest

from app.models.build_outputs import hnsw_kernel_path
from app.records.memory import Memory
from py_core.hnsw.wasmtime_kernel import WasmtimeHnswKernel
from py_core.store.background import Background
from py_core.store.passphrase import set_passphrase
from py_core.store.records import Record
from py_core.store.rows import BLOB
from py_core.store.store import Store
from py_core.store.stored_index import UNSAVED, StoredIndex
from py_core.store.transfer import export, read_export
from py_core.store.vectors import VectorSearch
from py_core.store.volatile import VolatileRows
from tests.store.places import ANY_BODY, FEW_ITERATIONS, PASSPHRASE, Place

DIMENSIONS, SCANNED = 8, 50
NAME = "things"


@cache
def kernel() -> WasmtimeHnswKernel:
    return WasmtimeHnswKernel(hnsw_kernel_path())


def vectors(count: int, start: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(start)
    return {f"thing {start + n}": rng.standard_normal(DIMENSIONS).astype(np.float32) for n in range(count)}


async def opened(store: Store, there: dict[str, np.ndarray], background: Background | None = None) -> StoredIndex:
    return await StoredIndex.open(store, NAME, there, DIMENSIONS, background or Background(), kernel(), SCANNED)


async def built(store: Store, there: dict[str, np.ndarray]) -> StoredIndex:
    background = Background()
    stored = await opened(store, there, background)
    await background.settled()
    assert stored.index.behind == 0
    return stored


def assert_finds_the_true_ones(stored: StoredIndex, there: dict[str, np.ndarray]) -> None:
    assert set(stored.index) == set(there)
    unit = {name: vector / np.linalg.norm(vector) for name, vector in there.items()}
    for name in list(there)[::17]:
        best = sorted(unit, key=lambda other: -float(unit[other] @ unit[name]))[:3]
        assert [found for found, _ in stored.index.search(there[name], 3)] == best


async def test_a_graph_is_built_in_the_background_and_read_at_the_next_opening(lasting: Place) -> None:
    store, there = await lasting.open(), vectors(200)
    stored = await opened(store, there)
    assert stored.index.behind == 200
    assert_finds_the_true_ones(stored, there)  # until then each vector is compared
    await built(store, there)
    await store.close()

    again = await opened(await lasting.open(), there)

    assert (again.index.behind, again.index.has_graph) == (0, True)
    assert_finds_the_true_ones(again, there)


async def test_few_vectors_have_no_graph_and_nothing_is_kept(place: Place) -> None:
    store, there = await place.open(), vectors(SCANNED)
    stored = await built(store, there)
    await stored.save()
    assert not stored.index.has_graph
    assert await store.get_blob(NAME) is None
    assert_finds_the_true_ones(stored, there)


async def test_what_came_went_and_changed_meanwhile_is_topped_up(store: Store) -> None:
    there = vectors(200)
    await built(store, there)
    for name in ("thing 3", "thing 77"):
        del there[name]
    there["thing 5"] = -there["thing 5"]
    there |= vectors(4, 500)
    again = await opened(store, there)
    assert again.index.behind == 5
    assert_finds_the_true_ones(again, there)
    background = Background()
    again = await opened(store, there, background)
    await background.settled()
    assert again.index.behind == 0
    assert_finds_the_true_ones(again, there)
    assert b'"thing 77"' not in (await store.get_blob(NAME) or b"")  # it was written again without the deleted ones


@pytest.mark.parametrize("harm", ["lost", "cut", "damaged", "foreign", "of other vectors"])
async def test_a_graph_that_cannot_be_used_is_built_again(harm: str) -> None:
    store, there = await Store.open(VolatileRows(), kinds=ANY_BODY), vectors(200)
    await built(store, there)
    data = await store.get_blob(NAME)
    assert data is not None
    harmed = {"cut": data[:-1], "damaged": data[:300] + b"!" + data[301:], "foreign": b"something else"}
    if harm == "lost":
        await store.delete(BLOB, NAME)
    elif harm == "of other vectors":
        there = {name: -vector for name, vector in there.items()}
    else:
        await store.put_blob(NAME, harmed[harm])
    again = await opened(store, there)
    assert again.index.behind == 200
    assert_finds_the_true_ones(again, there)
    await built(store, there)
    assert (await opened(store, there)).index.behind == 0


async def test_what_is_kept_is_encrypted_as_the_vectors_are(lasting: Place) -> None:
    store, there = await lasting.open(), vectors(200)
    await built(store, there)
    (row,) = await (await lasting.rows()).get([(BLOB, NAME)])
    assert (b"thing 7" in row.body) is not lasting.encrypted

    if not lasting.encrypted:
        await set_passphrase(store, PASSPHRASE, iterations=FEW_ITERATIONS)
        assert all(b"thing 7" not in row.body for row in await (await lasting.rows()).get([(BLOB, NAME)]))
        await built(store, there)
        again = await Store.open(await lasting.rows(), PASSPHRASE, crypto=lasting.crypto, kinds=ANY_BODY)
        assert (await opened(again, there)).index.behind == 0
        await again.close()


async def test_it_is_deleted_with_everything_and_in_no_export(store: Store) -> None:
    await store.put(Record("pattern", "p", {"text": "a"}))
    await built(store, vectors(200))
    assert [record.kind async for record in store.scan()] == ["pattern"]
    found = await read_export(store, await export(store, in_the_clear=True))
    assert "thing 7" not in str(found)
    await store.clear()
    assert await store.get_blob(NAME) is None


async def test_what_is_deleted_does_not_stay_in_what_is_kept(store: Store) -> None:
    there = vectors(200)
    background = Background()
    stored = await opened(store, there, background)
    await background.settled()
    stored.index.delete("thing 7")
    await background.settled()
    data = await store.get_blob(NAME)
    assert data is not None
    assert b'"thing 7"' not in data
    assert b'"thing 8"' in data


async def test_after_everything_was_deleted_nothing_is_written_again(store: Store) -> None:
    background = Background()
    stored = await opened(store, vectors(200), background)
    await background.settled()
    stored.index.insert("another", np.ones(DIMENSIONS, np.float32))
    await store.clear()
    stored.index.delete("thing 7")
    await background.settled()
    await background.close()
    assert await store.get_blob(NAME) is None


async def test_some_changes_are_written_together_and_the_last_ones_at_the_end(store: Store) -> None:
    there = vectors(200)
    background = Background()
    stored = await opened(store, there, background)
    await background.settled()
    before = await store.revision()
    new = vectors(UNSAVED, 1000)
    for name, vector in list(new.items())[:-1]:
        stored.index.insert(name, vector)
    await background.settled()
    assert await store.revision() == before
    await background.close()
    assert (await opened(store, there | dict(list(new.items())[:-1]))).index.behind == 0


async def test_nothing_is_linked_or_written_while_an_answer_is_made(store: Store) -> None:
    there, background = vectors(200), Background()
    with background.paused():
        stored = await opened(store, there, background)
        for _ in range(20):
            await asyncio.sleep(0)
        assert stored.index.behind == 200
    await background.settled()
    assert stored.index.behind == 0
    assert await store.get_blob(NAME) is not None


async def test_a_search_by_meaning_reads_its_graph(lasting: Place) -> None:
    """With as many vectors as needed: SCANNED of them are compared."""
    rng = np.random.default_rng(1)
    there = {f"r{n}": rng.standard_normal(4).astype(np.float32) for n in range(1600)}
    store = await lasting.open()
    await store.put_many(Record("turn", id, {}, vector) for id, vector in there.items())
    background = Background()
    search = VectorSearch(store, kernel, background)
    asked = there["r800"]
    first = await search.search("turn", asked, 5)
    await background.settled()
    assert [r.id for r, _ in await search.search("turn", asked, 5)] == [r.id for r, _ in first]

    again = VectorSearch(store, kernel)
    assert [r.id for r, _ in await again.search("turn", asked, 5)] == [r.id for r, _ in first]
    stored = again._indexes["turn"][4]
    assert (stored.index.behind, stored.index.has_graph) == (0, True)
    await store.put(Record("turn", "new", {}, asked))
    await store.delete("turn", "r800")
    assert next(r.id for r, _ in await again.search("turn", asked, 2)) == "new"


async def test_closing_the_memory_keeps_its_graphs() -> None:
    rows = VolatileRows()
    store = await Store.open(rows, kinds=ANY_BODY)
    rng = np.random.default_rng(1)
    there = {f"r{n}": rng.standard_normal(4).astype(np.float32) for n in range(1550)}
    await store.put_many(Record("turn", id, {}, vector) for id, vector in there.items())
    memory = await Memory.open(store, kernel)
    await memory.search.search("turn", there["r1"], 1)
    await memory.background.settled()
    await store.put(Record("turn", "new", {}, np.ones(4, np.float32)))
    await memory.search.search("turn", there["r1"], 1)
    rows.close = _stay_open  # type: ignore[method-assign]
    await memory.close()
    data = await (await Store.open(rows, kinds=ANY_BODY)).get_blob("turn/4")
    assert data is not None
    assert b'"new"' in data


async def _stay_open() -> None:
    """Vectors of rows for another store."""
