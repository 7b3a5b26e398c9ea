"""A conversation that is opened after a restart is not read again, and gives the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from app.chat.conversation import Conversation
from app.chat.kept_pages import KeptPages
from app.generation.assistant import Assistant
from app.memory.api import MemoryApi
from app.models.template_renderer import native_renderer
from app.native_runtime import open_pages, pages_path, tidy_pages
from app.protocol import Stored
from app.records.sessions import Place
from app.runtime import Runtime, RuntimeConfig
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.engine.engine import Engine, Timings
from py_core.formats.source import FileSource
from py_core.loading import load_model
from py_core.paging.page_table import PAGE
from py_core.sampling import SamplingParams
from py_core.store.errors import StoreError
from py_core.store.sqlite import SQLiteRows
from tests.tiny.llama import TinyLlama

ASKED = "What did the cartographer write about the northern islands, and who read it after him? " * 2


@dataclass
class Program:
    """Sonata on this machine, from its start to its end."""

    conversation: Conversation
    runtime: Runtime
    reused: list[int] = field(default_factory=list)
    """The number of tokens of each prompt that were not read."""

    async def ask(self, text: str, after: Place = "leaf") -> tuple[str, Stored]:
        *_, done, stored = [event async for event in self.conversation.respond(text, after=after)]
        assert isinstance(stored, Stored)
        await self.runtime.pages.settled()
        return done.text, stored


@pytest.fixture
async def start(
    tmp_path: Path, kernel_wasm: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable]:
    """start(keeps) -> a Program over the same memory and the same model as the others"""
    path = TinyLlama(tied=False, context=1024).write(tmp_path / "tiny.gguf")
    programs = list[Program]()
    prefill = Engine.prefill

    async def noted(engine: Engine, sequence: object, prompt: object, timings: Timings, *rest: object, **more: object):
        await prefill(engine, sequence, prompt, timings, *rest, **more)
        program = next(one for one in programs if one.conversation.assistant.model.engine is engine)
        if sequence is program.conversation.assistant._sequence:  # others learn from the answer in the background
            program.reused.append(timings.reused_tokens)

    monkeypatch.setattr(Engine, "prefill", noted)

    async def pages() -> SQLiteRows:
        return await open_pages(pages_path(tmp_path / "memory.sqlite"))

    async def start(keeps: bool = True, pages: Callable[[], Awaitable[SQLiteRows]] = pages) -> Program:
        loader = partial(load_wasm, WasmtimeHost(kernel_wasm()))
        model = await load_model(FileSource(path), loader, native_renderer())
        model.name_file("the file's checksum" if keeps else "")
        runtime = await Runtime.open(RuntimeConfig(lambda: SQLiteRows.open(tmp_path / "memory.sqlite"), pages=pages))
        conversation = Conversation(Assistant(model, SamplingParams(), max_tokens=40), runtime)
        programs.append(Program(conversation, runtime))
        return programs[-1]

    yield start
    for program in programs:
        await program.runtime.close()
        program.conversation.assistant.model.close()


async def test_after_a_restart_only_what_is_new_is_read_and_the_answer_is_the_same(start: Callable) -> None:
    _, stored = await (await start()).ask(ASKED)
    answers = []
    for keeps in (False, True):
        program = await start(keeps)
        await program.conversation.resume(stored.chat)
        answers.append((await program.ask(f"{ASKED} Again.", after=stored.number))[0])
        assert (program.reused[-1] >= 3 * PAGE) == keeps
    assert answers[0] == answers[1]


async def test_what_is_kept_comes_before_the_message_does(start: Callable) -> None:
    _, stored = await (await start()).ask(ASKED)
    program = await start()
    await program.conversation.resume(stored.chat)
    await program.runtime.pages.settled()
    sequence = program.conversation.assistant._sequence
    assert sequence.stored == sequence.length > 3 * PAGE
    held = sequence.length
    await program.ask(f"{ASKED} Again.", after=stored.number)
    assert program.reused[-1] >= held, "only the message is read"


async def test_a_message_that_comes_meanwhile_is_answered_at_once(start: Callable) -> None:
    _, stored = await (await start()).ask(ASKED)
    answers = []
    for rounds in (0, 1, 2, 5, 20):
        program = await start()
        await program.conversation.resume(stored.chat)
        for _ in range(rounds):
            await asyncio.sleep(0)
        answers.append((await program.ask(f"{ASKED} Again.", after=stored.number))[0])
        assert program.reused[-1] >= 3 * PAGE
    assert len(set(answers)) == 1


async def test_where_little_is_kept_nothing_is_read_before_the_message_comes(start: Callable) -> None:
    program = await start(keeps=False)
    _, stored = await program.ask(ASKED)
    again = await start()
    await again.conversation.resume(stored.chat)
    await again.runtime.pages.settled()
    assert again.reused == []
    assert again.conversation.assistant._sequence.stored == 0


async def test_a_deleted_conversation_takes_its_pages_with_it(start: Callable) -> None:
    program = await start()
    _, one = await program.ask(ASKED)
    await program.conversation.resume(one.chat)
    program.conversation.reset()
    _, other = await program.ask(f"Something else. {ASKED}")
    pages = await program.runtime.pages.pages()
    assert await pages.names(one.chat)
    await MemoryApi(program.runtime).remove_conversations([one.chat])
    await program.runtime.pages.settled()
    assert not await pages.names(one.chat)
    assert await pages.names(other.chat)
    await program.runtime.forget()
    assert not await pages.names(other.chat)


async def test_what_commands_without_a_model_delete_has_no_pages_either(start: Callable, tmp_path: Path) -> None:
    program = await start()
    _, stored = await program.ask(ASKED)
    memory = program.runtime.memory
    await tidy_pages(tmp_path / "memory.sqlite", memory)
    other = KeptPages(await open_pages(pages_path(tmp_path / "memory.sqlite")), lambda: None, 1 << 20)
    assert await other.names(stored.chat)
    program.runtime.pages._unlisten()  # like another program, which gets no notice of changes
    program.runtime.pages._unlisten = lambda: None
    await memory.sessions.delete(stored.chat)
    await tidy_pages(tmp_path / "memory.sqlite", memory)
    await other.look_again()
    assert not await other.names(stored.chat)
    await other.close()


async def test_pages_that_cannot_be_opened_or_written_cost_nothing_but_time(start: Callable, tmp_path: Path) -> None:
    (tmp_path / "memory.sqlite.pages").write_bytes(b"no database" * 1000)
    _, stored = await (await start()).ask(ASKED)

    async def fails() -> SQLiteRows:
        raise StoreError("unavailable")

    program = await start(pages=fails)
    await program.conversation.resume(stored.chat)
    assert (await program.ask("Again.", after=stored.number))[0]
    assert program.reused == [0]
    third = await start()
    await third.conversation.resume(stored.chat)
    assert (await third.ask("Again.", after=stored.number))[0]
    assert third.reused[0] >= 2 * PAGE, "a file that was not a database was made again"
