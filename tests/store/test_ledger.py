"""Changes to an encrypted memory by other programs are noticed, and can be accepted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from py_core.store.ledger import LEDGER
from py_core.store.passphrase import remove_passphrase
from py_core.store.records import Record
from py_core.store.rows import EVERYTHING, Batch, Rows
from py_core.store.store import Store
from tests.store.places import ANY_BODY, IN_THE_PAGE, PASSPHRASE, Place

RECORDS = [Record("strategy", f"w{n}", {"text": "x" * n}, None, 100.0 + n, 100.0 + n) for n in range(5)]
MORE = [
    Record("turn", "s/000000", {"content": "hello"}, None, 50.0, 50.0),
    Record("session", "s", {}, None, 50.0, 50.0),
]

pytestmark = pytest.mark.parametrize(
    "lasting", ["sqlite encrypted", pytest.param(IN_THE_PAGE, marks=pytest.mark.all)], indirect=True
)


async def delete_one(rows: Rows, store: Store) -> None:
    await rows.apply(Batch(deletes=[("strategy", "w2")]))


async def redate_one(rows: Rows, store: Store) -> None:
    (row,) = await rows.get([("strategy", "w2")])
    await rows.apply(Batch(puts=[replace(row, created=row.created - 86400)]))


async def put_back_an_older_one(rows: Rows, store: Store) -> None:
    (older,) = await rows.get([MORE[0].key])
    await store.put(replace(MORE[0], body={"content": "what was said since"}))
    await rows.apply(Batch(puts=[older]))


async def empty_a_kind(rows: Rows, store: Store) -> None:
    await rows.apply(Batch(clear="strategy"))


async def remove_the_ledger(rows: Rows, store: Store) -> None:
    await rows.apply(Batch(deletes=[("strategy", "w2")], meta={LEDGER: None}))


async def pretend_to_be_older(rows: Rows, store: Store) -> None:
    await rows.apply(Batch(deletes=[("strategy", "w2")], meta={LEDGER: None, "schema": "3"}))


TAMPERINGS: dict[Callable[[Rows, Store], Awaitable[None]], str] = {
    delete_one: "1 strategy is missing",
    redate_one: "strategies were changed, or their times",
    put_back_an_older_one: "messages were changed, or their times",
    empty_a_kind: "5 strategies are missing",
    remove_the_ledger: "the checksum of all items was removed",
    pretend_to_be_older: "the checksum of all items was removed",
}


async def opened(place: Place, passphrase: str | None = PASSPHRASE) -> Store:
    store = await Store.open(await place.rows(), passphrase, crypto=place.crypto, kinds=ANY_BODY)
    place.opened.append(store)
    return store


async def test_what_others_delete_change_or_date_anew_is_noticed_until_it_is_accepted(lasting: Place) -> None:
    store = await lasting.open()
    for tamper, told in TAMPERINGS.items():
        await store.put_many([*RECORDS, *MORE])
        assert await store.check() is None
        rows = await lasting.rows()
        await tamper(rows, store)
        await rows.close()
        for _ in range(1 if tamper is pretend_to_be_older else 2):  # opening it upgraded it to the current version
            store = await opened(lasting)
            said = await store.check()
            assert said is not None, tamper
            assert told in str(said)
        await store.put(Record("policy", "p", {"value": 1}))
        assert await store.check() == said
        await store.accept()
        assert await store.check() is None
        store = await opened(lasting)
        assert await store.check() is None


async def test_what_sonata_writes_keeps_the_ledger_right(lasting: Place) -> None:
    store, other = await lasting.open(), await lasting.open()
    await store.put_many(RECORDS)
    await other.put_many(MORE)  # by another tab, whose ledger is older
    await store.put(replace(RECORDS[1], body={"text": "changed"}))
    await other.delete("strategy", "w3", "w99")
    await store.update("strategy", "w0", lambda record: replace(record, body={}))
    await store.put_blob("graph", b"not of the ledger")
    await other.clear("turn")
    async with store.transaction() as transaction:
        transaction.clear("session")
        transaction.delete("session", "s")
        transaction.put(Record("session", "t"))
    assert await store.check() is None
    assert await other.check() is None
    assert await (await opened(lasting)).check() is None
    await other.clear()
    assert await (await opened(lasting)).check() is None


async def test_a_memory_that_was_locked_and_is_empty_says_so(lasting: Place) -> None:
    store = await lasting.open()
    await store.put_many(RECORDS)
    rows = await lasting.rows()
    await rows.apply(Batch(clear=EVERYTHING, meta={"key": None, LEDGER: None}))
    await rows.close()
    for _ in range(2):
        store = await opened(lasting, None)
        assert store.suspicion is not None
        assert "encrypted with a passphrase, and now it is not" in str(store.suspicion)
    for end in (Store.accept, Store.clear):
        await store._rows.note_locked(True)
        store = await opened(lasting, None)
        assert store.suspicion is not None
        await end(store)
        assert store.suspicion is None
        assert (await opened(lasting, None)).suspicion is None


async def test_whoever_removes_the_passphrase_is_not_warned(lasting: Place) -> None:
    store = await lasting.open()
    await store.put_many(RECORDS)
    await remove_passphrase(store, PASSPHRASE)
    assert (await opened(lasting, None)).suspicion is None


async def test_an_encrypted_memory_of_version_3_gets_its_ledger(lasting: Place) -> None:
    store = await lasting.open()
    await store.put_many(RECORDS)
    rows = await lasting.rows()
    await rows.apply(Batch(meta={LEDGER: None, "schema": "3"}))
    await rows.note_locked(False)  # which that version did not record
    await rows.close()

    store = await opened(lasting)

    assert [record async for record in store.scan()] == RECORDS
    assert await store.check() is None
    rows = await lasting.rows()
    assert LEDGER in await rows.meta()
    assert await rows.was_locked()
    await rows.close()
    await (await opened(lasting)).delete("strategy", "w1")
    assert await (await opened(lasting)).check() is None
