"""Deferred writes are stored: after a hundred, after half a second, or on request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from py_core.store.errors import StoreError
from py_core.store.records import Record
from py_core.store.rows import Batch, Change
from py_core.store.store import Store
from py_core.store.volatile import VolatileRows
from py_core.store.write_batch import BATCH, DELAY_SECONDS, MOST_WAITING, BatchedWriter
from tests.store.places import ANY_BODY


class Refusing(VolatileRows):
    """A disk that is full while `full` is set."""

    full = False
    batches = 0

    async def apply(self, batch: Batch) -> int:
        if self.full:
            raise StoreError("quota")
        self.batches += 1
        return await super().apply(batch)


def record(number: int) -> Record:
    return Record("measure", f"w{number}", {"number": number})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_put_waits_for_nothing_and_arrives_by_itself(store: Store) -> None:
    assert DELAY_SECONDS <= 0.5, "half of the second in which a write arrives is for the disk"
    writer = BatchedWriter(store)
    writer.put(record(0))
    assert await store.count() == 0
    assert [r.id for r in writer.waiting] == ["w0"]
    await until(lambda: not writer.waiting)
    assert await store.count() == 1
    await writer.close()


async def test_a_hundred_are_one_write_at_once() -> None:
    rows = Refusing()
    store = await Store.open(rows, kinds=ANY_BODY)
    writer = BatchedWriter(store, delay=60)
    for number in range(BATCH - 1):
        writer.put(record(number))
    await asyncio.sleep(0.05)
    assert rows.batches == 0
    writer.put(record(BATCH))
    await until(lambda: not writer.waiting)
    assert rows.batches == 1
    assert await store.count() == BATCH
    await writer.close()


async def test_flush_stores_all_and_the_last_of_the_same_key(store: Store) -> None:
    told: list[Change] = []
    store.on_change(told.append)
    writer = BatchedWriter(store)
    for number in range(250):
        writer.put(record(number))
    writer.put(Record("measure", "w7", {"number": "again"}))
    await writer.flush()
    assert await store.count() == 250
    again = await store.get("measure", "w7")
    assert again is not None
    assert again.body == {"number": "again"}
    await writer.flush()
    assert sum(len(change.puts) for change in told) == 250


async def test_what_could_not_be_stored_is_told_kept_and_tried_again() -> None:
    rows = Refusing()
    store = await Store.open(rows, kinds=ANY_BODY)
    heard: list[StoreError] = []
    writer = BatchedWriter(store, delay=0.01, on_error=heard.append)
    rows.full = True
    writer.put(record(1))
    await until(lambda: bool(heard))
    assert [error.reason for error in heard] == ["quota"]
    with pytest.raises(StoreError, match="no space"):
        await writer.flush()
    rows.full = False
    writer.put(record(2))
    await until(lambda: not writer.waiting)
    assert await store.count() == 2
    await writer.close()


async def test_the_queue_is_bounded_while_nothing_can_be_stored() -> None:
    rows = Refusing()
    writer = BatchedWriter(await Store.open(rows, kinds=ANY_BODY), delay=60, batch=10**9)
    for number in range(MOST_WAITING + 5):
        writer.put(record(number))
    assert len(writer.waiting) == MOST_WAITING
    assert writer.waiting[0].id == "w5"
    await writer.close()


async def test_a_record_that_cannot_be_kept_does_not_hold_up_the_others(store: Store) -> None:
    writer = BatchedWriter(store)
    writer.put(record(1))
    with pytest.raises(StoreError, match="JSON"):
        writer.put(Record("measure", "bad", {"what": object()}))
    await writer.close()
    assert await store.count() == 1
    with pytest.raises(StoreError):
        writer.put(record(2))


async def test_times_are_those_of_the_put() -> None:
    now = 100.0
    store = await Store.open(VolatileRows(), clock=lambda: now, kinds=ANY_BODY)
    writer = BatchedWriter(store)
    writer.put(record(1))
    now = 200.0
    await writer.flush()
    stored = await store.get("measure", "w1")
    assert stored is not None
    assert (stored.created, stored.updated) == (100.0, 100.0)
