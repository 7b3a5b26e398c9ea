"""The contract of a store, on all five: plain memory, SQLite and IndexedDB, the latter two encrypted too.

All other tests of the memory rely on this contract, and run on two of them in the gate (`places.SEMANTIC`).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from py_core.store.errors import StoreError
from py_core.store.kinds import Kinds, Migration
from py_core.store.records import Record
from py_core.store.rows import LAYOUT, Change, Range
from py_core.store.store import Store
from py_core.store.transaction import Transaction
from tests.store.places import ANY_BODY, BACKENDS, LASTING, PASSPHRASE, Place

VECTOR = np.array([0.5, -1.25, 3e-7], np.float32)
on_all = pytest.mark.parametrize("place", BACKENDS, indirect=True)
on_lasting = pytest.mark.parametrize("lasting", LASTING, indirect=True)


def record(id: str, *, kind: str = "pattern", created: float = 1.0, **body: object) -> Record:
    return Record(kind, id, dict(body), created=created, updated=created)


async def ids(store: Store, kind: str | None = None) -> list[str]:
    return [found.id async for found in store.scan(kind)]


@on_all
async def test_what_is_put_is_got_and_put_again_replaced(place: Place) -> None:
    store = await place.open(clock=lambda: 123.5)
    body = {"text": 'ä "quoted" \\ \n 𝄞 \ud83d', "big": 2**60 + 1, "deep": [{"a": None, "b": [True, 1.5, -0.0]}]}
    put = Record("pattern", "p", body, VECTOR, created=1.25, updated=1700000000.123456)
    await store.put(put)
    got = await store.get("pattern", "p")
    assert got == put
    assert got is not None
    assert got.vector is not None
    assert got.vector.dtype == np.float32
    assert got.vector.tobytes() == VECTOR.tobytes()
    assert await store.get("policy", "p") is None
    assert await store.get("pattern", "q") is None

    await store.put(Record("pattern", "now"))
    got = await store.get("pattern", "now")
    assert got is not None
    assert (got.created, got.updated, got.vector) == (123.5, 123.5, None)

    await store.put(Record("pattern", "p", {"agent": "coder", "old": 1}, VECTOR, 1.0, 1.0))
    await store.put(record("p", agent="tester"))
    assert await store.get("pattern", "p") == record("p", agent="tester")
    assert await store.query("pattern", {"agent": "coder"}) == []
    assert await store.count() == 2


@on_all
async def test_delete_and_clear(store: Store) -> None:
    await store.put_many([record("a"), record("b"), record("a", kind="policy"), record("c", kind="policy")])
    await store.delete("pattern", "a", "never there")
    assert await ids(store) == ["b", "a", "c"]
    await store.clear("policy")
    assert await ids(store) == ["b"]
    await store.clear()
    assert await store.count() == 0
    await store.put(record("again"))
    assert await ids(store) == ["again"]


@on_all
async def test_count_and_scan_by_kind(store: Store) -> None:
    kinds = ["pattern", "patterns", "pattern!", "policy"]
    await store.put_many(record(f"{n:04d}", kind=kind) for kind in kinds for n in range(3))
    assert await store.count() == 12
    for kind in kinds:
        assert await store.count(kind) == 3
        assert [(r.kind, r.id) async for r in store.scan(kind)] == [(kind, f"{n:04d}") for n in range(3)]


@on_all
async def test_a_scan_reads_all_of_many_records(store: Store) -> None:
    many = [record(f"{number:05d}", number=number) for number in range(2500)]
    await store.put_many(many)
    assert [found async for found in store.scan()] == many


@on_all
async def test_query_by_time_order_and_limit(store: Store) -> None:
    await store.put_many(record(f"r{n}", created=float(n)) for n in (3, 1, 4, 0, 2))

    async def found(**options: object) -> str:
        return "".join(r.id[1] for r in await store.query("pattern", **options))

    assert await found() == "01234"
    assert await found(newest_first=True) == "43210"
    assert await found(since=1.0, before=4.0) == "123"
    assert await found(since=1.0, newest_first=True, limit=2) == "43"
    assert await found(before=3.0, limit=1) == "0"
    assert await found(since=5.0) == ""


@on_all
async def test_query_by_fields(store: Store) -> None:
    await store.put_many(
        record(id, kind="trajectory", created=float(number), lesson=agent, rating=quality, failed=failed)
        for number, (id, agent, quality, failed) in enumerate(
            [("a", "coder", 0.2, False), ("b", "coder", 0.9, True), ("c", "tester", 0.2, True), ("d", "coder", None, 0)]
        )
    )

    async def found(**where: object) -> str:
        return "".join(r.id for r in await store.query("trajectory", where))

    assert await found(lesson="coder") == "abd"
    assert await found(rating=Range(high=0.5)) == "ac"
    assert await found(rating=Range(0.2, 0.2), lesson="tester") == "c"
    assert await found(failed=True) == "bc"
    assert await found(failed=False, lesson="coder") == "ad"
    assert await found(lesson="nobody") == ""
    assert await found(lesson=1.0) == ""
    newest = await store.query("trajectory", {"lesson": "coder"}, newest_first=True, since=1.0, limit=1)
    assert [r.id for r in newest] == ["d"]
    newest = await store.query("trajectory", {"lesson": "tester"}, newest_first=True, limit=1)
    assert [r.id for r in newest] == ["c"], "the limit is of what matches"
    with pytest.raises(StoreError, match="cannot be found by colour"):
        await store.query("trajectory", {"colour": "red"})
    await store.update("trajectory", "a", lambda r: replace(r, body={"lesson": "tester"}))
    await store.delete("trajectory", "b")
    assert await found(lesson="coder") == "d"
    assert await found(lesson="tester") == "ac"
    assert await found(rating=Range(high=0.5)) == "c"


@on_all
async def test_a_transaction_is_all_or_nothing(store: Store) -> None:
    await store.put(record("old"))

    async def stops() -> None:
        async with store.transaction() as transaction:
            transaction.put(record("new"))
            transaction.delete("pattern", "old")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        await stops()
    with pytest.raises(StoreError, match="JSON") as raised:
        await store.put_many([record("new"), record("bad", value=object())])
    assert raised.value.reason == "record"
    stale = Transaction()
    stale.delete("pattern", "old")
    stale.put(record("new"))
    stale.expect("pattern", "old", 99)
    with pytest.raises(StoreError) as raised:
        await store.commit(stale)
    assert raised.value.reason == "conflict"
    assert await ids(store) == ["old"]

    async with store.transaction() as transaction:
        transaction.clear()
        transaction.put(record("a"))
        transaction.put(record("b"))
        transaction.delete("pattern", "a")
    assert await ids(store) == ["b"]


@on_all
async def test_no_update_is_lost_among_many_at_once(place: Place) -> None:
    stores = [await place.open(), await place.open()]
    await stores[0].put(record("counter", uses=0))

    async def raise_it(store: Store) -> None:
        for _ in range(5):
            await store.update("pattern", "counter", lambda r: replace(r, body={"uses": r.body["uses"] + 1}))

    await asyncio.gather(*(raise_it(store) for store in stores for _ in range(2)))

    counter = await stores[1].get("pattern", "counter")
    assert counter is not None
    assert counter.body == {"uses": 20}
    assert counter.created == 1.0
    assert await stores[0].update("pattern", "nobody", lambda r: r) is None


UNKEEPABLE = [
    Record("", "a"),
    Record("kind", ""),
    Record("kind", "a\0b"),
    Record("kind", "\ud800"),
    Record("kind", "x" * 201),
    Record("kind", "a", {"nan": float("nan")}),
    Record("kind", "a", {"bytes": b"x"}),
    Record("kind", "a", {1: "x"}),  # type: ignore[dict-item]
    Record("kind", "a", [1]),  # type: ignore[arg-type]
    Record("kind", "a", {}, np.array([1.0, np.inf])),
    Record("kind", "a", {}, np.zeros((2, 2))),
    Record("kind", "a", {}, np.zeros(0)),
    Record("kind", "a", created=float("inf")),
]


@on_all
async def test_what_cannot_be_kept_is_refused_with_a_sentence(store: Store) -> None:
    taken = []
    for bad in UNKEEPABLE:
        try:
            await store.put(bad)
            taken.append(bad)
        except StoreError as error:
            assert (error.reason, str(error)[-1]) == ("record", "."), bad  # noqa: PT017
    assert taken == []
    assert await store.count() == 0


@on_all
async def test_changes_are_told(store: Store) -> None:
    told: list[Change] = []
    end = store.on_change(told.append)
    await store.put_many([record("a"), record("b")])
    await store.delete("pattern", "a")
    await store.clear("policy")
    await store.clear()
    end()
    await store.put(record("c"))
    assert told == [
        Change(puts=(("pattern", "a"), ("pattern", "b"))),
        Change(deletes=(("pattern", "a"),)),
        Change(cleared="policy"),
        Change(cleared="*"),
    ]


@on_lasting
async def test_it_is_there_when_it_is_opened_again(lasting: Place) -> None:
    store = await lasting.open()
    put = Record("pattern", "p", {"agent": "coder"}, VECTOR, 1.0, 2.0)
    await store.put(put)
    revision = await store.revision()
    await store.close()
    with pytest.raises(StoreError) as raised:
        await store.get("pattern", "p")
    assert raised.value.reason == "closed"

    again = await lasting.open()

    assert await again.get("pattern", "p") == put
    assert [r.id for r in await again.query("pattern", {"agent": "coder"})] == ["p"]
    assert await again.revision() == revision
    assert again.persistent


@on_lasting
async def test_two_that_have_it_open_see_each_others_writes(lasting: Place) -> None:
    here, there = await lasting.open(), await lasting.open()
    await here.put(record("a"))
    await there.put(record("b"))
    await here.delete("pattern", "b")
    await there.put(record("c"))
    assert await ids(here) == await ids(there) == ["a", "c"]


def changed_by(migration: Migration) -> Kinds:
    """The kinds of a version that changes every pattern."""
    return Kinds([replace(ANY_BODY["pattern"], migrations={LAYOUT: migration})], others=True)


@on_lasting
async def test_a_newer_version_is_refused(lasting: Place) -> None:
    newer = await lasting.open(schema=LAYOUT + 1, kinds=changed_by(lambda r, partner: r))
    await newer.put(record("p"))

    with pytest.raises(StoreError, match="newer version") as raised:
        await Store.open(await lasting.rows(), PASSPHRASE, crypto=lasting.crypto, kinds=ANY_BODY)

    assert raised.value.reason == "newer"
    assert await ids(newer) == ["p"]


@on_lasting
async def test_a_migration_changes_every_record_once(lasting: Place) -> None:
    old = await lasting.open()
    await old.put_many([record("a", agent="coder"), record("b", agent="gone")])

    def after_it(r: Record, partner: Record | None) -> Record | None:
        return None if r.body["agent"] == "gone" else replace(r, body={"agent": r.body["agent"] + " changed"})

    new = await lasting.open(schema=LAYOUT + 1, kinds=changed_by(after_it))

    assert [r.body async for r in new.scan()] == [{"agent": "coder changed"}]
    assert [r.id for r in await new.query("pattern", {"agent": "coder changed"})] == ["a"]
    with pytest.raises(StoreError) as raised:
        await old.put(record("c"))
    assert raised.value.reason == "changed"
    again = await lasting.open(schema=LAYOUT + 1, kinds=changed_by(after_it))
    assert [r.body async for r in again.scan()] == [{"agent": "coder changed"}]
