"""A disk or a quota that is full while pages of conversations leave the model and come back: nothing is lost but time.

A real SQLite that may grow no further, and a real IndexedDB with a quota. Tiny models.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import pytest_asyncio

from app.chat.context_store import ChatShelf
from app.native_runtime import open_pages
from app.runtime import Runtime, RuntimeConfig
from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.engine.engine import Engine, Timings
from py_core.engine.page_keeping import page_names
from py_core.paging import page_table
from py_core.paging.page_table import PAGE
from py_core.store.encryption import Crypto, NativeCrypto
from py_core.store.rows import BLOB, Batch, Rows
from py_core.store.sqlite import SQLiteRows
from py_core.token_sequence import NO_SLOT, TokenSequence
from tests.backends.backend_pairs import GREEDY, Pair, assert_said_alone, open_pair, prompt
from tests.paging.page_owners import assert_nothing_is_left
from tests.paging.test_sequence_slots import with_little_memory
from tests.store.browser.page import LimitedTab, PageCrypto, PageRows
from tests.store.test_sqlite import largest_file
from tests.tiny.llama import TinyLlama

SQLITE_PAGE = 4096
QUOTA = 3_000_000
"""Bytes: room for some pages of a larger model."""


@dataclass
class Disk:
    """The place of the memory and the pages, with the room that the test sets."""

    crypto: Crypto
    memory: Callable[[], Awaitable[Rows]]
    pages: Callable[[], Awaitable[Rows]]
    limit: Callable[[Rows | None, int | None], Awaitable[None]]
    """Set the room: this many bytes more, or None for no limit."""


@dataclass
class Program:
    """The parts of Sonata that handle pages: a model, and a memory with a chat."""

    pair: Pair
    runtime: Runtime
    rows: list[Rows] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert isinstance(self.pair.other, PipelinedBackend)
        self.backend, self.engine = self.pair.other, Engine(self.pair.other, ())
        self.engine.pages.model = "a model"
        # Tiny models may read their tokens faster than pages are taken: what pays has a test of its own.
        self.engine.pages.note_read = lambda tokens, seconds: None  # type: ignore[method-assign]

    async def chat(self) -> ChatShelf:
        return self.runtime.pages.shelf((await self.runtime.memory.sessions.start("Of islands")).id)

    async def read(self, text: list[int], shelf: ChatShelf | None = None) -> tuple[TokenSequence, int]:
        """A sequence that holds a text, and the number of its tokens that were not read."""
        sequence, timings = self.engine.new_sequence(), Timings()
        await self.engine.prefill(sequence, text, timings, shelf=shelf)
        return sequence, timings.reused_tokens

    async def comes_back(self, text: list[int], shelf: ChatShelf, pages: int) -> TokenSequence:
        """Asserts that this number of pages comes from the shelf, the rest is read, and the continuation is right."""
        sequence, reused = await self.read(text, shelf)
        assert reused == pages * PAGE
        await self.says(sequence, 4)
        return sequence

    async def says(self, sequence: TokenSequence, count: int) -> None:
        """The continuation of the sequence's tokens according to numpy."""
        before = list(sequence.tokens)
        said = [token async for ids in self.engine.generate(sequence, count, GREEDY, Timings()) for token in ids]
        assert len(said) == count
        await assert_said_alone(self.pair.numpy, before, GREEDY, said)

    def forget(self) -> None:
        """Make the model forget everything that it has read."""
        for sequence in list(self.backend.pages.sequences.values()):
            self.engine.free(sequence)
        assert_nothing_is_left(self.backend)


@pytest.fixture
def start(
    tmp_path: Path, kernel_wasm: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Awaitable[Program]]:
    monkeypatch.setattr(page_table, "FIRST_PAGES", 2)

    async def start(disk: Disk, **model: int) -> Program:
        tiny = TinyLlama(formats=("F32",), embedding_format="F32", tied=False, **model)
        pair = await open_pair(tiny.write(tmp_path / "tiny.gguf"), WasmtimeHost(kernel_wasm()))
        rows = list[Rows]()

        async def opening() -> Rows:
            rows.append(await disk.pages())
            return rows[-1]

        return Program(pair, await Runtime.open(RuntimeConfig(disk.memory, pages=opening, crypto=disk.crypto)), rows)

    return start


@asynccontextmanager
async def running(starting: Awaitable[Program]) -> AsyncIterator[Program]:
    program = await starting
    try:
        yield program
    finally:
        await program.runtime.close()
        program.backend.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Disk:
    async def limit(rows: Rows | None, nbytes: int | None) -> None:
        assert isinstance(rows, SQLiteRows)
        (pages,) = await rows._run(lambda: rows._open().execute("PRAGMA page_count").fetchone())
        most = 2**30 if nbytes is None else pages + nbytes // SQLITE_PAGE
        await rows._run(lambda: rows._open().execute(f"PRAGMA max_page_count = {most}").fetchone())

    return Disk(
        NativeCrypto(),
        lambda: SQLiteRows.open(tmp_path / "memory.sqlite"),
        lambda: open_pages(tmp_path / "pages.sqlite"),
        limit,
    )


async def test_what_has_no_room_is_read_again_and_kept_once_there_is_some(start, sqlite: Disk) -> None:
    text = prompt(5 * PAGE + 9, seed=1)
    async with running(start(sqlite)) as program:
        for room in (0, 1, 3):
            shelf = await program.chat()
            assert not await shelf.names(), "they are open now"
            (rows,) = program.rows
            sequence, _ = await program.read(text)
            names = page_names(program.engine.pages._key(0), text)
            # A page of this model takes five of SQLite's; some are for the list.
            await sqlite.limit(rows, (6 * room + 4) * SQLITE_PAGE)
            kept = await program.engine.pages.keep(sequence, shelf)
            assert 0 <= kept <= room + 1 < 5
            assert await shelf.names() == set(names[:kept])
            await program.says(sequence, 4)
            assert await program.engine.pages.keep(sequence, shelf) == 0
            program.forget()
            # Kept pages come back from the full disk, the others are read.
            sequence = await program.comes_back(text, shelf, kept)
            await sqlite.limit(rows, None)
            assert await program.engine.pages.keep(sequence, shelf) == 5 - kept
            program.forget()
            await program.comes_back(text, shelf, 5)
            program.forget()
            await program.runtime.pages.clear()
        assert program.runtime.problem is None
        assert kept


async def test_a_damaged_page_on_a_full_disk_is_read_each_time_until_it_can_be_kept_again(start, sqlite: Disk) -> None:
    text = prompt(4 * PAGE + 9, seed=1)
    async with running(start(sqlite)) as program:
        shelf = await program.chat()
        sequence, _ = await program.read(text)
        assert await program.engine.pages.keep(sequence, shelf) == 4
        program.forget()
        (rows,) = program.rows
        kept = await program.runtime.pages.pages()
        assert kept is not None
        assert kept._chats is not None
        id, _ = kept._chats[shelf.chat].pages[page_names(program.engine.pages._key(0), text)[1]]
        (row,) = await rows.get([(BLOB, id)])
        await rows.apply(Batch([replace(row, body=row.body[:-1] + bytes([row.body[-1] ^ 1]))]))
        with largest_file(0):  # not even deletions can be written down
            for _ in range(2):
                sequence, reused = await program.read(text, shelf)
                assert reused == PAGE
                await program.says(sequence, 4)
                assert await program.engine.pages.keep(sequence, shelf) == 0
                program.forget()
        sequence, reused = await program.read(text, shelf)
        assert reused == PAGE
        assert await program.engine.pages.keep(sequence, shelf) == 1
        program.forget()
        sequence, reused = await program.read(text, shelf)
        assert reused == 4 * PAGE
        await program.says(sequence, 4)


async def test_who_gives_his_pages_up_while_the_disk_is_full_reads_what_it_does_not_have(start, sqlite: Disk) -> None:
    """Three conversations in turns, with memory for somewhat more than one, and a disk for some of their pages; then
    all at once."""
    texts = [prompt(3 * PAGE + 9 * at, seed=at) for at in range(1, 4)]
    async with running(start(sqlite, context=6 * PAGE)) as program:
        await with_little_memory(program.pair)
        program.backend.rows_that_pay = program.pair.numpy.rows_that_pay  # type: ignore[method-assign]
        shelves = [await program.chat() for _ in texts]
        assert not await shelves[0].names()
        await sqlite.limit(program.rows[0], 26 * SQLITE_PAGE)
        sequences = [program.engine.new_sequence() for _ in texts]
        kept = sent_away = brought = 0
        for _ in range(3):
            for at, (sequence, text, shelf) in enumerate(zip(sequences, texts, shelves, strict=True)):
                sent_away += sequence.slot == NO_SLOT
                while program.backend.pages.let_go():
                    pass
                await program.engine.prefill(sequence, text, timings := Timings(), shelf=shelf)
                brought += timings.reused_tokens
                await program.says(sequence, 4)
                kept += await program.engine.pages.keep(sequence, shelf)
                texts[at] = sequence.tokens[:]
        assert 0 < kept < 9
        assert sent_away > 3
        assert brought
        await asyncio.gather(*(program.says(one, 8) for one in sequences))
        program.forget()


@pytest_asyncio.fixture
async def indexeddb(limited: LimitedTab) -> Disk:
    tab = limited.tab

    async def limit(rows: Rows | None, nbytes: int | None) -> None:
        await limited.set_quota(nbytes)

    await limit(None, QUOTA)
    return Disk(PageCrypto(tab), lambda: PageRows.open(tab, "memory"), lambda: PageRows.open(tab, "pages"), limit)


async def test_what_a_quota_has_no_room_for_is_read_again_and_kept_once_there_is_some(start, indexeddb: Disk) -> None:
    text = prompt(18 * PAGE + 9, seed=1)
    async with running(start(indexeddb, hidden=256, kv_heads=4, layers=4, context=20 * PAGE)) as program:
        shelf = await program.chat()
        sequence, _ = await program.read(text)
        kept = await program.engine.pages.keep(sequence, shelf)
        assert 0 < kept < 18
        names = page_names(program.engine.pages._key(0), text)
        assert await shelf.names() == set(names[:kept])
        program.forget()
        sequence = await program.comes_back(text, shelf, kept)
        await indexeddb.limit(None, None)
        assert await program.engine.pages.keep(sequence, shelf) == 18 - kept
        program.forget()
        await program.comes_back(text, shelf, 18)
        assert program.runtime.problem is None
