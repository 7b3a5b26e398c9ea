"""More conversations than slots, and more than memory holds: each gives the tokens that it would give alone. Tiny
models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from py_core.backend_errors import BackendError
from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.wasm.backend import WasmBackend
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.wasm.layout import EXTENT
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.engine import turns
from py_core.engine.engine import Engine, Timings
from py_core.paging import page_table
from py_core.paging.page_table import PAGE
from py_core.paging.sequence_slots import SLOTS
from py_core.token_sequence import NO_SLOT, TokenSequence
from tests.backends.backend_pairs import GREEDY, Pair, alone, assert_said_alone, open_pair, prompt
from tests.paging.page_owners import assert_each_page_has_its_owners
from tests.tiny.adapters import drawn
from tests.tiny.llama import TinyLlama

CONTEXT = 6 * PAGE


@pytest.fixture(params=["webgpu", "wasm"])
async def tiny(
    request: pytest.FixtureRequest, tmp_path: Path, kernel_wasm, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Pair]:
    """In float32, with few pages at first. `limit_memory` then allows the pages of two conversations."""
    monkeypatch.setattr(page_table, "FIRST_PAGES", 2)
    tiny = TinyLlama(formats=("F32",), embedding_format="F32", tied=False, context=CONTEXT)
    host = WgpuHost() if request.param == "webgpu" else WasmtimeHost(kernel_wasm())
    pair = await open_pair(tiny.write(tmp_path / "tiny.gguf"), host)
    yield pair
    pair.other.close()


async def with_little_memory(tiny: Pair, context: int = CONTEXT) -> PipelinedBackend:
    """There is room for two whole conversations, or on the CPU, which takes eight pages at a time, for somewhat more
    than one."""
    backend = tiny.other
    assert isinstance(backend, PipelinedBackend)
    table, pages = backend.pages.store.limited, backend.pages.store.limited_bytes
    assert table is not None
    whole = -(-table.capacity // EXTENT) * EXTENT if isinstance(backend, WasmBackend) else table.capacity
    await backend.limit_memory(backend.memory().total - pages + 2 * context // PAGE * (pages // whole))
    return backend


async def say(engine: Engine, sequence: TokenSequence, n: int) -> list[int]:
    return [token async for ids in engine.generate(sequence, n, GREEDY, Timings()) for token in ids]


async def opened(engine: Engine, texts: list[list[int]]) -> list[TokenSequence]:
    sequences = [engine.new_sequence() for _ in texts]
    for sequence, text in zip(sequences, texts, strict=True):
        await engine.prefill(sequence, text, Timings())
    return sequences


async def test_more_conversations_than_slots_take_turns_in_them(tiny: Pair) -> None:
    engine, texts = Engine(tiny.other, ()), [prompt(12 + at % 7, seed=at) for at in range(SLOTS + 9)]
    sequences = await opened(engine, texts)
    assert sum(one.slot == NO_SLOT for one in sequences) == 9
    assert len({one.slot for one in sequences}) == SLOTS + 1
    for at in (0, 1, 20, SLOTS + 8, 0):
        said = await say(engine, sequences[at], 6)
        assert said == await alone(tiny.numpy, sequences[at].tokens[:-6], 6)
    for one in sequences:
        engine.free(one)
    again = [engine.new_sequence() for _ in range(SLOTS)]
    for one in again:
        await engine.prefill(one, texts[3], Timings())
    assert all(one.slot != NO_SLOT for one in again)


async def test_who_comes_back_reads_again_only_what_was_let_go(tiny: Pair) -> None:
    engine, backend = Engine(tiny.other, ()), tiny.other
    assert isinstance(backend, PipelinedBackend)
    first, *others = await opened(engine, [prompt(210, seed=at) for at in range(3)])
    backend.pages.send_away(first)
    assert (first.slot, first.stored) == (NO_SLOT, 0)
    reference = tiny.numpy.new_sequence()
    await tiny.numpy.prefill(reference, first.tokens)
    expected = await tiny.numpy.logits(reference)
    backend.pages.put_to_work([first])
    assert first.stored == 209
    backend.pages.send_away(first)
    assert np.abs(await engine.logits(first) - expected).max() <= 2e-3 * np.abs(expected).max()
    # Several rows of logits, states, and a shorter text also work for a sequence without a slot.
    backend.pages.send_away(first)
    rows = await tiny.numpy.last_logits(reference, 3)
    assert np.abs(await engine.last_logits(first, 3) - rows).max() <= 2e-3 * np.abs(rows).max()
    backend.pages.send_away(first)
    scores = await engine.token_logprobs(first, first.tokens, 100)
    assert np.abs(scores - await tiny.numpy.token_logprobs(reference, 100)).max() <= 2e-3
    backend.pages.send_away(first)
    engine.truncate(first, 90)
    tiny.numpy.truncate(reference, 90)
    expected = await tiny.numpy.logits(reference)
    assert np.abs(await engine.logits(first) - expected).max() <= 2e-3 * np.abs(expected).max()
    backend.pages.send_away(first)
    engine.free(first)
    assert all(one.stored for one in others)


async def test_where_memory_is_out_who_waits_gives_his_pages_up(tiny: Pair) -> None:
    backend = await with_little_memory(tiny)
    engine, texts = Engine(backend, ()), [prompt(250 + 9 * at, seed=at) for at in range(6)]
    sequences = await opened(engine, texts)
    assert sum(one.slot == NO_SLOT for one in sequences) >= 3
    for one, text in zip(sequences, texts, strict=True):
        await assert_said_alone(tiny.numpy, text, GREEDY, await say(engine, one, 30))
    assert backend.pages.table is not None
    assert backend.pages.table.capacity <= 2 * CONTEXT // PAGE


async def test_those_who_are_answered_at_once_and_have_no_room_together_are_answered_in_turns(tiny: Pair) -> None:
    backend = await with_little_memory(tiny)
    backend.rows_that_pay = tiny.numpy.rows_that_pay  # type: ignore[method-assign]
    engine, texts = Engine(backend, ()), [prompt(200 + 9 * at, seed=at) for at in range(7)]
    sequences = await opened(engine, texts)
    async with asyncio.timeout(300):
        answers = await asyncio.gather(*(say(engine, one, 60) for one in sequences))
    for text, said in zip(texts, answers, strict=True):
        assert len(said) == 60
        await assert_said_alone(tiny.numpy, text, GREEDY, said)


async def test_texts_that_have_no_room_together_are_read_to_their_end(
    tiny: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each would, in its turn, evict what the others read in theirs."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 0)
    backend = await with_little_memory(tiny)
    if isinstance(backend, WasmBackend):
        backend.device.max_rows = PAGE
    engine, texts = Engine(backend, ()), [prompt(CONTEXT - 40, seed=at) for at in range(4)]
    sequences = [engine.new_sequence() for _ in texts]
    async with asyncio.timeout(300):
        await asyncio.gather(
            *(engine.prefill(one, text, Timings()) for one, text in zip(sequences, texts, strict=True))
        )
    for one, text in zip(sequences, texts, strict=True):
        await assert_said_alone(tiny.numpy, text, GREEDY, await say(engine, one, 10))


async def test_a_conversation_that_needs_more_than_there_is_says_so(tiny: Pair) -> None:
    backend = await with_little_memory(tiny)
    engine = Engine(backend, ())
    sequences = await opened(engine, [prompt(300, seed=at) for at in range(2)])
    backend.pages.put_to_work(sequences)  # no sequence can give its slot up
    third = engine.new_sequence()
    backend.pages.take_slot(third)
    with pytest.raises(BackendError, match="memory"):
        await backend.pages.reserve(third.slot, 0, 300)


@pytest.mark.every_backend
async def test_who_fills_all_the_room_there_is_may_take_some_of_it_back(tiny: Pair) -> None:
    engine, backend = Engine(tiny.other, ()), tiny.other
    assert isinstance(backend, PipelinedBackend)
    await engine.limit_memory(1)  # one conversation still has room
    (sequence,) = await opened(engine, [prompt(CONTEXT)])
    for length in (CONTEXT - 1, CONTEXT - 20, CONTEXT - PAGE - 7):
        # Its last page is kept for sequences with the same beginning, and there is no free page for a copy of it.
        await engine.prefill(sequence, sequence.tokens[:length] + prompt(CONTEXT - length, seed=length), Timings())
        await assert_alike(tiny, engine, sequence)
    assert backend.pages.table is not None
    assert backend.pages.table.capacity == CONTEXT // PAGE
    assert_each_page_has_its_owners(backend)


async def assert_alike(tiny: Pair, engine: Engine, sequence: TokenSequence) -> None:
    """The results on numpy, which keeps and shares nothing."""
    reference = tiny.numpy.new_sequence()
    await tiny.numpy.prefill(reference, sequence.tokens)
    expected, got = await tiny.numpy.logits(reference), await engine.logits(sequence)
    tiny.numpy.free(reference)
    assert np.abs(got - expected).max() <= 2e-3 * np.abs(expected).max()


async def test_who_changes_the_adapter_holds_no_pages_until_its_text_runs_again(tiny: Pair) -> None:
    backend = await with_little_memory(tiny, CONTEXT // 2)
    engine = Engine(backend, ())
    number = await engine.add_adapter(drawn(tiny.numpy.graph, 1))
    for seed in range(4):
        sequence, text = engine.new_sequence(), prompt(CONTEXT - 9 * PAGE // 4 - seed, seed=seed)
        await engine.prefill(sequence, text, Timings())
        engine.use_adapter(sequence, number)
    assert backend.pages.table is not None
    assert_each_page_has_its_owners(backend)


async def test_one_conversation_has_room_though_another_page_of_its_text_is_kept(tiny: Pair) -> None:
    """The page of a sequence that read the same at the same time: behind it the pages are kept that the conversation
    itself holds."""
    backend = await with_little_memory(tiny, CONTEXT // 2)
    engine, text = Engine(backend, ()), prompt(CONTEXT - 1)
    other, one = (engine.new_sequence() for _ in range(2))
    for sequence in (other, one):
        sequence.shares = False
        await engine.prefill(sequence, text[:PAGE], Timings())
        sequence.shares = True
    engine.free(other)
    await engine.prefill(one, text[: CONTEXT - PAGE], Timings())
    engine.truncate(one, CONTEXT - PAGE - 1)
    await engine.prefill(one, text, Timings())
    assert len(one.tokens) == one.stored == CONTEXT - 1
