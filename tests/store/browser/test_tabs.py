"""Several tabs with one memory: one writes for all, each is told of the others' changes, and another takes over when
it closes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np
import pytest

from py_core.store.records import Record
from py_core.store.rows import Change
from py_core.store.store import Store
from tests.store.browser.page import PageCrypto, PageRows, Tab
from tests.store.places import ANY_BODY

OpenTab = Callable[[], Awaitable[Tab]]


def record(id: str) -> Record:
    return Record("pattern", id, created=1.0, updated=1.0)


async def opened(tab: Tab, name: str) -> Store:
    return await Store.open(await PageRows.open(tab, name), crypto=PageCrypto(tab), kinds=ANY_BODY)


async def next_heard(rows: PageRows) -> list[Change]:
    while not (changes := await rows.heard()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return changes


async def test_tabs_hear_of_each_others_writes(open_tab: OpenTab, name: str) -> None:
    here, there = await open_tab(), await open_tab()
    rows = [await PageRows.open(tab, name) for tab in (here, there, there)]
    stores = [await Store.open(each, kinds=ANY_BODY) for each in rows]
    for number, store in enumerate(stores):
        await store.put(record(f"of {number}"))
        told = Change(puts=(("pattern", f"of {number}"),), elsewhere=True)
        for n, each in enumerate(rows):
            if n != number:
                assert await next_heard(each) == [told]
        assert await rows[number].heard() == []
    await stores[1].clear("pattern")
    for each in (rows[0], rows[2]):
        assert await next_heard(each) == [Change(cleared="pattern", elsewhere=True)]
    assert await stores[0].count() == 0


async def test_one_tab_writes_for_all(open_tab: OpenTab, name: str) -> None:
    writer, other = await open_tab(), await open_tab()
    first, second = await opened(writer, name), await PageRows.open(other, name)
    locks = await other.evaluate("navigator.locks.query()")
    for state in ("held", "pending"):
        assert [lock["name"] for lock in locks[state]].count(f"sonata-memory:{name}") == 1
    await first.put(record("by itself"))
    assert "requests" not in await second.meta()
    await (await Store.open(second, kinds=ANY_BODY)).put(record("by the other"))
    assert len(json.loads((await second.meta())["requests"])) == 1


async def count_up(store: Store, rounds: int, acknowledged: list[str], name: str, some: asyncio.Event) -> None:
    for number in range(rounds):
        await store.put(Record("pattern", f"{name}{number}", {}, np.ones(4, np.float32)))
        await store.update("policy", "counter", lambda r: replace(r, body={"n": r.body["n"] + 1}))
        acknowledged.append(f"{name}{number}")
        if len(acknowledged) == 10:
            some.set()


@pytest.mark.parametrize(
    ("how", "others"),
    [("endWorker()", 1), *(pytest.param(how, 2, marks=pytest.mark.all) for how in ("endWorker()", "close"))],
)
async def test_when_the_writer_goes_another_takes_over_and_nothing_is_lost_or_done_twice(
    open_tab: OpenTab, name: str, how: str, others: int
) -> None:
    """Two others write, from two tabs or both from one."""
    writer, *tabs = [await open_tab() for _ in range(1 + others)]
    first = await opened(writer, name)
    await first.put(Record("policy", "counter", {"n": 0}))
    stores = [await opened(tab, name) for tab in (tabs[0], tabs[-1])]
    acknowledged: list[str] = []
    some = asyncio.Event()

    async def end_the_writer() -> None:
        await some.wait()
        if how == "close":
            await asyncio.to_thread(writer.close)
        else:
            await writer.evaluate(how)

    work = [count_up(store, 30, acknowledged, each, some) for store, each in zip(stores, "ab", strict=True)]
    await asyncio.gather(*work, end_the_writer())

    assert len(acknowledged) == 60
    assert {r.id async for r in stores[0].scan("pattern")} == set(acknowledged)
    counter = await stores[1].get("policy", "counter")
    assert counter is not None
    assert counter.body == {"n": 60}


@pytest.mark.all
async def test_a_writer_that_hangs_is_not_waited_for(open_tab: OpenTab, name: str) -> None:
    writer, other = await open_tab(), await open_tab()
    first, second = await opened(writer, name), await opened(other, name)
    await first.put(record("a"))
    hangs = asyncio.ensure_future(writer.call("run", "async def main():\n    report('hangs')\n    while True: pass"))
    await writer.thread.do(writer.page.wait_for_function("() => window.reports.includes('hangs')"))
    try:
        await second.put(record("b"))

        assert [r.id async for r in second.scan()] == ["a", "b"]
    finally:  # leftover computation would slow down every later test
        await asyncio.to_thread(writer.close)
    with pytest.raises(Exception, match="closed"):
        await hangs
    await second.put(record("c"))
    assert await second.count() == 3


async def test_a_batch_that_was_done_before_its_writer_died_is_not_done_again(
    get_tab: Callable[[], Tab], name: str
) -> None:
    """As the next writer gets it: the same request, which expects the earlier state."""
    twice = await get_tab().evaluate(
        """async (name) => {
          const { memoryStore } = await import('/memory/indexeddb.js');
          const database = await memoryStore.open(name, 2);
          const head = JSON.stringify({
            puts: [['policy', 'p', 1, 1, 2, -1, [], 0]], deletes: [], clear: null, meta: {}, expectMeta: {},
            expectVersions: [['policy', 'p', 0]],
          });
          const request = { id: 'tab/1', head, data: new TextEncoder().encode('{}') };
          const revisions = [];
          for (const id of ['tab/1', 'tab/1', 'tab/2']) {
            const done = await database.write({ ...request, id }).catch((error) => ({ revision: error.name }));
            revisions.push(done.revision);
          }
          database.close();
          return revisions;
        }""",
        name,
    )
    assert twice == [1, 1, "conflict"]


async def test_a_writer_that_does_not_answer_is_not_waited_for(get_tab: Callable[[], Tab], name: str) -> None:
    """A tab gives up on a silent writer after seconds; here the timer fires at once."""
    done = await get_tab().evaluate(
        """async (name) => {
          const { TabWriter } = await import('/memory/tab_writer.js');
          const silent = new TabWriter(name, { apply: () => new Promise(() => {}), heard() {} });
          while (!silent.writes) await new Promise((resolve) => setTimeout(resolve, 5));
          const done = [], setTimeout_ = window.setTimeout;
          window.setTimeout = (over) => setTimeout_(over, 5);
          try {
            const next = new TabWriter(name, {
              apply: async ({ head }) => ({ revision: done.push(head), change: {} }),
              heard() {},
            });
            const limit = new Promise((resolve) => setTimeout_(() => resolve('hangs'), 60_000));
            const both = async () => [await next.apply({ head: 'a' }), await next.apply({ head: 'b' })];
            const revisions = await Promise.race([both(), limit]);
            next.close();
            return [revisions, done];
          } finally {
            window.setTimeout = setTimeout_;
            silent.close();
          }
        }""",
        name,
    )
    assert done == [[1, 2], ["a", "b"]]


async def test_what_waits_for_a_writer_that_closes_is_done_at_once(get_tab: Callable[[], Tab], name: str) -> None:
    """Without waiting until the writer times out: no timer runs out here."""
    done = await get_tab().evaluate(
        """async (name) => {
          const { TabWriter } = await import('/memory/tab_writer.js');
          const done = [];
          const silent = new TabWriter(name, { apply: () => new Promise(() => {}), heard() {} });
          while (!silent.writes) await new Promise((resolve) => setTimeout(resolve, 5));
          const setTimeout_ = window.setTimeout;
          window.setTimeout = () => 0;
          try {
            const next = new TabWriter(name, {
              apply: async ({ id }) => ({ revision: done.push(id), change: {} }),
              heard() {},
            });
            const waiting = [next.apply({ head: 'a' }), next.apply({ head: 'b' })];
            await new Promise((resolve) => setTimeout_(resolve, 100));
            const before = done.length;
            silent.close();
            const limit = new Promise((resolve) => setTimeout_(() => resolve('hangs'), 60_000));
            const revisions = await Promise.race([Promise.all(waiting), limit]);
            next.close();
            return [before, revisions];
          } finally {
            window.setTimeout = setTimeout_;
          }
        }""",
        name,
    )
    assert done == [0, [1, 2]]
