"""Blobs of a record are deleted with it, however it is deleted; and all blobs are deleted if the key changes."""

from __future__ import annotations

import pytest

from app.records.lessons import KIND, Lesson
from app.records.memory import Memory
from py_core.store.blobs import blob_name
from py_core.store.encryption import NativeCrypto, new_lock
from py_core.store.rows import BLOB, CHUNK
from py_core.store.store import Store
from py_core.store.volatile import VolatileRows
from tests.store.places import ANY_BODY


async def with_two_lessons() -> tuple[Store, Memory]:
    store = await Store.open(VolatileRows(), kinds=ANY_BODY)
    memory = await Memory.open(store)
    for id in ("a", "ab"):
        await memory.lessons.keep(Lesson("What?", "That.", id=id))
        await store.put_blob(blob_name(KIND, id, "imprint", "0"), b"imprint of " + id.encode())
        await store.put_blob(blob_name(KIND, id, "meaning"), b"meaning of " + id.encode())
    await store.put_blob("other", b"stays")
    return store, memory


async def names(store: Store) -> list[str]:
    return [id for _, id in await store.keys_starting_with(BLOB, "")]


@pytest.mark.parametrize("how", ["lessons", "store", "transaction"])
async def test_a_deleted_record_takes_its_blobs_with_it_and_no_others(how: str) -> None:
    store, memory = await with_two_lessons()
    if how == "lessons":
        await memory.lessons.delete("a")
    elif how == "store":
        await store.delete(KIND, "a")
    else:
        async with store.transaction() as transaction:
            transaction.delete(KIND, "a")
    assert await names(store) == ["lesson:ab/imprint/0", "lesson:ab/meaning", "other"]
    assert await store.get_blobs(["lesson:a/meaning", "lesson:ab/meaning"]) == {"lesson:ab/meaning": b"meaning of ab"}


async def test_clearing_a_kind_clears_its_blobs() -> None:
    store, _ = await with_two_lessons()
    await store.clear("policy")
    assert len(await names(store)) == 5
    await store.clear(KIND)
    assert await names(store) == ["other"]
    await store.clear()
    assert await names(store) == []


async def test_with_another_key_no_blob_of_the_old_one_stays_however_many_there_are() -> None:
    store, _ = await with_two_lessons()
    for number in range(CHUNK):
        await store.put_blob(f"blob {number}", b"not encrypted")
    await store.rekey(await new_lock(NativeCrypto(), "a long passphrase"))
    assert await names(store) == []
    await store.close()
