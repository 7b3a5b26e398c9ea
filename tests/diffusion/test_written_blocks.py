"""Answers of models of diffusion: block after block, a few tokens with each pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest

from py_core.backends.protocols import Backend
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.engine.diffusion import Unmasking, Writer
from py_core.engine.engine import Engine, Timings
from py_core.engine.scheduler import Priority
from py_core.models.diffusion import Diffusion
from py_core.sampling import SamplingParams, unmasked
from tests.backends.backend_pairs import GREEDY, Pair, open_pair, prompt
from tests.backends.dying_host import DeviceGoes, WorkersDie
from tests.diffusion.tiny import MASK, write_diffusion

DRAWN = SamplingParams(temperature=0.9, seed=4)
BLOCKS = pytest.mark.parametrize("block", [8, 32, 0])


@pytest.fixture
async def pair(tmp_path: Path, block: int, kernel_wasm: Callable[[], Path]) -> AsyncIterator[Pair]:
    opened = await open_pair(write_diffusion(tmp_path / "tiny.gguf", block), WasmtimeHost(kernel_wasm()))
    yield opened
    opened.other.close()


def engine_of(backend: Backend, block: int, ends: tuple[int, ...] = ()) -> Engine:
    return Engine(backend, ends, Diffusion(MASK, block, shifted=False))


async def written(
    engine: Engine, tokens: list[int], n: int, rules: SamplingParams = GREEDY
) -> tuple[list[int], Timings]:  # fmt: skip
    sequence, timings = engine.new_sequence(), Timings()
    await engine.prefill(sequence, tokens, timings)
    ids = [token async for found in engine.generate(sequence, n, rules, timings) for token in found]
    assert sequence.tokens[: len(tokens) + len(ids)] == tokens + ids
    engine.free(sequence)
    return ids, timings


@BLOCKS
async def test_an_answer_has_its_length_and_no_mask_and_is_the_same_again(pair: Pair, block: int) -> None:
    engine = engine_of(pair.other, block)
    for rules in (GREEDY, DRAWN):
        first, timings = await written(engine, prompt(21), 45, rules)
        assert (len(first), timings.reason) == (45, "length")
        assert MASK not in first
        assert (await written(engine, prompt(21), 45, rules))[0] == first
    other, _ = await written(engine, prompt(21), 45, SamplingParams(temperature=0.9, seed=5))
    assert other != (await written(engine, prompt(21), 45, DRAWN))[0]


@pytest.mark.parametrize(("block", "length", "n"), [(8, 21, 11), (32, 26, 6), (0, 21, 8)])
async def test_the_surest_place_becomes_a_token_first(pair: Pair, block: int, length: int, n: int) -> None:
    """The same written out: each pass reads the whole text."""
    engine, text, end = engine_of(pair.numpy, block), prompt(length), length + n
    engine.unmasking = Unmasking(threshold=1.0)
    while len(text) < end:
        first, last = len(text), min(len(text) // block * block + block, end) if block else end
        text += [MASK] * (last - first)
        while MASK in text[first:]:
            sequence = pair.numpy.new_sequence()
            pair.numpy.append(sequence, text)
            ids, scores = unmasked(await pair.numpy.last_logits(sequence, last - first), first, GREEDY, MASK)
            surest = max(range(last - first), key=lambda at: scores[at] if text[first + at] == MASK else -np.inf)
            text[first + surest] = int(ids[surest])
    assert (await written(engine, prompt(length), n))[0] == text[length:]


@BLOCKS
async def test_fewer_passes_write_more_tokens_each(pair: Pair, block: int) -> None:
    taken = []
    for unmasking in (Unmasking(steps=2), Unmasking(steps=8), Unmasking(threshold=1.0), Unmasking(threshold=0.0)):
        engine = engine_of(pair.other, block)
        engine.unmasking = unmasking
        writer = Writer(engine._scheduler, pair.other, engine.diffusion, ())  # type: ignore[arg-type]
        sequence = engine.new_sequence()
        await engine.prefill(sequence, prompt(32), Timings())
        stream = writer.tokens(sequence, 32, GREEDY, Priority.INTERACTIVE, unmasking)
        assert len([token async for found in stream for token in found]) == 32
        taken.append(writer.passes)
        engine.free(sequence)
    blocks = 32 // (block or 32)
    assert taken == [2 * blocks, 8 * blocks, 32, blocks]


@BLOCKS
async def test_an_end_token_ends_an_answer_and_what_is_behind_it(pair: Pair, block: int) -> None:
    ids, _ = await written(engine_of(pair.other, block), prompt(21), 40)
    end = ids[20]
    first = ids.index(end)
    cut, timings = await written(engine_of(pair.other, block, (end,)), prompt(21), 40)
    assert (cut, timings.reason) == (ids[:first], "end")


@BLOCKS
async def test_answers_at_the_same_time_are_as_alone_and_one_can_be_left(pair: Pair, block: int) -> None:
    engine = engine_of(pair.other, block)
    alone = [(await written(engine, prompt(20 + at), 40))[0] for at in range(3)]

    async def left() -> None:
        sequence = engine.new_sequence()
        await engine.prefill(sequence, prompt(9), Timings())
        async with aclosing(engine.generate(sequence, 100, GREEDY, Timings())) as stream:  # type: ignore[type-var]
            async for _ in stream:
                break
        engine.free(sequence)

    together = await asyncio.gather(*(written(engine, prompt(20 + at), 40) for at in range(3)), left())
    assert [found[0] for found in together[:3] if found] == alone


@pytest.mark.parametrize("block", [8])
async def test_a_sequence_that_is_changed_meanwhile_ends_its_answer(pair: Pair, block: int) -> None:
    engine, timings = engine_of(pair.other, block), Timings()
    sequence = engine.new_sequence()
    await engine.prefill(sequence, prompt(21), timings)
    found = list[int]()
    async for ids in engine.generate(sequence, 100, GREEDY, timings):
        found += ids
        engine.truncate(sequence, 21)
    assert len(found) < 100
    assert timings.reason == "stopped"


@BLOCKS
async def test_unsure_places_of_a_full_block_are_written_once_more(pair: Pair, block: int) -> None:
    found = {}
    for remasks in (False, True):
        engine = engine_of(pair.other, block)
        engine.unmasking = Unmasking(threshold=0.5, steps=1, remasks=remasks)
        found[remasks] = await written(engine, prompt(32), 32)
    (once, timings), (twice, more) = found[False], found[True]
    assert more.passes == 2 * timings.passes
    assert (len(twice), MASK in twice) == (32, False)
    assert twice != once


@pytest.mark.parametrize("kind", ["workers", "device"])
async def test_an_answer_goes_on_when_the_device_is_lost(
    kind: str, tmp_path: Path, kernel_wasm: Callable[[], Path]
) -> None:
    host = DeviceGoes() if kind == "device" else WorkersDie(kernel_wasm())
    opened = await open_pair(write_diffusion(tmp_path / "tiny.gguf", 8), host)
    engine = engine_of(opened.other, 8)
    expected, _ = await written(engine, prompt(21), 20)
    host.lose(0)
    assert (await written(engine, prompt(21), 20))[0] == expected
    for number in np.linspace(1, host.calls, 4).astype(int).tolist():
        host.lose(number)
        assert (await written(engine, prompt(21), 20))[0] == expected
    assert host.lost >= 3
    opened.other.close()


@BLOCKS
async def test_a_conversation_goes_on_with_the_pages_that_it_has(pair: Pair, block: int) -> None:
    engine = engine_of(pair.other, block)
    first, _ = await written(engine, prompt(150), 30)
    text = [*prompt(150), *first, *prompt(20, seed=7)]
    again, timings = await written(engine, text, 30)
    alone = engine.new_sequence(shares=False)
    await engine.prefill(alone, text, Timings())
    assert [token async for ids in engine.generate(alone, 30, GREEDY, Timings()) for token in ids] == again
    assert (timings.reused_tokens >= 128) == bool(block)


@pytest.mark.parametrize("block", [32])
async def test_an_end_token_ends_an_answer_and_nothing_behind_it_is_written(pair: Pair, block: int) -> None:
    engine = engine_of(pair.other, block)
    engine.unmasking = Unmasking(threshold=1.0)
    ids, timings = await written(engine, prompt(32), 32)
    assert timings.passes == 32
    cut = engine_of(pair.other, block, (ids[0],))
    cut.unmasking = engine.unmasking
    nothing, timings = await written(cut, prompt(32), 32)
    assert (nothing, timings.reason) == ([], "end")
    assert 0 < timings.passes < 32
