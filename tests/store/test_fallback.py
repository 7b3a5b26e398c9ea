"""If nothing can be stored, the app continues in memory and is told why."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from app.chat.history.api import ConversationApi
from app.runtime import Runtime, RuntimeConfig
from py_core.store.errors import GOES_ON_IN_MEMORY, Reason, StoreError
from py_core.store.fallback import FallbackRows, open_or_volatile
from py_core.store.passphrase import set_passphrase
from py_core.store.records import Record
from py_core.store.rows import Batch, Key, Query, Row
from py_core.store.store import Store
from py_core.store.volatile import VolatileRows
from tests.store.places import ANY_BODY


class Failing(VolatileRows):
    """A disk that fails to write with `reason`, and to read with `unreadable`."""

    persistent = True
    place = "a disk"
    reason: Reason | None = None
    unreadable: Reason | None = None

    async def apply(self, batch: Batch) -> int:
        if self.reason:
            raise StoreError(self.reason)
        return await super().apply(batch)

    async def scan(self, kind: str | None, after: Key | None, limit: int) -> list[Row]:
        if self.unreadable:
            raise StoreError(self.unreadable)
        return await super().scan(kind, after, limit)

    async def query(self, query: Query) -> list[Row]:
        if self.unreadable:
            raise StoreError(self.unreadable)
        return await super().query(query)


def record(id: str) -> Record:
    return Record("pattern", id, {"agent": "coder"}, np.ones(3, np.float32), 1.0, 1.0)


@pytest.mark.parametrize("reason", sorted(GOES_ON_IN_MEMORY))
@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_disk_that_is_lost_on_the_way(reason: Reason, encrypted: bool) -> None:
    disk, told = Failing(), list[StoreError]()
    store = await Store.open(FallbackRows(disk, told.append), kinds=ANY_BODY)
    if encrypted:
        await set_passphrase(store, "correct horse", iterations=1000)
    await store.put_many([record("a"), record("b")])
    disk.reason = reason
    assert store.persistent

    await asyncio.gather(*(store.put(record(id)) for id in "cd"))
    updated = await store.update("pattern", "a", lambda r: replace(r, body={"agent": "tester"}))

    assert [error.reason for error in told] == [reason]
    assert not store.persistent
    assert updated is not None
    assert [r.id async for r in store.scan()] == ["a", "b", "c", "d"]
    assert [r.id for r in await store.query("pattern", {"agent": "coder"})] == ["b", "c", "d"]
    assert await disk.count(None) == 2


async def test_a_disk_that_cannot_even_be_read() -> None:
    disk, told = Failing(), list[StoreError]()
    store = await Store.open(FallbackRows(disk, told.append), kinds=ANY_BODY)
    await set_passphrase(store, "correct horse", iterations=1000)
    await store.put(record("a"))
    disk.unreadable = "closed"

    assert await store.query("pattern") == []
    await store.put(record("b"))

    assert [r.id async for r in store.scan()] == ["b"]
    assert [error.reason for error in told] == ["closed"]


@pytest.mark.parametrize("reason", ["busy", "damaged", "changed"])
async def test_other_errors_are_not_hidden(reason: Reason) -> None:
    disk, told = Failing(), list[StoreError]()
    store = await Store.open(FallbackRows(disk, told.append), kinds=ANY_BODY)
    disk.reason = reason
    with pytest.raises(StoreError):
        await store.put(record("a"))
    assert told == []
    assert store.persistent


async def test_a_store_that_the_app_closed_stays_closed() -> None:
    told = list[StoreError]()
    store = await Store.open(FallbackRows(Failing(), told.append), kinds=ANY_BODY)
    await store.close()
    with pytest.raises(StoreError):
        await store.put(record("a"))
    assert told == []


async def test_what_cannot_be_opened_is_plain_memory() -> None:
    told = list[StoreError]()

    async def fails() -> VolatileRows:
        raise StoreError("unavailable")

    rows = await open_or_volatile(fails, told.append)
    store = await Store.open(rows, kinds=ANY_BODY)
    await store.put(record("a"))
    assert await store.count() == 1
    assert not store.persistent
    assert "private window" in str(told[0])


@pytest.mark.parametrize(("reason", "unreadable", "kept"), [("quota", None, {"before"}), ("closed", "closed", set())])
async def test_conversations_of_a_lost_memory_are_told_from_those_that_are_still_stored(
    reason: Reason, unreadable: Reason | None, kept: set[str]
) -> None:
    disk = Failing()

    async def opening() -> Failing:
        return disk

    runtime = await Runtime.open(RuntimeConfig(opening))
    chats = ConversationApi(runtime)
    sessions = runtime.memory.sessions
    before = await sessions.start("before")
    assert (await chats.conversation(before.id))["kept"]
    disk.reason, disk.unreadable = reason, unreadable
    after = await sessions.start("after")
    await runtime.memory.writer.flush()

    items = (await chats.conversations())["items"]
    assert {item["title"] for item in items if item["kept"]} == kept
    assert "after" in {item["title"] for item in items}
    assert not (await chats.conversation(after.id))["kept"]
    await runtime.close()
