"""Pages of conversations in a database of their own: SQLite and IndexedDB, encrypted and not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from app.chat.kept_pages import CHAT, KeptPages
from py_core.store.passphrase import remove_passphrase, set_passphrase
from py_core.store.rows import BLOB, Batch
from py_core.store.store import Store
from tests.store.browser.page import Tab
from tests.store.places import IN_THE_PAGE, LASTING, Place, make_place
from tests.store.test_sqlite import largest_file

IN_THE_GATE = ("sqlite", IN_THE_PAGE)
NAMES = [f"{number:032x}" for number in range(8)]


def page(seed: int, nbytes: int = 4000) -> bytes:
    return np.random.default_rng(seed).bytes(nbytes)


@dataclass
class Kept:
    """Pages beside a memory, in a place where both persist."""

    memory: Place
    pages: Place
    store: Store = field(init=False)
    opened: list[KeptPages] = field(default_factory=list)
    now: float = 0.0

    async def open(self, budget: int = 1_000_000) -> KeptPages:
        pages = KeptPages(await self.pages.rows(), lambda: self.store.lock, budget, self.clock)
        self.opened.append(pages)
        return pages

    def clock(self) -> float:
        self.now += 1
        return self.now


async def kept_in(backend: str, tmp_path: Path, get_tab: Callable[[], Tab]) -> AsyncIterator[Kept]:
    kept = Kept(make_place(backend, tmp_path, get_tab), make_place(backend, tmp_path, get_tab))
    kept.store = await kept.memory.open()
    yield kept
    for pages in kept.opened:
        await pages.close()
    await kept.store.close()


@pytest_asyncio.fixture(
    params=[name if name in IN_THE_GATE else pytest.param(name, marks=pytest.mark.all) for name in LASTING]
)
async def kept(request: pytest.FixtureRequest, tmp_path: Path, get_tab: Callable[[], Tab]) -> AsyncIterator[Kept]:
    async for made in kept_in(request.param, tmp_path, get_tab):
        yield made


@pytest_asyncio.fixture
async def natively(tmp_path: Path, get_tab: Callable[[], Tab]) -> AsyncIterator[Kept]:
    async for made in kept_in("sqlite", tmp_path, get_tab):
        yield made


async def test_pages_are_there_after_a_restart_and_encrypted_as_the_memory_is(kept: Kept) -> None:
    pages = await kept.open()
    for number, name in enumerate(NAMES[:3]):
        assert await pages.write("a", name, page(number))
    assert await pages.write("b", NAMES[0], page(9))
    rows = await kept.pages.rows()
    bodies = b"".join(row.body for row in await rows.scan(None, None, 100))
    assert (page(1) not in bodies) == (NAMES[1].encode() not in bodies) == kept.memory.encrypted
    await rows.close()
    again = await kept.open()
    assert await again.names("a") == set(NAMES[:3])
    assert await again.read("a", NAMES[:3]) == [page(0), page(1), page(2)]
    assert await again.read("a", [NAMES[0], NAMES[5], NAMES[1]]) == [page(0)], "up to the first that is missing"
    assert await again.read("b", NAMES[:2]) == [page(9)]
    assert not await again.names("c")
    await again.forget("a", "c")
    assert not await again.names("a")
    assert await again.read("b", NAMES[:1]) == [page(9)]
    await again.forget_others(["c"])
    assert not await again.names("b")


async def test_where_the_memory_gets_another_key_nothing_of_the_old_one_stays(natively: Kept, tmp_path: Path) -> None:
    def on_disk() -> bytes:
        return b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())

    pages = await natively.open()
    await pages.write("a", NAMES[0], page(1))
    assert page(1)[:1000] in on_disk()
    await set_passphrase(natively.store, "a long passphrase", iterations=1000)
    await pages.look_again()
    assert page(1)[:1000] not in on_disk()
    assert not await pages.names("a")
    await pages.write("a", NAMES[0], page(2))
    assert await pages.read("a", NAMES[:1]) == [page(2)]
    assert page(2)[:1000] not in on_disk()
    await remove_passphrase(natively.store, "a long passphrase")
    assert not await (await natively.open()).names("a")


async def test_the_pages_of_the_conversations_that_were_used_last_stay(natively: Kept) -> None:
    pages = await natively.open(budget=5 * 4000)
    for number in range(5):
        assert await pages.write("abc"[number // 2], NAMES[number], page(number))
    assert await pages.write("a", NAMES[2], page(2)), "b was used before a now"
    assert [len(await pages.names(chat)) for chat in "abc"] == [3, 0, 1]
    assert not await pages.write("d", NAMES[0], page(1, 20_001)), "there will never be room"
    assert [len(await pages.names(chat)) for chat in "abc"] == [3, 0, 1]
    rows = await natively.pages.rows()
    assert (await rows.count(BLOB), await rows.count(CHAT)) == (4, 2)
    await rows.close()
    assert await pages.nbytes() == 4 * 4000
    less = await natively.open(budget=2 * 4000)
    assert await less.write("c", NAMES[5], page(5)), "what was kept with more room makes way, the oldest first"
    assert (await less.nbytes(), len(await less.names("a"))) == (2 * 4000, 0)


async def test_any_order_of_calls_keeps_what_a_dict_keeps(natively: Kept) -> None:
    rng, pages, budget = np.random.default_rng(5), await natively.open(20_000), 20_000
    model = dict[str, dict[str, bytes]]()
    used = dict[str, int]()
    for turn in range(300):
        chat, name = "abcd"[rng.integers(4)], NAMES[rng.integers(len(NAMES))]
        match int(rng.integers(10)):
            case 0:
                await pages.forget(chat)
                model.pop(chat, None)
            case 1:
                await pages.drop(chat, [name])
                model.get(chat, {}).pop(name, None)
            case 2:
                pages = await natively.open(budget)
            case 3:
                wanted = [NAMES[at] for at in rng.permutation(len(NAMES))[:3]]
                there = model.get(chat, {})
                expected = [there[one] for one in wanted if all(o in there for o in wanted[: wanted.index(one) + 1])]
                assert await pages.read(chat, wanted) == expected
            case _:
                data = page(turn, int(rng.integers(100, 4000)))
                others = sorted((one for one in model if one != chat and one in used), key=used.__getitem__)
                while sum(len(d) for kept in model.values() for d in kept.values()) + len(data) > budget and others:
                    del model[others.pop(0)]
                assert await pages.write(chat, name, data)
                model.setdefault(chat, {})[name] = data
                used[chat] = turn
        assert {one for one in "abcd" if await pages.names(one)} == {one for one, kept in model.items() if kept}


async def test_two_programs_may_keep_pages_of_the_same_conversation(natively: Kept) -> None:
    here, there = await natively.open(), await natively.open()
    assert await here.write("a", NAMES[0], page(0))
    assert await there.write("a", NAMES[1], page(1))
    assert not await here.write("a", NAMES[2], page(2)), "it knew nothing of the other page"
    assert await here.write("a", NAMES[2], page(2))
    assert await here.read("a", NAMES[:3]) == [page(0), page(1), page(2)]
    await there.forget("a")
    assert await here.read("a", NAMES[:3]) == []


async def test_a_full_disk_costs_what_does_not_fit_and_nothing_else(natively: Kept) -> None:
    pages = await natively.open()
    await pages.write("a", NAMES[0], page(0))
    with largest_file(200_000):
        assert not await pages.write("a", NAMES[1], page(1, 400_000))
        assert await pages.read("a", NAMES[:2]) == [page(0)]
    assert await pages.write("a", NAMES[1], page(1, 400_000))
    assert await (await natively.open()).read("a", NAMES[:2]) == [page(0), page(1, 400_000)]


@pytest.mark.parametrize("what", ["keeps", "looks"])
async def test_whoever_is_stopped_while_he_keeps_a_page_or_looks_for_some_leaves_none_that_nobody_can_delete(
    natively: Kept, what: str
) -> None:
    for moments in range(20):
        pages = await natively.open()
        for name in NAMES[:2]:
            assert await pages.write("a", name, page(1))
        if what == "looks":
            await pages.close()
            pages = await natively.open()
        working = asyncio.ensure_future(pages.write("a", NAMES[2], page(2)) if what == "keeps" else pages.names("a"))
        moment = time.perf_counter() + moments * 1e-4
        while time.perf_counter() < moment:  # noqa: ASYNC110 - writing takes less than what asyncio can wait for
            await asyncio.sleep(0)
        working.cancel()
        await asyncio.wait([working])
        await pages.forget("a")
        await pages.close()
        rows = await natively.pages.rows()
        assert (await rows.count(BLOB), await rows.count(CHAT)) == (0, 0)
        await rows.close()


@pytest.mark.parametrize(
    ("kept", "kind"),
    [
        ("sqlite", CHAT),
        ("indexeddb encrypted", BLOB),
        ("indexeddb encrypted", CHAT),
        pytest.param("sqlite encrypted", BLOB, marks=pytest.mark.all),
        pytest.param("sqlite encrypted", CHAT, marks=pytest.mark.all),
        pytest.param("indexeddb", CHAT, marks=pytest.mark.all),
    ],
    indirect=["kept"],
)
async def test_rows_that_are_damaged_are_pages_that_are_missing(kept: Kept, kind: str) -> None:
    """An unencrypted page is compared with its checksum when it is read (tests/paging/test_page_transfer.py)."""
    pages = await kept.open()
    for number, name in enumerate(NAMES[:3]):
        await pages.write("a", name, page(number))
    rows = await kept.pages.rows()
    (damaged, *_) = await rows.scan(kind, None, 1)
    await rows.apply(Batch([replace(damaged, body=damaged.body[:-1] + bytes([damaged.body[-1] ^ 1]))]))
    await rows.close()
    again = await kept.open()
    assert len(await again.read("a", NAMES[:3])) < 3
    await again.drop("a", NAMES)
    for number, name in enumerate(NAMES[:3]):
        assert await again.write("a", name, page(number))
    assert await again.read("a", NAMES[:3]) == [page(0), page(1), page(2)]
