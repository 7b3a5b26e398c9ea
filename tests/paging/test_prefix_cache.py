"""Sequences with a common beginning share pages, and each still has the logits that it would have alone. Tiny
models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.engine.engine import Engine, Timings
from py_core.paging import page_table
from py_core.paging.page_table import PAGE
from py_core.token_sequence import TokenSequence
from tests.backends.backend_pairs import GREEDY, Pair, open_pair, prompt
from tests.backends.dying_host import DyingOnceHost
from tests.tiny.adapters import drawn
from tests.tiny.llama import TinyLlama

CONTEXT = 6 * PAGE


def written(folder: Path) -> Path:
    tiny = TinyLlama(formats=("F32",), embedding_format="F32", tied=False, context=CONTEXT)
    return tiny.write(folder / "tiny.gguf")


@pytest.fixture(params=["webgpu", "wasm"])
async def tiny(
    request: pytest.FixtureRequest, tmp_path: Path, kernel_wasm, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Pair]:
    """In float32, with few pages, so that some are evicted."""
    monkeypatch.setattr(page_table, "FIRST_PAGES", 2)
    pair = await open_pair(written(tmp_path), WgpuHost() if request.param == "webgpu" else WasmtimeHost(kernel_wasm()))
    yield pair
    pair.other.close()


async def read(engine: Engine, sequence: TokenSequence, tokens: list[int]) -> Timings:
    await engine.prefill(sequence, tokens, timings := Timings())
    return timings


async def assert_alike(tiny: Pair, sequence: TokenSequence) -> None:
    """The results on numpy, which shares nothing."""
    reference = tiny.numpy.new_sequence()
    await tiny.numpy.prefill(reference, sequence.tokens)
    expected, got = await tiny.numpy.logits(reference), await tiny.other.logits(sequence)
    tiny.numpy.free(reference)
    assert np.abs(got - expected).max() <= 2e-3 * np.abs(expected).max()


def assert_no_page_is_lost(tiny: Pair, engine: Engine, open_ones: list[TokenSequence]) -> None:
    """Only pages that are kept for others remain when everything is closed."""
    assert isinstance(tiny.other, PipelinedBackend)
    table = tiny.other.pages.table
    assert table is not None
    assert table.capacity <= 4 * table.pages_per_slot
    for sequence in open_ones:
        engine.free(sequence)
    kept = {page for page in range(table.capacity) if table.references(page)}
    assert len(kept) == len(tiny.other.pages.prefixes.tree)
    assert all(table.references(page) == 1 for page in kept)


async def test_a_second_text_with_the_same_beginning_reads_the_rest_only(tiny: Pair) -> None:
    engine = Engine(tiny.other, ())
    beginning = prompt(150, seed=1)
    first, second = engine.new_sequence(), engine.new_sequence()
    assert (await read(engine, first, beginning + prompt(20, seed=2))).reused_tokens == 0
    timings = await read(engine, second, beginning + prompt(30, seed=3))
    assert timings.reused_tokens == 2 * PAGE
    await assert_alike(tiny, second)
    await assert_alike(tiny, first)


async def test_what_a_sequence_that_is_gone_has_read_is_there_still(tiny: Pair) -> None:
    engine = Engine(tiny.other, ())
    text = prompt(3 * PAGE, seed=1)
    first = engine.new_sequence()
    await read(engine, first, text)
    assert len([ids async for ids in engine.generate(first, 80, GREEDY, Timings())])
    said = list(first.tokens)
    engine.free(first)
    second = engine.new_sequence()
    assert (await read(engine, second, said)).reused_tokens == len(said) - 1  # the last one gives the logits
    await assert_alike(tiny, second)


@pytest.mark.every_backend
async def test_who_goes_back_into_a_shared_page_writes_one_of_its_own(tiny: Pair) -> None:
    engine = Engine(tiny.other, ())
    text = prompt(200, seed=1)
    first, second = engine.new_sequence(), engine.new_sequence()
    await read(engine, first, text)
    await read(engine, second, text)
    timings = await read(engine, second, text[:100] + prompt(90, seed=2))
    assert timings.reused_tokens == 100
    await assert_alike(tiny, second)
    await assert_alike(tiny, first)


@pytest.mark.every_backend
async def test_a_page_that_begins_alike_is_copied(tiny: Pair) -> None:
    engine = Engine(tiny.other, ())
    text = prompt(200, seed=1)
    first, second = engine.new_sequence(), engine.new_sequence()
    await read(engine, first, text)
    assert (await read(engine, second, text[:90] + prompt(70, seed=2))).reused_tokens == 90
    await assert_alike(tiny, second)
    await assert_alike(tiny, first)


async def test_another_answer_to_a_question_reads_nothing(tiny: Pair) -> None:
    engine = Engine(tiny.other, ())
    sequence, question = engine.new_sequence(), prompt(90, seed=1)
    for answer in range(3):
        assert (await read(engine, sequence, question)).reused_tokens == (90 - 1 if answer else 0)
        assert len([ids async for ids in engine.generate(sequence, 70, GREEDY, Timings())])
        await assert_alike(tiny, sequence)


async def test_with_a_set_of_lora_matrices_a_text_is_another(tiny: Pair) -> None:
    engine = Engine(tiny.other, ())
    text = prompt(100, seed=1)
    plain, adapted = engine.new_sequence(), engine.new_sequence()
    await read(engine, plain, text)
    number = await engine.add_adapter(drawn(tiny.numpy.graph, 3))
    engine.use_adapter(adapted, number)
    assert (await read(engine, adapted, text)).reused_tokens == 0
    engine.use_adapter(plain, number)
    assert (await read(engine, plain, text)).reused_tokens == PAGE
    await engine.remove_adapter(number)
    third = engine.new_sequence()
    engine.use_adapter(third, await engine.add_adapter(drawn(tiny.numpy.graph, 4)))
    assert (await read(engine, third, text)).reused_tokens == 0


@pytest.mark.parametrize("dies", range(1, 6))
async def test_workers_that_die_while_pages_are_shared_and_copied_cost_time_only(
    tmp_path: Path, kernel_wasm, dies: int
) -> None:
    host = DyingOnceHost(kernel_wasm())
    pair = await open_pair(written(tmp_path), host)
    engine, text = Engine(pair.other, ()), prompt(130, seed=1)
    first, second = engine.new_sequence(), engine.new_sequence()
    await read(engine, first, text)
    host.runs, host.dies = 0, dies
    assert (await read(engine, second, text[:90] + prompt(40, seed=2))).reused_tokens == 90  # copies, then reads
    engine.truncate(first, 80)
    await read(engine, first, text[:80] + prompt(30, seed=3))
    await assert_alike(pair, second)
    await assert_alike(pair, first)
    assert host.runs > dies
    assert_no_page_is_lost(pair, engine, [first, second])
    pair.other.close()


async def test_a_device_that_is_lost_costs_time_only(tmp_path: Path) -> None:
    host = WgpuHost()
    pair = await open_pair(written(tmp_path), host)
    engine, text = Engine(pair.other, ()), prompt(100, seed=1)
    first, second = engine.new_sequence(), engine.new_sequence()
    await read(engine, first, text)
    host._device.destroy()
    await read(engine, second, text[:90] + prompt(40, seed=2))
    await assert_alike(pair, second)
    await assert_alike(pair, first)
    third = engine.new_sequence()
    assert (await read(engine, third, text[:90] + prompt(40, seed=3))).reused_tokens == 90
    await assert_alike(pair, third)
    pair.other.close()
