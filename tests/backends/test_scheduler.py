"""Several sequences on one engine: each gets the tokens that it would get alone, on every backend. Tiny models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest

from py_core.backend_errors import BackendError
from py_core.backends import step_times
from py_core.backends.protocols import Backend
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.engine import turns
from py_core.engine.engine import Engine, Timings
from py_core.engine.scheduler import Priority
from py_core.engine.sequence_group import LOOK_AHEAD
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence
from tests.backends.backend_pairs import GREEDY, open_pair, prompt
from tests.backends.variants import gated
from tests.tiny.llama import TinyLlama

RULES = [
    GREEDY,
    SamplingParams(temperature=0.9, top_k=40, top_p=0.9, repetition_penalty=1.2, seed=5),
    SamplingParams(temperature=1.3, min_p=0.01, frequency_penalty=0.4, presence_penalty=0.1, penalty_window=16, seed=6),
]
TEXTS = [prompt(50, seed=1), prompt(20, seed=2), prompt(33, seed=3)]
PATIENCE = 300
"""Seconds after which a wait counts as endless, on any machine."""


not_on_numpy = pytest.mark.parametrize(
    "engine", gated(("wasm", "webgpu", "numpy"), lambda name: name != "numpy"), indirect=True
)
"""Not in the gate on numpy: turns work the same way there, and each step takes longer."""


@pytest.fixture(params=["numpy", "wasm", "webgpu"])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, kernel_wasm, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Engine]:
    """Hands over after each batch of four steps. In float32: no rounding of activations decides between two tokens."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(step_times, "MAX_BATCH", 4)
    monkeypatch.setattr(step_times, "MOST_BATCHES", 2)
    path = TinyLlama(formats=("F32",), embedding_format="F32", tied=False, context=1024).write(tmp_path / "tiny.gguf")
    pair = await open_pair(path, WgpuHost() if request.param == "webgpu" else WasmtimeHost(kernel_wasm()))
    backend: Backend = pair.numpy if request.param == "numpy" else pair.other
    yield Engine(backend, ())
    pair.other.close()


async def begin(engine: Engine, text: Sequence[int]) -> TokenSequence:
    sequence = engine.new_sequence()
    await engine.prefill(sequence, text, Timings())
    return sequence


async def go_on(
    engine: Engine, sequence: TokenSequence, n: int, rules: SamplingParams = GREEDY,
    priority: Priority = Priority.INTERACTIVE, log: list[TokenSequence] | None = None,
) -> list[int]:  # fmt: skip
    said = list[int]()
    async for ids in engine.generate(sequence, n, rules, Timings(), priority=priority):
        said += ids
        if log is not None:
            log.append(sequence)
    return said


async def alone(engine: Engine, text: Sequence[int], n: int, rules: SamplingParams = GREEDY) -> list[int]:
    sequence = await begin(engine, text)
    said = await go_on(engine, sequence, n, rules)
    engine.free(sequence)
    return said


@pytest.mark.every_backend
async def test_each_gets_the_tokens_that_it_would_get_alone(engine: Engine) -> None:
    expected = [await alone(engine, text, 60, rules) for text, rules in zip(TEXTS, RULES, strict=True)]
    assert len({tuple(said) for said in expected}) == 3
    log = list[TokenSequence]()

    async def answer(text: Sequence[int], rules: SamplingParams) -> list[int]:
        sequence = await begin(engine, text)
        return await go_on(engine, sequence, 60, rules, log=log)

    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*map(answer, TEXTS, RULES)) == expected
    # They really took turns: none ended before another began.
    first = {sequence.number: log.index(sequence) for sequence in log}
    last = {sequence.number: len(log) - 1 - log[::-1].index(sequence) for sequence in log}
    assert max(first.values()) < min(last.values())


@not_on_numpy
async def test_a_reader_who_pauses_stops_nobody_else(engine: Engine) -> None:
    expected, others = await alone(engine, TEXTS[0], 200), await alone(engine, TEXTS[1], 60, RULES[1])
    sequence, said = await begin(engine, TEXTS[0]), list[int]()
    async with asyncio.timeout(PATIENCE), aclosing(engine.generate(sequence, 200, GREEDY, Timings())) as batches:
        said += await anext(batches)
        assert await alone(engine, TEXTS[1], 60, RULES[1]) == others
        while sequence.length < len(TEXTS[0]) + len(said) + LOOK_AHEAD:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        # For the caller that pauses it stops, too.
        assert await alone(engine, TEXTS[1], 60, RULES[1]) == others
        assert sequence.length < len(TEXTS[0]) + 200
        async for ids in batches:
            said += ids
    assert said == expected


@not_on_numpy
async def test_what_one_closes_ends_for_it_only(engine: Engine) -> None:
    expected = [await alone(engine, text, 60, rules) for text, rules in zip(TEXTS, RULES, strict=True)]
    sequences = [await begin(engine, text) for text in TEXTS]
    async with asyncio.timeout(PATIENCE):
        going = asyncio.gather(*(go_on(engine, sequences[at], 60, RULES[at]) for at in (0, 1)))
        said = list[int]()
        async with aclosing(engine.generate(sequences[2], 60, RULES[2], Timings())) as batches:
            async for ids in batches:
                said += ids
                if len(said) >= 5:
                    break
        assert sequences[2].tokens == TEXTS[2] + said
        assert await going == expected[:2]
        assert said + await go_on(engine, sequences[2], 60 - len(said), RULES[2]) == expected[2]


async def test_closing_drops_what_was_sampled_and_not_read(engine: Engine) -> None:
    expected = await alone(engine, TEXTS[0], 200)
    sequence = await begin(engine, TEXTS[0])
    async with asyncio.timeout(PATIENCE), aclosing(engine.generate(sequence, 200, GREEDY, Timings())) as batches:
        said = await anext(batches)
        while sequence.length < len(TEXTS[0]) + len(said) + LOOK_AHEAD:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert sequence.tokens == TEXTS[0] + said
    assert said + await go_on(engine, sequence, 200 - len(said)) == expected


async def test_truncating_a_sequence_ends_what_is_sampled_for_it(engine: Engine) -> None:
    expected = await alone(engine, TEXTS[0], 60)
    sequence, timings, said = await begin(engine, TEXTS[0]), Timings(), list[int]()
    async with asyncio.timeout(PATIENCE):
        async for ids in engine.generate(sequence, 900, RULES[1], timings):
            said += ids
            engine.truncate(sequence, len(TEXTS[0]))
        assert sequence.tokens == TEXTS[0]
        assert (timings.reason, timings.new_tokens) == ("stopped", len(said))
        assert await go_on(engine, sequence, 60) == expected


async def test_freeing_a_sequence_ends_its_prefill_and_its_slot_can_be_used(engine: Engine) -> None:
    expected = await alone(engine, TEXTS[1], 30)
    sequence = engine.new_sequence()

    def free(stored: int, total: int) -> None:
        if stored > 0:
            engine.free(sequence)

    with pytest.raises(BackendError, match="changed in the meantime"):
        await engine.prefill(sequence, prompt(900), Timings(), free)
    assert await alone(engine, TEXTS[1], 30) == expected


async def test_a_cancelled_prefill_leaves_the_others_alone(engine: Engine) -> None:
    expected = await alone(engine, TEXTS[0], 60)
    first, second = await begin(engine, TEXTS[0]), engine.new_sequence()
    reading: asyncio.Future[None]

    def stop(stored: int, total: int) -> None:
        if stored > 0:
            reading.cancel()

    async with asyncio.timeout(PATIENCE):
        going = asyncio.ensure_future(go_on(engine, first, 60))
        reading = asyncio.ensure_future(engine.prefill(second, prompt(900), Timings(), stop))
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await going == expected
        await engine.prefill(second, TEXTS[0], Timings())
        assert await go_on(engine, second, 60) == expected


async def batches_during(engine: Engine, read: Callable[[list[str]], Awaitable[None]]) -> int:
    """The number of batches of an answer between the first and the last "read" that `read` puts into its list."""
    sequence, log = await begin(engine, TEXTS[0]), list[str]()

    async def say() -> None:
        async for _ in engine.generate(sequence, 400, GREEDY, Timings()):
            log.append("say")

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(say(), read(log))
    return log[log.index("read") : len(log) - log[::-1].index("read")].count("say")


async def test_tokens_come_while_another_prompt_is_read(engine: Engine) -> None:
    second = engine.new_sequence()

    async def read(log: list[str]) -> None:
        await engine.prefill(second, prompt(600), Timings(), lambda stored, total: log.append("read"))

    assert await batches_during(engine, read) >= 5


@not_on_numpy
async def test_tokens_come_while_hidden_states_are_read(engine: Engine) -> None:
    second = await begin(engine, prompt(600))
    expected = await engine.hidden(second, ["residual.1", "final_norm"], 100)

    async def read(log: list[str]) -> None:
        log.append("read")
        states = await engine.hidden(second, ["residual.1", "final_norm"], 100, Priority.INTERACTIVE)
        log.append("read")
        for name, values in expected.items():
            np.testing.assert_allclose(states[name], values, atol=1e-3 * np.abs(values).max())

    assert await batches_during(engine, read) >= 3


@not_on_numpy
async def test_an_interactive_request_goes_before_one_in_the_background(engine: Engine) -> None:
    log = list[TokenSequence]()
    expected = await alone(engine, TEXTS[0], 300)
    background = await begin(engine, TEXTS[0])
    async with asyncio.timeout(PATIENCE):
        working = asyncio.ensure_future(go_on(engine, background, 300, GREEDY, Priority.BACKGROUND, log))
        while not log:  # noqa: ASYNC110
            await asyncio.sleep(0)
        sequence = await begin(engine, TEXTS[1])
        await go_on(engine, sequence, 30, log=log)
        assert not working.done()
        # Work in flight may come in between; a turn may not.
        first, last = log.index(sequence), len(log) - 1 - log[::-1].index(sequence)
        assert log[first:last].count(background) <= 1
        assert await working == expected


async def test_a_sequence_is_answered_once_at_a_time(engine: Engine) -> None:
    sequence = await begin(engine, TEXTS[0])
    async with asyncio.timeout(PATIENCE), aclosing(engine.generate(sequence, 60, GREEDY, Timings())) as batches:
        await anext(batches)
        with pytest.raises(BackendError, match="still being answered"):
            await go_on(engine, sequence, 5)
        with pytest.raises(BackendError, match="still being answered"):
            await engine.logits(sequence)
        async for _ in batches:
            pass
    assert sequence.length == len(TEXTS[0]) + 60
