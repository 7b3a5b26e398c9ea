"""One budget for all that a model takes: pages of keys and values give way to the rest. Tiny models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from py_core.backend_errors import BackendError
from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.backend import WebGPUBackend
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.engine.engine import Engine, Timings
from py_core.paging.page_table import PAGE
from py_core.speculation.guesses import PromptLookup
from py_core.token_sequence import NO_SLOT
from tests.backends.backend_pairs import GREEDY, Pair, alone, assert_said_alone, open_pair, prompt
from tests.paging.page_owners import assert_each_page_has_its_owners, assert_nothing_is_left
from tests.paging.test_page_transfer import Shelf
from tests.tiny.adapters import drawn
from tests.tiny.llama import TinyLlama

CONTEXT = 6 * PAGE


class NarrowHost(WgpuHost):
    """Has no room for another buffer of pages once it is full."""

    is_full = False

    def create_buffer(self, size: int, label: str) -> int:
        if self.is_full and label == "keys and values":
            raise BackendError("no room")
        return super().create_buffer(size, label)


class HostInTurns(WasmtimeHost):
    """Others continue until a run is over, as in the page."""

    def run(self, program: int, steps: int) -> asyncio.Future[list[int]]:
        return asyncio.ensure_future(asyncio.sleep(0, super().run(program, steps).result()))


@pytest.fixture(params=["webgpu", "wasm"])
async def tiny(request: pytest.FixtureRequest, tmp_path: Path, kernel_wasm) -> AsyncIterator[Pair]:
    tiny = TinyLlama(formats=("F32",), embedding_format="F32", tied=False, context=CONTEXT)
    host = NarrowHost() if request.param == "webgpu" else HostInTurns(kernel_wasm())
    pair = await open_pair(tiny.write(tmp_path / "tiny.gguf"), host)
    yield pair
    pair.other.close()


async def opened(engine: Engine, count: int):
    sequences = [engine.new_sequence() for _ in range(count)]
    for seed, one in enumerate(sequences):
        await engine.prefill(one, prompt(5 * PAGE, seed=seed), Timings())
    return sequences


async def say(engine: Engine, sequence, n: int) -> list[int]:
    return [token async for ids in engine.generate(sequence, n, GREEDY, Timings()) for token in ids]


def pool(pair: Pair) -> int:
    assert isinstance(pair.other, PipelinedBackend)
    table = pair.other.pages.store.limited
    assert table is not None
    return table.capacity


@pytest.mark.every_backend
async def test_a_smaller_budget_counts_at_once_and_all_say_what_they_would_have_said(tiny: Pair) -> None:
    engine = Engine(tiny.other, ())
    sequences = await opened(engine, 8)
    before, pages = engine.memory(), pool(tiny)
    await engine.limit_memory(
        before.total - sum((one.free + one.kept + one.conversations) for one in before.pages.values())
    )
    assert pool(tiny) < pages / 2, "one conversation has room all the same"
    after = engine.memory()
    assert after.limit is not None
    if isinstance(tiny.other, WebGPUBackend):
        assert after.total < before.total, "it was given back"
    assert sequences[7].stored == 5 * PAGE, "whose pages were moved"
    for seed in (7, *range(8)):
        said = await say(engine, sequences[seed], 20)
        await assert_said_alone(tiny.numpy, sequences[seed].tokens[:-20], GREEDY, said)
    assert pool(tiny) < pages / 2
    await engine.limit_memory(None)
    again = await opened(engine, 8)
    assert sum(one.slot != NO_SLOT for one in again) == 8


@pytest.mark.parametrize("what", ["is freed", "goes back"])
async def test_whoever_ends_while_a_smaller_pool_moves_his_pages_loses_nobody_elses(tiny: Pair, what: str) -> None:
    """After this number of turns of the event loop, wherever that is."""
    backend = tiny.other
    assert isinstance(backend, PipelinedBackend)
    if isinstance(backend, WebGPUBackend):
        pytest.skip("a GPU's queue moves all of them in one go")
    engine = Engine(backend, ())
    for turns in range(8):
        await engine.limit_memory(None)
        await opened(engine, 4)
        # No other sequence shares their beginning: their pages are free once they end. All are running, so their pages
        # are moved.
        sequences = [engine.new_sequence(shares=False) for _ in range(2)]
        for seed, one in enumerate(sequences):
            await engine.prefill(one, prompt(3 * PAGE, seed=seed), Timings())
        backend.pages.put_to_work(sequences)
        limiting = asyncio.ensure_future(engine.limit_memory(1))
        for _ in range(turns):
            await asyncio.sleep(0)
        if what == "is freed":
            engine.free(sequences[0])
        else:
            engine.truncate(sequences[0], 70)
        await limiting
        assert_each_page_has_its_owners(backend)
        await assert_said_alone(tiny.numpy, prompt(3 * PAGE, seed=1), GREEDY, await say(engine, sequences[1], 4))
        for one in list(backend.pages.sequences.values()):
            engine.free(one)
        assert_nothing_is_left(backend)


async def test_pages_give_way_to_what_an_adapter_takes(tiny: Pair) -> None:
    engine = Engine(tiny.other, ())
    sequences = await opened(engine, 8)
    use, pages = engine.memory(), pool(tiny)
    await engine.limit_memory(use.total)
    number = await engine.add_adapter(drawn(tiny.numpy.graph, 1, 16))
    assert engine.memory().total <= use.total
    assert pool(tiny) < pages
    engine.use_adapter(sequences[0], number)
    tiny_number = await tiny.numpy.add_adapter(drawn(tiny.numpy.graph, 1, 16))
    text = prompt(5 * PAGE, seed=0)
    assert await say(engine, sequences[0], 8) == await alone(tiny.numpy, text, 8, adapter=tiny_number)
    await assert_said_alone(tiny.numpy, prompt(5 * PAGE, seed=3), GREEDY, await say(engine, sequences[3], 20))


async def test_what_was_let_go_comes_from_the_shelf_and_is_not_read_again(tiny: Pair) -> None:
    engine, shelf = Engine(tiny.other, ()), Shelf()
    engine.pages.model = "a model"
    engine.pages.note_read = lambda tokens, seconds: None  # type: ignore[method-assign]
    sequence, text = engine.new_sequence(), prompt(4 * PAGE + 20, seed=50)
    await engine.prefill(sequence, text, Timings())
    await engine.pages.keep(sequence, shelf)
    use = engine.memory()
    await engine.limit_memory(use.weights)
    await opened(engine, 6)
    assert sequence.slot == NO_SLOT, "it gave its pages up"
    longer = [*text, *prompt(10, seed=51)]
    await engine.prefill(sequence, longer, timings := Timings(), shelf=shelf)
    assert timings.reused_tokens == 4 * PAGE
    await assert_said_alone(tiny.numpy, longer, GREEDY, await say(engine, sequence, 20))


@pytest.mark.every_backend
async def test_a_gpu_that_has_no_room_to_grow_lets_go_of_pages_first(tiny: Pair) -> None:
    if not isinstance(tiny.other, WebGPUBackend):
        pytest.skip("the memory of the kernels on the CPU grows otherwise")
    host = tiny.other.device.host
    assert isinstance(host, NarrowHost)
    engine = Engine(tiny.other, ())
    host.is_full = True
    sequences = await opened(engine, 6)
    for seed, one in enumerate(sequences):
        await assert_said_alone(tiny.numpy, prompt(5 * PAGE, seed=seed), GREEDY, await say(engine, one, 20))


async def test_who_gave_his_pages_up_may_go_on_with_a_guess(tiny: Pair) -> None:
    backend = tiny.other
    assert isinstance(backend, PipelinedBackend)
    if isinstance(backend, WebGPUBackend):
        pytest.skip("a GPU makes its guesses itself")
    sequence, text = backend.new_sequence(), prompt(3 * PAGE, seed=1)
    await backend.prefill(sequence, text)
    backend.pages.send_away(sequence)
    expected = await alone(tiny.numpy, text, 4)
    sequence.guesses = PromptLookup(sequence.tokens)
    assert (await backend.decoder.verify(sequence, 1, expected[:3], GREEDY)) == expected


async def test_in_turn_not_all_is_read_again(tiny: Pair) -> None:
    engine = Engine(tiny.other, ())
    await engine.limit_memory(engine.memory().total)
    sequences = await opened(engine, 5)
    held = 0
    for _ in range(5):
        for one in sequences:
            engine.truncate(one, 5 * PAGE)
            await engine.prefill(one, one.tokens[:], timings := Timings())
            held += timings.reused_tokens > PAGE
    assert held >= 5, "what came back is kept, where something has to go"
